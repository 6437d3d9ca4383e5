package sqlstore

import (
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// jobColumns are the columns that readJob reads, of the table jobs.
const jobColumns = `jobs.id, jobs.tenant_id, jobs.spec, jobs.state, jobs.attempt, jobs.node, jobs.lost,
	jobs.cancel_requested, jobs.steps, jobs.outcome, jobs.usage, jobs.resolved, jobs.trace_parent,
	jobs.created_at, jobs.started_at, jobs.finished_at`

// activeStates is the condition under which a worker has a job. It is written
// as the indexes are.
const activeStates = `jobs.state IN ('starting', 'running')`

func readJob(row scanner) (run.Job, error) { return readJobAnd(row) }

// readJobAnd reads jobColumns, and further columns behind them.
func readJobAnd(row scanner, further ...any) (run.Job, error) {
	var j run.Job
	var spec, steps, usage, resolved []byte
	var outcome sql.Null[[]byte]
	var created int64
	var started, finished sql.NullInt64
	err := row.Scan(append([]any{&j.ID, &j.TenantID, &spec, &j.State, &j.Attempt, &j.Node, &j.Lost,
		&j.CancelRequested, &steps, &outcome, &usage, &resolved, &j.TraceParent,
		&created, &started, &finished}, further...)...)
	if err != nil {
		return run.Job{}, err
	}
	j.CreatedAt, j.StartedAt, j.FinishedAt = fromMicros(created), fromOptional(started), fromOptional(finished)
	parts := []struct {
		text []byte
		into any
	}{{spec, &j.Spec}, {steps, &j.Steps}, {usage, &j.Usage}, {resolved, &j.Resolved}}
	if outcome.Valid {
		j.Outcome = &run.Outcome{}
		parts = append(parts, struct {
			text []byte
			into any
		}{outcome.V, j.Outcome})
	}
	for _, p := range parts {
		if err := json.Unmarshal(p.text, p.into); err != nil {
			return run.Job{}, fault.Wrap(fault.Internal, err, "job %s is not whole on record", j.ID)
		}
	}
	if len(j.Steps) == 0 {
		j.Steps = nil
	}
	return j, nil
}

// encode is a value as JSON text. What is encoded is our own and always can be.
func encode(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("cannot encode %T: %v", v, err))
	}
	return string(text)
}
