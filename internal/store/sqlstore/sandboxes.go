package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
)

// CreateSandbox puts a sandbox on record that does not exist yet (S1, S8).
func (s *Store) CreateSandbox(ctx context.Context, n store.NewSandbox) (made run.Sandbox, err error) {
	texts := []string{n.ID, n.TenantID, n.AccessToken, n.IdempotencyKey}
	for name, value := range n.Spec.Labels {
		texts = append(texts, name, value)
	}
	if err := keepable(texts...); err != nil {
		return run.Sandbox{}, err
	}
	err = s.write(ctx, "put the sandbox on record", func(t *tx) error {
		l, err := t.lockLoad(n.TenantID)
		if err != nil {
			return err
		}
		if l.disabled {
			return fault.New(fault.Denied, "the tenant is disabled")
		}
		var found bool
		if made, found, err = t.sandboxMadeBefore(n); err != nil || found {
			return err
		}
		size := size{n.Spec.Limits.MilliCPU, n.Spec.Limits.MemoryBytes}
		if err := l.admits(size); err != nil {
			return err
		}
		made, err = t.insertSandbox(n, size)
		return err
	})
	if err != nil {
		return run.Sandbox{}, err
	}
	return made, nil
}

// sandboxMadeBefore returns the sandbox that a call with the same idempotency key
// has made.
func (t *tx) sandboxMadeBefore(n store.NewSandbox) (made run.Sandbox, ok bool, err error) {
	if n.IdempotencyKey == "" {
		return run.Sandbox{}, false, nil
	}
	var digest []byte
	made, err = readSandboxAnd(t.QueryRowContext(t.ctx, `SELECT `+sandboxColumns+`, sandboxes.request_digest FROM sandboxes
		WHERE sandboxes.tenant_id = $1 AND sandboxes.idempotency_key = $2`, n.TenantID, n.IdempotencyKey), &digest)
	if ok, err = found(err); ok && !bytes.Equal(digest, n.RequestDigest[:]) {
		err = errOtherRequest
	}
	return made, ok, err
}

// admits says why a sandbox cannot be had now, or ever.
func (l load) admits(s size) error {
	if err := l.fits("sandbox", s); err != nil {
		return err
	}
	q := l.quota
	switch {
	case q.sandboxes > 0 && l.sandboxes >= q.sandboxes:
		return fault.New(fault.Exhausted, "the tenant has %d live sandboxes, which is its quota; kill one, or wait until one ends", l.sandboxes)
	case q.milliCPU > 0 && l.milliCPU+s.milliCPU > q.milliCPU:
		return fault.New(fault.Exhausted, "with this sandbox the tenant would use %d thousandths of a processor, more than its quota of %d; kill one, or wait",
			l.milliCPU+s.milliCPU, q.milliCPU)
	case q.memoryBytes > 0 && l.memoryBytes+s.memoryBytes > q.memoryBytes:
		return fault.New(fault.Exhausted, "with this sandbox the tenant would use %d bytes of memory, more than its quota of %d; kill one, or wait",
			l.memoryBytes+s.memoryBytes, q.memoryBytes)
	}
	return nil
}

func (t *tx) insertSandbox(n store.NewSandbox, size size) (run.Sandbox, error) {
	var now int64
	if _, err := t.scan([]any{&now}, `SELECT agentdock_now()`); err != nil {
		return run.Sandbox{}, err
	}
	made, err := readSandbox(t.QueryRowContext(t.ctx, `
		INSERT INTO sandboxes (id, tenant_id, spec, milli_cpu, memory_bytes, state, access_token, resolved,
			created_at, expires_at, deadline, idempotency_key, request_digest)
		VALUES ($1, $2, $3, $4, $5, 'creating', $6, $7, $8, $9, $10, $11, $12)
		ON CONFLICT (id) DO NOTHING RETURNING `+sandboxColumns,
		n.ID, n.TenantID, encode(n.Spec), size.milliCPU, size.memoryBytes, n.AccessToken, encode(run.Resolved{}),
		now, now+min(n.TTL, n.MaxLifetime).Microseconds(), now+n.MaxLifetime.Microseconds(),
		unlessEmpty(n.IdempotencyKey), n.RequestDigest[:]))
	if err != nil {
		return run.Sandbox{}, none(err, fault.New(fault.Conflict, "there is a sandbox with this id already"))
	}
	for name, value := range n.Spec.Labels {
		if _, err := t.exec(`INSERT INTO sandbox_labels (sandbox_id, name, value) VALUES ($1, $2, $3)`, n.ID, name, value); err != nil {
			return run.Sandbox{}, err
		}
	}
	return made, t.holdSandbox(n.TenantID, 1, size)
}

