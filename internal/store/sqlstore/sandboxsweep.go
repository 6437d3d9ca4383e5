package sqlstore

import (
	"context"
	"database/sql"
	"time"

	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/tenant"
)

// What is said of sandboxes that the record itself ends.
var (
	timeOver = run.Outcome{Kind: run.WallClock, Evidence: "the time of the sandbox was over", LimitsHit: []run.Limit{run.LimitWallClock}}
	neverRan = run.Outcome{Kind: run.InfrastructureLost, Evidence: "the sandbox was not made in time"}
)

// dueSandboxes and stuckSandboxes begin the end of what is due. A row that an
// extension has locked is looked at again when that is done: it is due no more.
const (
	dueSandboxes = `UPDATE sandboxes SET outcome = $1, ` + beginEnd + `
		WHERE ` + aliveStates + ` AND sandboxes.expires_at <= agentdock_now() - $2`
	stuckSandboxes = `UPDATE sandboxes SET outcome = $1, ` + beginEnd + `
		WHERE sandboxes.state = 'creating' AND ` + aliveStates + ` AND sandboxes.created_at <= agentdock_now() - $2`
)

// EndDueSandboxes begins the end of sandboxes whose time is over (S5).
func (s *Store) EndDueSandboxes(ctx context.Context, grace, starting time.Duration) (int, error) {
	var ended int64
	err := s.write(ctx, "end sandboxes whose time is over", func(t *tx) error {
		due, err := t.exec(dueSandboxes, encode(timeOver), grace.Microseconds())
		if err != nil {
			return err
		}
		stuck, err := t.exec(stuckSandboxes, encode(neverRan), starting.Microseconds())
		ended = due + stuck
		return err
	})
	if err != nil {
		return 0, err
	}
	return int(ended), nil
}

const openSandboxes = `SELECT ` + sandboxColumns + ` FROM sandboxes WHERE ` + openStates + ` AND sandboxes.id > $1
	ORDER BY sandboxes.id LIMIT $2`

// OpenSandboxes lists what has not ended (S6).
func (s *Store) OpenSandboxes(ctx context.Context, after string, limit int) (list []run.Sandbox, err error) {
	err = s.read(ctx, "list sandboxes that have not ended", func(ctx context.Context, db *sql.DB) error {
		rows, err := db.QueryContext(ctx, openSandboxes, after, limit)
		list, err = all(rows, err, readSandbox)
		return err
	})
	return list, err
}

// SandboxOf reads a sandbox with its tenant.
func (s *Store) SandboxOf(ctx context.Context, id string) (box run.Sandbox, owner tenant.Tenant, err error) {
	if !text(id) {
		return run.Sandbox{}, tenant.Tenant{}, errNoSandbox
	}
	err = s.read(ctx, "read the sandbox", func(ctx context.Context, db *sql.DB) error {
		box, err = readSandbox(db.QueryRowContext(ctx, `SELECT `+sandboxColumns+` FROM sandboxes WHERE sandboxes.id = $1`, id))
		if err != nil {
			return none(err, errNoSandbox)
		}
		owner, err = readTenant(db.QueryRowContext(ctx, `SELECT `+tenantColumns+` FROM tenants WHERE id = $1`, box.TenantID))
		return none(err, errNoTenant)
	})
	return box, owner, err
}

// DeleteSandboxes removes what ended before a time (S7).
func (s *Store) DeleteSandboxes(ctx context.Context, before time.Time) (int, error) {
	var n int64
	err := s.write(ctx, "delete sandboxes that ended long ago", func(t *tx) (err error) {
		n, err = t.exec(`DELETE FROM sandboxes WHERE ended_at IS NOT NULL AND ended_at < $1`, micros(before))
		return err
	})
	return int(n), err
}
