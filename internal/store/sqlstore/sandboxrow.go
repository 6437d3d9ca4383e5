package sqlstore

import (
	"database/sql"
	"encoding/json"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

var errNoSandbox = fault.New(fault.NotFound, "there is no such sandbox")

// sandboxColumns are the columns that readSandbox reads.
const sandboxColumns = `sandboxes.id, sandboxes.tenant_id, sandboxes.spec, sandboxes.state, sandboxes.paused, sandboxes.node,
	sandboxes.access_token, sandboxes.outcome, sandboxes.resolved,
	sandboxes.created_at, sandboxes.expires_at, sandboxes.deadline, sandboxes.ended_at`

// aliveStates and openStates are written as the indexes are.
const (
	aliveStates = `sandboxes.state IN ('creating', 'running')`
	openStates  = `sandboxes.state <> 'ended'`
)

func readSandbox(row scanner) (run.Sandbox, error) { return readSandboxAnd(row) }

// readSandboxAnd reads sandboxColumns, and further columns behind them.
func readSandboxAnd(row scanner, further ...any) (run.Sandbox, error) {
	var s run.Sandbox
	var spec, resolved []byte
	var outcome sql.Null[[]byte]
	var paused, created, expires, deadline int64
	var ended sql.NullInt64
	err := row.Scan(append([]any{&s.ID, &s.TenantID, &spec, &s.State, &paused, &s.Node,
		&s.AccessToken, &outcome, &resolved, &created, &expires, &deadline, &ended}, further...)...)
	if err != nil {
		return run.Sandbox{}, err
	}
	if paused != 0 && s.State == run.SandboxRunning {
		s.State = run.SandboxPaused
	}
	s.CreatedAt, s.ExpiresAt, s.Deadline, s.EndedAt = fromMicros(created), fromMicros(expires), fromMicros(deadline), fromOptional(ended)
	err = json.Unmarshal(spec, &s.Spec)
	if err == nil {
		err = json.Unmarshal(resolved, &s.Resolved)
	}
	if err == nil && outcome.Valid {
		s.Outcome = &run.Outcome{}
		err = json.Unmarshal(outcome.V, s.Outcome)
	}
	if err != nil {
		return run.Sandbox{}, fault.Wrap(fault.Internal, err, "sandbox %s is not whole on record", s.ID)
	}
	return s, nil
}

// over says why a sandbox in this state cannot be used.
func over(s run.Sandbox) error {
	if s.Outcome == nil {
		return fault.New(fault.Gone, "the time of sandbox %s is over", s.ID)
	}
	return fault.New(fault.Gone, "sandbox %s has ended: %s", s.ID, s.Outcome.Kind)
}

// lockSandbox reads a sandbox and locks its row, and behind it says what time
// it is.
func (t *tx) lockSandbox(id string) (_ run.Sandbox, now int64, _ error) {
	s, err := readSandboxAnd(t.QueryRowContext(t.ctx,
		`SELECT `+sandboxColumns+`, agentdock_now() FROM sandboxes WHERE sandboxes.id = $1`+t.lock("sandboxes"), id), &now)
	return s, now, none(err, errNoSandbox)
}

// holdSandbox counts a sandbox for its tenant, n times.
func (t *tx) holdSandbox(tenantID string, n int64, size size) error {
	_, err := t.exec(`UPDATE tenant_load SET sandboxes = sandboxes + $2, milli_cpu = milli_cpu + $3, memory_bytes = memory_bytes + $4
		WHERE tenant_id = $1`, tenantID, n, n*size.milliCPU, n*size.memoryBytes)
	return err
}
