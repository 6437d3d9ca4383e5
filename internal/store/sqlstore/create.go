package sqlstore

import (
	"bytes"
	"context"
	"database/sql"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
)

var errOtherRequest = fault.New(fault.Conflict, "the idempotency key was used for another request; use a new one")

// CreateJob puts a job on record (J1, J2).
func (s *Store) CreateJob(ctx context.Context, n store.NewJob) (job run.Job, created bool, err error) {
	texts := []string{n.ID, n.TenantID, n.IdempotencyKey, n.Spec.Source.Upload, n.TraceParent}
	for name, value := range n.Spec.Labels {
		texts = append(texts, name, value)
	}
	if err := keepable(texts...); err != nil {
		return run.Job{}, false, err
	}
	err = s.write(ctx, "create the job", func(t *tx) error {
		l, err := t.lockLoad(n.TenantID)
		if err != nil {
			return err
		}
		if l.disabled {
			return fault.New(fault.Denied, "the tenant is disabled")
		}
		var found bool
		if job, found, err = t.madeBefore(n); err != nil || found {
			created = false
			return err
		}
		if l.quota.queued > 0 && l.queued >= l.quota.queued {
			return fault.New(fault.Exhausted, "the tenant has %d queued jobs, which is its quota; wait until some have started", l.queued)
		}
		size := size{n.Spec.Limits.MilliCPU, n.Spec.Limits.MemoryBytes}
		if err := l.fits("job", size); err != nil {
			return err
		}
		if err := t.useUpload(n); err != nil {
			return err
		}
		job, err = t.insertJob(n, size)
		created = err == nil
		return err
	})
	if err != nil {
		return run.Job{}, false, err
	}
	return job, created, nil
}

// madeBefore returns the job that the same call, or another one with the same
// idempotency key, has made.
func (t *tx) madeBefore(n store.NewJob) (run.Job, bool, error) {
	if n.IdempotencyKey != "" {
		job, digest, _, ok, err := t.request(`jobs.tenant_id = $1 AND jobs.idempotency_key = $2`, n.TenantID, n.IdempotencyKey)
		if ok && !bytes.Equal(digest, n.RequestDigest[:]) {
			err = errOtherRequest
		}
		if ok || err != nil {
			return job, ok, err
		}
	}
	job, digest, key, ok, err := t.request(`jobs.id = $1`, n.ID)
	if ok && (job.TenantID != n.TenantID || key != n.IdempotencyKey || !bytes.Equal(digest, n.RequestDigest[:])) {
		err = fault.New(fault.Conflict, "there is another job with this id")
	}
	return job, ok, err
}

// request finds a job and the request that made it.
func (t *tx) request(where string, args ...any) (job run.Job, digest []byte, key string, ok bool, err error) {
	var kept sql.NullString
	job, err = readJobAnd(t.QueryRowContext(t.ctx,
		`SELECT `+jobColumns+`, jobs.request_digest, jobs.idempotency_key FROM jobs WHERE `+where, args...), &digest, &kept)
	ok, err = found(err)
	return job, digest, kept.String, ok, err
}

func (t *tx) insertJob(n store.NewJob, size size) (run.Job, error) {
	job, err := readJob(t.QueryRowContext(t.ctx, `
		INSERT INTO jobs (id, tenant_id, spec, state, milli_cpu, memory_bytes, upload_id, idempotency_key, request_digest,
			steps, usage, resolved, trace_parent, created_at)
		VALUES ($1, $2, $3, 'queued', $4, $5, $6, $7, $8, '[]', $9, $10, $11, agentdock_now())
		RETURNING `+jobColumns,
		n.ID, n.TenantID, encode(n.Spec), size.milliCPU, size.memoryBytes,
		unlessEmpty(n.Spec.Source.Upload), unlessEmpty(n.IdempotencyKey), n.RequestDigest[:],
		encode(run.Usage{}), encode(run.Resolved{}), n.TraceParent))
	if err != nil {
		return run.Job{}, err
	}
	for name, value := range n.Spec.Labels {
		if _, err := t.exec(`INSERT INTO job_labels (tenant_id, name, value, created_at, job_id) VALUES ($1, $2, $3, $4, $5)`,
			n.TenantID, name, value, micros(job.CreatedAt), n.ID); err != nil {
			return run.Job{}, err
		}
	}
	t.changed = append(t.changed, n.ID)
	return job, t.count(n.TenantID, "", run.Queued, size)
}

// useUpload notes that a new job refers to an upload, which keeps that from
// being found stale at the same time.
func (t *tx) useUpload(n store.NewJob) error {
	if n.Spec.Source.Upload == "" {
		return nil
	}
	used, err := t.exec(`UPDATE uploads SET used_at = agentdock_now() WHERE id = $1 AND tenant_id = $2 AND complete`,
		n.Spec.Source.Upload, n.TenantID)
	return one(used, err, fault.New(fault.NotFound, "there is no such upload, or it is not complete"))
}

func unlessEmpty(s string) sql.NullString { return sql.NullString{String: s, Valid: s != ""} }