// Sandbox reads a sandbox of a tenant.
func (s *Store) Sandbox(ctx context.Context, tenantID, id string) (box run.Sandbox, err error) {
	if !text(tenantID) || !text(id) {
		return run.Sandbox{}, errNoSandbox
	}
	err = s.read(ctx, "read the sandbox", func(ctx context.Context, db *sql.DB) error {
		box, err = readSandbox(db.QueryRowContext(ctx,
			`SELECT `+sandboxColumns+` FROM sandboxes WHERE sandboxes.id = $1 AND sandboxes.tenant_id = $2`, id, tenantID))
		return none(err, errNoSandbox)
	})
	return box, err
}

// PlaceSandbox notes where the sandbox will be.
func (s *Store) PlaceSandbox(ctx context.Context, id, node string) error {
	if err := keepable(node); err != nil {
		return err
	}
	return s.moveSandbox(ctx, "note where the sandbox will be", id, func(t *tx, box run.Sandbox) error {
		if box.State != run.SandboxCreating {
			return fault.New(fault.Conflict, "cannot place a sandbox that is %s", box.State)
		}
		_, err := t.exec(`UPDATE sandboxes SET node = $2 WHERE id = $1`, id, node)
		return err
	})
}

// StartSandbox makes a sandbox running.
func (s *Store) StartSandbox(ctx context.Context, id string, r run.Resolved) (started run.Sandbox, err error) {
	err = s.moveSandbox(ctx, "note that the sandbox runs", id, func(t *tx, box run.Sandbox) error {
		if box.State != run.SandboxCreating {
			return fault.New(fault.Conflict, "cannot start a sandbox that is %s", box.State)
		}
		started, err = readSandbox(t.QueryRowContext(t.ctx,
			`UPDATE sandboxes SET state = 'running', resolved = $2 WHERE id = $1 RETURNING `+sandboxColumns, id, encode(r)))
		return err
	})
	return started, err
}

// moveSandbox changes a sandbox whose row is locked. One whose end has begun is
// Gone.
func (s *Store) moveSandbox(ctx context.Context, doing, id string, change func(*tx, run.Sandbox) error) error {
	if !text(id) {
		return errNoSandbox
	}
	return s.write(ctx, doing, func(t *tx) error {
		box, _, err := t.lockSandbox(id)
		if err != nil {
			return err
		}
		if !box.State.Alive() {
			return over(box)
		}
		return change(t, box)
	})
}

// ExtendSandbox moves the end of a sandbox's time (S5). Its row is locked from
// the look at the time to the change.
func (s *Store) ExtendSandbox(ctx context.Context, tenantID, id string, ttl time.Duration, atLeast bool) (extended run.Sandbox, err error) {
	if !text(tenantID) || !text(id) {
		return run.Sandbox{}, errNoSandbox
	}
	err = s.write(ctx, "extend the sandbox", func(t *tx) error {
		box, now, err := t.lockSandbox(id)
		if err != nil {
			return err
		}
		if box.TenantID != tenantID {
			return errNoSandbox
		}
		if !box.State.Alive() || micros(box.ExpiresAt) <= now {
			return over(box)
		}
		if box.State == run.SandboxPaused {
			return fault.New(fault.Conflict, "sandbox %s is paused, and kept until its deadline; resume it first", id)
		}
		until := min(now+ttl.Microseconds(), micros(box.Deadline))
		if atLeast {
			until = max(until, micros(box.ExpiresAt))
		}
		extended, err = readSandbox(t.QueryRowContext(t.ctx,
			`UPDATE sandboxes SET expires_at = $2 WHERE id = $1 RETURNING `+sandboxColumns, id, until))
		return err
	})
	return extended, err
}

