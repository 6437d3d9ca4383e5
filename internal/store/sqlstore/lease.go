package sqlstore

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
)

// underLease is the condition that guards what a worker writes (L2).
const underLease = `jobs.id = $1 AND jobs.fence = $2 AND ` + activeStates

var errGone = fault.New(fault.Gone, "the lease is gone: the job has ended, or another worker has it")

// held locks a job that a worker holds.
func (t *tx) held(l store.Lease) (run.Job, error) {
	job, err := readJob(t.QueryRowContext(t.ctx,
		`SELECT `+jobColumns+` FROM jobs WHERE `+underLease+t.lock("jobs"), l.JobID, l.Fence))
	return job, none(err, errGone)
}

// heldWithLoad locks the tenant's counters, and then the job.
func (t *tx) heldWithLoad(l store.Lease) (run.Job, load, error) {
	counters, err := t.lockLoadOf(l.JobID)
	if fault.Is(err, fault.NotFound) {
		err = errGone
	}
	if err != nil {
		return run.Job{}, load{}, err
	}
	job, err := t.held(l)
	return job, counters, err
}

// lease runs work for a worker that holds a job.
func (s *Store) lease(ctx context.Context, l store.Lease, doing string, work func(*tx) error) error {
	if !text(l.JobID) {
		return errGone
	}
	return s.write(ctx, doing, work)
}

// change sets columns of a job that a worker holds.
func (s *Store) change(ctx context.Context, l store.Lease, doing, set string, value any) error {
	return s.lease(ctx, l, doing, func(t *tx) error {
		t.changed = append(t.changed, l.JobID)
		n, err := t.exec(`UPDATE jobs SET `+set+` WHERE `+underLease, l.JobID, l.Fence, value)
		return one(n, err, errGone)
	})
}

// Renew makes a lease last.
func (s *Store) Renew(ctx context.Context, l store.Lease, ttl time.Duration) (cancelRequested bool, err error) {
	err = s.lease(ctx, l, "renew the lease", func(t *tx) error {
		ok, err := t.scan([]any{&cancelRequested}, `UPDATE jobs SET lease_until = agentdock_now() + $3, leased_at = agentdock_now()
			WHERE `+underLease+` RETURNING cancel_requested`, l.JobID, l.Fence, ttl.Microseconds())
		if err == nil && !ok {
			err = errGone
		}
		return err
	})
	return cancelRequested, err
}

// Place notes which execution service will have the sandbox.
func (s *Store) Place(ctx context.Context, l store.Lease, node string) error {
	if err := keepable(node); err != nil {
		return err
	}
	return s.change(ctx, l, "note the job's execution service", "node = $3", node)
}

// Resolve notes what the job's source, image and environment are.
func (s *Store) Resolve(ctx context.Context, l store.Lease, r run.Resolved) error {
	return s.change(ctx, l, "note what the job is made of", "resolved = $3", encode(r))
}

// StartStep notes that a command may start (L7).
func (s *Store) StartStep(ctx context.Context, l store.Lease, step run.Step) error {
	return s.lease(ctx, l, "note the start of a command", func(t *tx) error {
		job, err := t.held(l)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(job.Steps, func(s run.Step) bool { return s.Index == step.Index }) {
			return nil
		}
		job.Steps = append(job.Steps, step)
		slices.SortFunc(job.Steps, func(a, b run.Step) int { return a.Index - b.Index })
		return t.keepSteps(job)
	})
}

// EndStep keeps how a command ended. The first end stays.
func (s *Store) EndStep(ctx context.Context, l store.Lease, step run.Step) error {
	return s.lease(ctx, l, "note the end of a command", func(t *tx) error {
		job, err := t.held(l)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(job.Steps, func(s run.Step) bool { return s.Index == step.Index })
		if i < 0 {
			return fault.New(fault.Conflict, "command %d has ended without a start on record", step.Index)
		}
		if job.Steps[i].Outcome != nil {
			return nil
		}
		job.Steps[i] = step
		return t.keepSteps(job)
	})
}

