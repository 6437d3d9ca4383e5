package live

import (
	"context"
	"crypto/subtle"
	"log/slog"
	"time"

	"github.com/agentdock/agentdock/internal/control"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
	"github.com/agentdock/agentdock/internal/tenant"
)

// noSuch is the answer for what does not exist and for what is another
// tenant's.
func noSuch(id string) error {
	const most = 64
	if len(id) > most {
		id = id[:most] + "…"
	}
	return fault.New(fault.NotFound, "there is no sandbox %q", id)
}

// Get returns a sandbox of the caller's tenant, alive or not.
func (s *Sandboxes) Get(ctx context.Context, caller control.Caller, id string) (run.Sandbox, error) {
	if !isID(id) {
		return run.Sandbox{}, noSuch(id)
	}
	box, err := s.record.Sandbox(ctx, caller.Tenant.ID, id)
	if fault.Is(err, fault.NotFound) {
		return run.Sandbox{}, noSuch(id)
	}
	return box, err
}

// List lists sandboxes of the caller's tenant, newest first.
func (s *Sandboxes) List(ctx context.Context, caller control.Caller, q store.SandboxQuery) (store.SandboxPage, error) {
	q.TenantID = caller.Tenant.ID
	var err error
	if q.Limit, err = control.PageSize(q.Limit); err != nil {
		return store.SandboxPage{}, err
	}
	if err := control.CheckLabels(q.Labels); err != nil {
		return store.SandboxPage{}, err
	}
	return s.record.Sandboxes(ctx, q)
}

// Extend makes the time of a sandbox end ttl from now, or at its deadline if
// that is sooner. With atLeast it never shortens it.
func (s *Sandboxes) Extend(ctx context.Context, caller control.Caller, id string, ttl time.Duration, atLeast bool) (box run.Sandbox, err error) {
	defer func() { s.audit(ctx, caller, "sandbox.extend", box.ID, err) }()
	if !isID(id) {
		return run.Sandbox{}, noSuch(id)
	}
	if err := checkTTL(ttl); err != nil {
		return run.Sandbox{}, err
	}
	return s.extend(ctx, caller, id, ttl, atLeast)
}

func (s *Sandboxes) extend(ctx context.Context, caller control.Caller, id string, ttl time.Duration, atLeast bool) (run.Sandbox, error) {
	box, err := s.record.ExtendSandbox(ctx, caller.Tenant.ID, id, ttl, atLeast)
	switch {
	case fault.Is(err, fault.NotFound):
		return run.Sandbox{}, noSuch(id)
	case err != nil:
		return run.Sandbox{}, err
	case box.State != run.SandboxRunning: // whoever makes it gives it the new time
		return box, nil
	}
	return box, s.tell(ctx, caller, box)
}

// tell gives the execution service's clock the time on record. A service that is
// away is told by a sweep: the extension holds all the same.
func (s *Sandboxes) tell(ctx context.Context, caller control.Caller, box run.Sandbox) error {
	h, err := s.open(ctx, caller, box)
	if err == nil {
		err = h.failed(ctx, h.box.Extend(ctx, time.Until(box.ExpiresAt)))
	}
	if fault.Is(err, fault.Unavailable) {
		s.poke()
		return nil
	}
	return err
}

// Kill ends a sandbox and returns it as it is afterwards. It may be repeated,
// and does its work to the end even if its caller goes away. A sandbox that it
// leaves as ending is removed by a sweep.
func (s *Sandboxes) Kill(ctx context.Context, caller control.Caller, id string) (box run.Sandbox, err error) {
	defer func() { s.audit(ctx, caller, "sandbox.kill", box.ID, err) }()
	box, err = s.Get(ctx, caller, id)
	if err != nil || box.State == run.SandboxEnded {
		return box, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoFor)
	defer cancel()
	if _, err := s.end(ctx, id, run.Outcome{Kind: run.Cancelled, Evidence: "a caller killed the sandbox"}); err != nil {
		s.log.WarnContext(ctx, "cannot remove a sandbox that was killed; trying again later", slog.String("sandbox", id), slog.Any("error", err))
		s.poke()
	}
	return s.Get(ctx, caller, id)
}

// end puts the end of a sandbox on record, removes the sandbox, and puts on
// record that nothing is left.
func (s *Sandboxes) end(ctx context.Context, id string, o run.Outcome) (run.Sandbox, error) {
	box, err := s.record.EndSandbox(ctx, id, o)
	if err != nil || box.State == run.SandboxEnded {
		return box, err
	}
	return box, s.remove(ctx, box)
}

// remove removes what there is of a sandbox that is ending.
func (s *Sandboxes) remove(ctx context.Context, box run.Sandbox) error {
	s.handles.forget(box.ID)
	if box.Node != "" { // otherwise no service was ever asked
		service, err := s.nodes.named(box.Node)
		if err != nil {
			return err
		}
		conn, err := s.nodes.connect(ctx, service)
		if err != nil {
			return err
		}
		if err := conn.Destroy(ctx, box.ID); err != nil {
			service.drop(conn, err)
			return err
		}
	}
	return s.record.RemovedSandbox(ctx, box.ID)
}

// CallerOf says who holds the access token of a sandbox: its tenant, as far as
// this sandbox goes. A sandbox that does not exist, or has ended, is NotFound; a
// wrong token of one that lives is control.Unauthenticated. An id is random
// enough that nobody finds one by asking.
func (s *Sandboxes) CallerOf(ctx context.Context, id, token, remote string) (control.Caller, run.Sandbox, error) {
	return s.CallerBy(ctx, id, remote, func(want string) error {
		if subtle.ConstantTimeCompare([]byte(token), []byte(want)) != 1 {
			return fault.New(control.Unauthenticated, "the access token is not valid for this sandbox")
		}
		return nil
	})
}

// CallerBy is CallerOf for whoever shows something that was made with the token,
// such as a signature; check says whether it was.
func (s *Sandboxes) CallerBy(ctx context.Context, id, remote string, check func(token string) error) (control.Caller, run.Sandbox, error) {
	if !isID(id) {
		return control.Caller{}, run.Sandbox{}, noSuch(id)
	}
	box, owner, err := s.record.SandboxOf(ctx, id)
	switch {
	case fault.Is(err, fault.NotFound), err == nil && !box.State.Alive():
		return control.Caller{}, run.Sandbox{}, noSuch(id)
	case err != nil:
		return control.Caller{}, run.Sandbox{}, err
	case box.AccessToken == "":
		return control.Caller{}, run.Sandbox{}, fault.New(control.Unauthenticated, "the sandbox has no access token")
	}
	if err := check(box.AccessToken); err != nil {
		return control.Caller{}, run.Sandbox{}, err
	}
	switch {
	case owner.Disabled:
		return control.Caller{}, run.Sandbox{}, fault.New(fault.Denied, "the tenant is disabled")
	}
	return control.Caller{
		Principal: tenant.Principal{Tenant: owner, Scopes: []tenant.Scope{tenant.SandboxesRead, tenant.SandboxesWrite}},
		Remote:    remote,
	}, box, nil
}
