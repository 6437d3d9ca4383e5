package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
)

// asked bounds the ids in one statement.
const asked = 500

// ActiveAttempts says which attempts a worker has now.
func (s *Store) ActiveAttempts(ctx context.Context, of []store.Attempt) (map[store.Attempt]bool, error) {
	active := map[store.Attempt]bool{}
	err := s.read(ctx, "look for active attempts", func(ctx context.Context, db *sql.DB) error {
		for part := range slices.Chunk(of, asked) {
			var marks []string
			var ids []any
			for _, a := range part {
				if text(a.JobID) {
					ids = append(ids, a.JobID)
					marks = append(marks, fmt.Sprintf("$%d", len(ids)))
				}
			}
			if len(ids) == 0 {
				continue
			}
			rows, err := db.QueryContext(ctx, `SELECT id, attempt FROM jobs WHERE id IN (`+strings.Join(marks, ", ")+`) AND `+activeStates, ids...)
			found, err := all(rows, err, func(row scanner) (a store.Attempt, err error) {
				err = row.Scan(&a.JobID, &a.Attempt)
				return a, err
			})
			if err != nil {
				return err
			}
			for _, a := range found {
				if slices.Contains(part, a) {
					active[a] = true
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return active, nil
}

// What has ended is listed from the oldest end on.
var (
	unsigned = `SELECT ` + jobColumns + ` FROM jobs
		WHERE finished_at IS NOT NULL AND receipt IS NULL ORDER BY finished_at, id LIMIT $1`
	expired = `SELECT ` + listColumns + ` FROM jobs
		WHERE finished_at IS NOT NULL AND finished_at < $2 ORDER BY finished_at, id LIMIT $1`
)

// Unsigned lists terminal jobs without a receipt.
func (s *Store) Unsigned(ctx context.Context, limit int) ([]run.Job, error) {
	return s.list(ctx, "list jobs without a receipt", unsigned, limit)
}

// Expired lists terminal jobs that ended before a time.
func (s *Store) Expired(ctx context.Context, before time.Time, limit int) ([]run.Job, error) {
	return s.list(ctx, "list jobs that ended long ago", expired, limit, micros(before))
}

func (s *Store) list(ctx context.Context, doing, query string, args ...any) (jobs []run.Job, err error) {
	err = s.read(ctx, doing, func(ctx context.Context, db *sql.DB) error {
		rows, err := db.QueryContext(ctx, query, args...)
		jobs, err = all(rows, err, readJob)
		return err
	})
	return jobs, err
}

// SignJob keeps the receipt of a terminal job. The first one stays.
func (s *Store) SignJob(ctx context.Context, id string, receipt []byte) error {
	if !text(id) {
		return errNoJob
	}
	return s.write(ctx, "keep the job's receipt", func(t *tx) error {
		var state run.State
		var signed bool
		ok, err := t.scan([]any{&state, &signed}, `SELECT state, receipt IS NOT NULL FROM jobs WHERE id = $1`+t.lock("jobs"), id)
		switch {
		case err != nil:
			return err
		case !ok:
			return errNoJob
		case !state.Terminal():
			return fault.New(fault.Conflict, "cannot sign a job that is %s: it has not ended", state)
		case signed:
			return nil
		}
		t.changed = append(t.changed, id)
		_, err = t.exec(`UPDATE jobs SET receipt = $2 WHERE id = $1`, id, receipt)
		return err
	})
}

// ArtifactsOf lists what a job left, of whatever tenant.
func (s *Store) ArtifactsOf(ctx context.Context, id string) (list []run.Artifact, err error) {
	if !text(id) {
		return nil, errNoJob
	}
	err = s.read(ctx, "list the job's artifacts", func(ctx context.Context, db *sql.DB) error {
		var here int
		if err := none(db.QueryRowContext(ctx, `SELECT 1 FROM jobs WHERE id = $1`, id).Scan(&here), errNoJob); err != nil {
			return err
		}
		list, err = artifactsOf(ctx, db, id)
		return err
	})
	return list, err
}

// DeleteJob removes a terminal job with its log, labels and artifacts.
func (s *Store) DeleteJob(ctx context.Context, id string) error {
	if !text(id) {
		return nil
	}
	return s.write(ctx, "delete the job", func(t *tx) error {
		if _, err := t.lockLoadOf(id); err != nil {
			if fault.Is(err, fault.NotFound) {
				return nil
			}
			return err
		}
		job, err := readJob(t.QueryRowContext(t.ctx, `SELECT `+jobColumns+` FROM jobs WHERE id = $1`+t.lock("jobs"), id))
		if ok, err := found(err); err != nil || !ok {
			return err
		}
		if !job.State.Terminal() {
			return fault.New(fault.Conflict, "cannot delete a job that is %s: it has not ended", job.State)
		}
		var bytes sql.NullInt64
		if _, err := t.scan([]any{&bytes}, `SELECT CAST(sum(bytes) AS BIGINT) FROM artifacts WHERE job_id = $1`, id); err != nil {
			return err
		}
		if err := t.keepBytes(job.TenantID, -bytes.Int64); err != nil {
			return err
		}
		if _, err := t.exec(`DELETE FROM jobs WHERE id = $1`, id); err != nil {
			return err
		}
		t.changed = append(t.changed, id)
		return t.count(job.TenantID, job.State, "", sizeOf(job))
	})
}

// Stats counts jobs. What has ended is not counted anew: the tenants' counters
// have it.
func (s *Store) Stats(ctx context.Context) (stats store.Stats, err error) {
	stats.ByState = map[run.State]int64{}
	err = s.read(ctx, "count jobs", func(ctx context.Context, db *sql.DB) error {
		var queued, starting, running, succeeded, failed, cancelled, waited int64
		err := db.QueryRowContext(ctx, `
			SELECT coalesce(sum(queued), 0), coalesce(sum(succeeded), 0), coalesce(sum(failed), 0), coalesce(sum(cancelled), 0),
				(SELECT count(*) FROM jobs WHERE `+activeStates+` AND state = 'starting'),
				(SELECT count(*) FROM jobs WHERE `+activeStates+` AND state = 'running'),
				coalesce((SELECT agentdock_now() - created_at FROM jobs WHERE state = 'queued' ORDER BY created_at LIMIT 1), 0)
			FROM tenant_load`).Scan(&queued, &succeeded, &failed, &cancelled, &starting, &running, &waited)
		stats.ByState = map[run.State]int64{
			run.Queued: queued, run.Starting: starting, run.Running: running,
			run.Succeeded: succeeded, run.Failed: failed, run.StateCancelled: cancelled,
		}
		stats.OldestQueued = time.Duration(max(waited, 0)) * time.Microsecond
		return err
	})
	return stats, err
}