// beginEnd is what changes with the outcome (S4). The key of a sandbox that never
// ran is free again (S8).
const beginEnd = `state = 'ending', access_token = '',
	idempotency_key = CASE WHEN state = 'creating' THEN NULL ELSE idempotency_key END`

// PauseSandbox makes a sandbox paused (S9).
func (s *Store) PauseSandbox(ctx context.Context, id string) (run.Sandbox, error) {
	return s.turnSandbox(ctx, "note that the sandbox is paused", id, run.SandboxPaused, func(t *tx, _ int64) (run.Sandbox, error) {
		return readSandbox(t.QueryRowContext(t.ctx,
			`UPDATE sandboxes SET paused = 1, expires_at = deadline WHERE id = $1 RETURNING `+sandboxColumns, id))
	})
}

// ResumeSandbox makes a paused sandbox running (S9).
func (s *Store) ResumeSandbox(ctx context.Context, id string, ttl time.Duration) (run.Sandbox, error) {
	return s.turnSandbox(ctx, "note that the sandbox runs again", id, run.SandboxRunning, func(t *tx, now int64) (run.Sandbox, error) {
		return readSandbox(t.QueryRowContext(t.ctx,
			`UPDATE sandboxes SET paused = 0, expires_at = CASE WHEN $2 < deadline THEN $2 ELSE deadline END WHERE id = $1 RETURNING `+sandboxColumns,
			id, now+ttl.Microseconds()))
	})
}

// turnSandbox pauses or resumes a sandbox whose time is not over.
func (s *Store) turnSandbox(ctx context.Context, doing, id string, to run.SandboxState, change func(t *tx, now int64) (run.Sandbox, error)) (turned run.Sandbox, err error) {
	if !text(id) {
		return run.Sandbox{}, errNoSandbox
	}
	err = s.write(ctx, doing, func(t *tx) error {
		box, now, err := t.lockSandbox(id)
		switch {
		case err != nil:
			return err
		case !box.State.Alive() || micros(box.ExpiresAt) <= now:
			return over(box)
		case box.State == run.SandboxCreating || !box.State.CanMove(to):
			return fault.New(fault.Conflict, "sandbox %s is %s", id, box.State)
		}
		turned, err = change(t, now)
		return err
	})
	return turned, err
}

// EndSandbox begins the end of a sandbox (S4).
func (s *Store) EndSandbox(ctx context.Context, id string, o run.Outcome) (box run.Sandbox, err error) {
	if !text(id) {
		return run.Sandbox{}, errNoSandbox
	}
	err = s.write(ctx, "end the sandbox", func(t *tx) error {
		box, _, err = t.lockSandbox(id)
		if err != nil || !box.State.Alive() {
			return err
		}
		box, err = readSandbox(t.QueryRowContext(t.ctx,
			`UPDATE sandboxes SET outcome = $2, `+beginEnd+` WHERE id = $1 RETURNING `+sandboxColumns, id, encode(o)))
		return err
	})
	return box, err
}

// RemovedSandbox ends a sandbox of which nothing is left (S6).
func (s *Store) RemovedSandbox(ctx context.Context, id string) error {
	if !text(id) {
		return errNoSandbox
	}
	return s.write(ctx, "note that the sandbox is gone", func(t *tx) error {
		var tenantID string
		var size size
		ok, err := t.scan([]any{&tenantID, &size.milliCPU, &size.memoryBytes},
			`SELECT tenant_id, milli_cpu, memory_bytes FROM sandboxes WHERE id = $1`, id)
		if err != nil {
			return err
		}
		if !ok {
			return errNoSandbox
		}
		if _, err := t.lockLoad(tenantID); err != nil {
			return err
		}
		box, _, err := t.lockSandbox(id)
		switch {
		case err != nil:
			return err
		case box.State == run.SandboxEnded:
			return nil
		case !box.State.CanMove(run.SandboxEnded):
			return fault.New(fault.Conflict, "cannot say of a sandbox that is %s that nothing is left", box.State)
		}
		if _, err := t.exec(`UPDATE sandboxes SET state = 'ended', ended_at = agentdock_now() WHERE id = $1`, id); err != nil {
			return err
		}
		return t.holdSandbox(tenantID, -1, size)
	})
}