// keepSteps replaces the steps of a job, which is running from the first on.
func (t *tx) keepSteps(job run.Job) error {
	t.changed = append(t.changed, job.ID)
	_, err := t.exec(`UPDATE jobs SET state = 'running', steps = $2 WHERE id = $1`, job.ID, encode(job.Steps))
	return err
}

// AddArtifact keeps the name of a file that a job left (L11).
func (s *Store) AddArtifact(ctx context.Context, l store.Lease, a run.Artifact) error {
	if err := keepable(a.Path, a.SHA256, a.Key); err != nil {
		return err
	}
	if a.Bytes < 0 {
		return fault.New(fault.Invalid, "an artifact cannot have %d bytes", a.Bytes)
	}
	return s.lease(ctx, l, "keep an artifact", func(t *tx) error {
		job, counters, err := t.heldWithLoad(l)
		if err != nil {
			return err
		}
		var before int64
		if _, err := t.scan([]any{&before}, `SELECT bytes FROM artifacts WHERE job_id = $1 AND path = $2`, l.JobID, a.Path); err != nil {
			return err
		}
		if kept, quota := counters.artifactBytes-before+a.Bytes, counters.quota.artifactBs; quota > 0 && kept > quota {
			return fault.New(fault.Exhausted, "the tenant would keep %d bytes of artifacts and its quota is %d; collect less, or wait until old jobs are removed", kept, quota)
		}
		if _, err := t.exec(`INSERT INTO artifacts (job_id, path, bytes, sha256, blob_key) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (job_id, path) DO UPDATE SET bytes = excluded.bytes, sha256 = excluded.sha256, blob_key = excluded.blob_key`,
			l.JobID, a.Path, a.Bytes, a.SHA256, a.Key); err != nil {
			return err
		}
		t.changed = append(t.changed, l.JobID)
		return t.keepBytes(job.TenantID, a.Bytes-before)
	})
}

func (t *tx) keepBytes(tenantID string, change int64) error {
	_, err := t.exec(`UPDATE tenant_load SET artifact_bytes = artifact_bytes + $2 WHERE tenant_id = $1`, tenantID, change)
	return err
}

// Finish makes a job terminal, once (L9).
func (s *Store) Finish(ctx context.Context, l store.Lease, end store.End) error {
	return s.lease(ctx, l, "finish the job", func(t *tx) error {
		job, _, err := t.heldWithLoad(l)
		if err != nil {
			return err
		}
		if !end.State.Terminal() || !job.State.CanMove(end.State) {
			return refused(job.State, end.State)
		}
		_, err = t.end(job, end)
		return err
	})
}

func refused(from, to run.State) error {
	return fault.New(fault.Conflict, "a job that is %s cannot become %s", from, to)
}

// Requeue gives a job back (L10). It raises the fence, so that whoever held the
// job is without a lease although nobody else has one.
func (s *Store) Requeue(ctx context.Context, l store.Lease, lost bool) error {
	return s.lease(ctx, l, "queue the job again", func(t *tx) error {
		job, _, err := t.heldWithLoad(l)
		if err != nil {
			return err
		}
		if job.CancelRequested {
			_, err := t.end(job, store.End{State: run.StateCancelled, Lost: lost,
				Outcome: run.Outcome{Kind: run.Cancelled, Evidence: "a caller cancelled the job, and its sandbox was lost"}})
			return err
		}
		var bytes sql.NullInt64
		if _, err := t.scan([]any{&bytes}, `SELECT CAST(sum(bytes) AS BIGINT) FROM artifacts WHERE job_id = $1`, l.JobID); err != nil {
			return err
		}
		if bytes.Int64 > 0 {
			if err := t.keepBytes(job.TenantID, -bytes.Int64); err != nil {
				return err
			}
		}
		if _, err := t.exec(`DELETE FROM artifacts WHERE job_id = $1`, l.JobID); err != nil {
			return err
		}
		if _, err := t.exec(`UPDATE jobs SET state = 'queued', steps = '[]', node = '', lost = lost + $2, fence = fence + 1,
				lease_until = NULL, started_at = NULL
			WHERE id = $1`, l.JobID, asInt(lost)); err != nil {
			return err
		}
		t.changed = append(t.changed, l.JobID)
		return t.count(job.TenantID, job.State, run.Queued, sizeOf(job))
	})
}

func asInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
