package sqlstore

import (
	"context"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
)

// AppendLog adds to the log of a step what is not on record yet (L8).
func (s *Store) AppendLog(ctx context.Context, l store.Lease, entries []run.LogEntry) (end int64, err error) {
	if len(entries) == 0 {
		return 0, fault.New(fault.Invalid, "cannot append nothing to a log: there is no step whose end to tell")
	}
	for _, e := range entries {
		if e.Step != entries[0].Step {
			return 0, fault.New(fault.Invalid, "cannot append to the logs of two commands at once")
		}
		if err := keepable(e.Stream); err != nil {
			return 0, err
		}
	}
	err = s.lease(ctx, l, "append to the job's log", func(t *tx) error {
		job, err := t.held(l)
		if err != nil {
			return err
		}
		if end, err = t.logEnd(l.JobID, job.Attempt, entries[0].Step); err != nil {
			return err
		}
		fresh, after, err := notOnRecord(entries, job.Attempt, end)
		if err != nil || len(fresh) == 0 {
			return err
		}
		end = after
		return t.insertLog(l.JobID, fresh)
	})
	return end, err
}

// notOnRecord cuts off what comes before the end of the log, and returns where
// the log ends with the rest.
func notOnRecord(entries []run.LogEntry, attempt int, end int64) ([]run.LogEntry, int64, error) {
	var fresh []run.LogEntry
	for _, e := range entries {
		if e.Attempt != attempt {
			return nil, 0, fault.New(fault.Invalid, "cannot append to the log of attempt %d: the job is at attempt %d", e.Attempt, attempt)
		}
		if e.Offset > end {
			return nil, 0, fault.New(fault.Conflict, "cannot append at offset %d: the log of command %d ends at %d", e.Offset, e.Step, end)
		}
		known := end - e.Offset
		if known >= int64(len(e.Data)) {
			continue
		}
		e.Data, e.Offset = e.Data[known:], end
		end += int64(len(e.Data))
		fresh = append(fresh, e)
	}
	return fresh, end, nil
}

// insertLog numbers entries; the job's row is locked.
func (t *tx) insertLog(jobID string, entries []run.LogEntry) error {
	var last int64
	if _, err := t.scan([]any{&last}, `UPDATE jobs SET log_seq = log_seq + $2 WHERE id = $1 RETURNING log_seq`, jobID, len(entries)); err != nil {
		return err
	}
	seq := last - int64(len(entries))
	for _, e := range entries {
		seq++
		if _, err := t.exec(`INSERT INTO job_log (job_id, seq, attempt, step, stream, start, bytes, data, at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
			jobID, seq, e.Attempt, e.Step, e.Stream, e.Offset, len(e.Data), e.Data, micros(e.At)); err != nil {
			return err
		}
	}
	t.changed = append(t.changed, jobID)
	return nil
}

// LogEnd says how much of a step's log is on record.
func (s *Store) LogEnd(ctx context.Context, l store.Lease, step int) (end int64, err error) {
	err = s.lease(ctx, l, "read the end of the job's log", func(t *tx) error {
		job, err := t.held(l)
		if err != nil {
			return err
		}
		end, err = t.logEnd(l.JobID, job.Attempt, step)
		return err
	})
	return end, err
}

func (t *tx) logEnd(jobID string, attempt, step int) (end int64, err error) {
	_, err = t.scan([]any{&end}, `SELECT start + bytes FROM job_log WHERE job_id = $1 AND attempt = $2 AND step = $3
		ORDER BY start DESC LIMIT 1`, jobID, attempt, step)
	return end, err
}
