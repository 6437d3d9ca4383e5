package sqlstore

import (
	"context"
	"database/sql"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
)

// Job reads a job of a tenant (J3).
func (s *Store) Job(ctx context.Context, tenantID, id string) (job run.Job, err error) {
	err = s.ofTenant(ctx, "read the job", tenantID, id, func(ctx context.Context, db *sql.DB) error {
		job, err = readJob(db.QueryRowContext(ctx,
			`SELECT `+jobColumns+` FROM jobs WHERE id = $1 AND tenant_id = $2`, id, tenantID))
		return none(err, errNoJob)
	})
	return job, err
}

// ofTenant reads something of a job. Ids that cannot be on record are refused
// as those that are not.
func (s *Store) ofTenant(ctx context.Context, doing, tenantID, id string, work func(context.Context, *sql.DB) error) error {
	if !text(tenantID) || !text(id) {
		return errNoJob
	}
	return s.read(ctx, doing, work)
}

func none(err, otherwise error) error {
	ok, err := found(err)
	if err == nil && !ok {
		return otherwise
	}
	return err
}

// CancelJob ends a queued job, marks an active one and leaves others (J5).
func (s *Store) CancelJob(ctx context.Context, tenantID, id string) (job run.Job, err error) {
	if !text(tenantID) || !text(id) {
		return run.Job{}, errNoJob
	}
	err = s.write(ctx, "cancel the job", func(t *tx) error {
		if _, err := t.lockLoad(tenantID); err != nil {
			if fault.Is(err, fault.NotFound) {
				return errNoJob
			}
			return err
		}
		job, err = readJob(t.QueryRowContext(t.ctx,
			`SELECT `+jobColumns+` FROM jobs WHERE id = $1 AND tenant_id = $2`+t.lock("jobs"), id, tenantID))
		if err := none(err, errNoJob); err != nil {
			return err
		}
		switch {
		case job.State == run.Queued:
			job, err = t.end(job, store.End{State: run.StateCancelled,
				Outcome: run.Outcome{Kind: run.Cancelled, Evidence: "a caller cancelled the job before it started"}})
			return err
		case job.State.Active() && !job.CancelRequested:
			job.CancelRequested = true
			t.changed = append(t.changed, id)
			_, err = t.exec(`UPDATE jobs SET cancel_requested = TRUE WHERE id = $1`, id)
			return err
		}
		return nil
	})
	if err != nil {
		return run.Job{}, err
	}
	return job, nil
}

// end makes a job terminal whose row, and whose tenant's counters, are locked.
func (t *tx) end(j run.Job, end store.End) (run.Job, error) {
	ended, err := readJob(t.QueryRowContext(t.ctx, `
		UPDATE jobs SET state = $2, outcome = $3, usage = $4, lost = lost + $5, cancel_requested = FALSE,
			finished_at = agentdock_now(), lease_until = NULL
		WHERE id = $1 RETURNING `+jobColumns, j.ID, string(end.State), encode(end.Outcome), encode(end.Usage), asInt(end.Lost)))
	if err != nil {
		return run.Job{}, err
	}
	t.changed = append(t.changed, j.ID)
	return ended, t.count(j.TenantID, j.State, end.State, sizeOf(j))
}

func sizeOf(j run.Job) size { return size{j.Spec.Limits.MilliCPU, j.Spec.Limits.MemoryBytes} }

// logPage bounds the entries that one call of Log looks at.
const logPage = 1000

// Log reads what a job's commands wrote.
func (s *Store) Log(ctx context.Context, tenantID, id string, after int64, maxBytes int) (entries []run.LogEntry, err error) {
	err = s.ofTenant(ctx, "read the job's log", tenantID, id, func(ctx context.Context, db *sql.DB) error {
		if err := exists(ctx, db, tenantID, id); err != nil {
			return err
		}
		rows, err := db.QueryContext(ctx, `
			SELECT seq, attempt, step, stream, start, data, at FROM (
				SELECT seq, attempt, step, stream, start, data, at, bytes, CAST(sum(bytes) OVER (ORDER BY seq) AS BIGINT) AS total FROM (
					SELECT seq, attempt, step, stream, start, data, at, bytes
					FROM job_log WHERE job_id = $1 AND seq > $2 ORDER BY seq LIMIT $4
				) AS page
			) AS summed
			WHERE total <= $3 OR total = bytes
			ORDER BY seq`, id, after, maxBytes, logPage)
		entries, err = all(rows, err, func(row scanner) (run.LogEntry, error) {
			var e run.LogEntry
			var at int64
			err := row.Scan(&e.Seq, &e.Attempt, &e.Step, &e.Stream, &e.Offset, &e.Data, &at)
			e.At = fromMicros(at)
			return e, err
		})
		return err
	})
	return entries, err
}

func exists(ctx context.Context, db *sql.DB, tenantID, id string) error {
	var here int
	return none(db.QueryRowContext(ctx, `SELECT 1 FROM jobs WHERE id = $1 AND tenant_id = $2`, id, tenantID).Scan(&here), errNoJob)
}

// Artifacts lists what a tenant's job left, by path.
func (s *Store) Artifacts(ctx context.Context, tenantID, id string) (list []run.Artifact, err error) {
	err = s.ofTenant(ctx, "list the job's artifacts", tenantID, id, func(ctx context.Context, db *sql.DB) error {
		if err := exists(ctx, db, tenantID, id); err != nil {
			return err
		}
		list, err = artifactsOf(ctx, db, id)
		return err
	})
	return list, err
}

func artifactsOf(ctx context.Context, db *sql.DB, id string) ([]run.Artifact, error) {
	rows, err := db.QueryContext(ctx, `SELECT path, bytes, sha256, blob_key FROM artifacts WHERE job_id = $1 ORDER BY path`, id)
	return all(rows, err, func(row scanner) (a run.Artifact, err error) {
		err = row.Scan(&a.Path, &a.Bytes, &a.SHA256, &a.Key)
		return a, err
	})
}

// Receipt returns the signed statement about a tenant's job.
func (s *Store) Receipt(ctx context.Context, tenantID, id string) (receipt []byte, err error) {
	err = s.ofTenant(ctx, "read the job's receipt", tenantID, id, func(ctx context.Context, db *sql.DB) error {
		err := db.QueryRowContext(ctx, `SELECT receipt FROM jobs WHERE id = $1 AND tenant_id = $2`, id, tenantID).Scan(&receipt)
		if err := none(err, errNoJob); err != nil {
			return err
		}
		if receipt == nil {
			return fault.New(fault.NotFound, "the job has no receipt yet; it gets one after its end")
		}
		return nil
	})
	return receipt, err
}