// sandboxOrder is newest first.
const sandboxOrder = ` ORDER BY sandboxes.created_at DESC, sandboxes.id DESC`

// Sandboxes lists sandboxes of a tenant (S3).
func (s *Store) Sandboxes(ctx context.Context, q store.SandboxQuery) (page store.SandboxPage, err error) {
	if q.Limit <= 0 {
		q.Limit = defaultPage
	}
	q.Limit = min(q.Limit, largestPage)
	c, err := sandboxConditions(q)
	if err != nil {
		return store.SandboxPage{}, err
	}
	err = s.read(ctx, "list sandboxes", func(ctx context.Context, db *sql.DB) error {
		query := `SELECT ` + sandboxColumns + ` FROM sandboxes WHERE ` + c.where() + sandboxOrder + limitTo(q.Limit+1)
		rows, err := db.QueryContext(ctx, query, c.args...)
		page.Sandboxes, err = all(rows, err, readSandbox)
		return err
	})
	if err != nil {
		return store.SandboxPage{}, err
	}
	if len(page.Sandboxes) > q.Limit { // one more was asked for, to see whether this is the last page
		page.Sandboxes = page.Sandboxes[:q.Limit]
		last := page.Sandboxes[q.Limit-1]
		page.Next = place{micros(last.CreatedAt), last.ID}.cursor()
	}
	return page, nil
}

func sandboxConditions(q store.SandboxQuery) (conditions, error) {
	c := conditions{}
	if err := keepable(q.TenantID); err != nil {
		return c, err
	}
	c.add("sandboxes.tenant_id = $", q.TenantID)
	var states []string
	var args []any
	for _, state := range q.States {
		switch {
		case !state.Known():
			return c, fault.New(fault.Invalid, "there is no state %q", state)
		case state == run.SandboxPaused:
			states = append(states, "sandboxes.state = 'running' AND sandboxes.paused = 1")
		case state == run.SandboxRunning:
			states = append(states, "sandboxes.state = 'running' AND sandboxes.paused = 0")
		default:
			states, args = append(states, "sandboxes.state = $"), append(args, string(state))
		}
	}
	if len(states) > 0 {
		c.add("("+strings.Join(states, " OR ")+")", args...)
	}
	for name, value := range q.Labels {
		if err := keepable(name, value); err != nil {
			return c, err
		}
		c.add("EXISTS (SELECT 1 FROM sandbox_labels l WHERE l.sandbox_id = sandboxes.id AND l.name = $ AND l.value = $)", name, value)
	}
	if q.Cursor != "" {
		p, err := parseCursor(q.Cursor)
		if err != nil {
			return c, err
		}
		c.add("(sandboxes.created_at, sandboxes.id) < ($, $)", p.createdAt, p.id)
	}
	return c, nil
}

// SandboxesIn says which of the ids are needed: on record, and not ended.
func (s *Store) SandboxesIn(ctx context.Context, ids []string) (map[string]bool, error) {
	open := map[string]bool{}
	err := s.read(ctx, "look for sandboxes", func(ctx context.Context, db *sql.DB) error {
		for part := range slices.Chunk(ids, asked) {
			c := conditions{}
			var args []any
			for _, id := range part {
				if text(id) {
					args = append(args, id)
				}
			}
			if len(args) == 0 {
				continue
			}
			c.add("sandboxes.id IN ("+marks(len(args))+")", args...)
			rows, err := db.QueryContext(ctx, `SELECT sandboxes.id FROM sandboxes WHERE `+c.where()+` AND `+openStates, c.args...)
			found, err := all(rows, err, func(row scanner) (id string, err error) {
				err = row.Scan(&id)
				return id, err
			})
			if err != nil {
				return err
			}
			for _, id := range found {
				open[id] = true
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return open, nil
}
