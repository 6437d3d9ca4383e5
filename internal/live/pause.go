package live

import (
	"context"
	"log/slog"
	"time"

	"github.com/agentdock/agentdock/internal/control"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// Pause puts a running sandbox away until its deadline. It does its work to the end
// even if its caller goes away. One that is paused is a Conflict.
func (s *Sandboxes) Pause(ctx context.Context, caller control.Caller, id string) (box run.Sandbox, err error) {
	defer func() { s.audit(ctx, caller, "sandbox.pause", box.ID, err) }()
	if box, err = s.Get(ctx, caller, id); err != nil {
		return run.Sandbox{}, err
	}
	h, err := s.open(ctx, caller, box)
	if err != nil {
		return box, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), turnFor)
	defer cancel()
	if err := h.failed(ctx, h.box.Pause(ctx, max(time.Until(box.Deadline), time.Millisecond))); err != nil {
		return box, err
	}
	paused, err := s.record.PauseSandbox(ctx, id)
	return s.turned(ctx, box, paused, err)
}

// Resume brings a paused sandbox back, and makes its time end ttl from now; 0 is the
// operator's default. One that runs is a Conflict.
func (s *Sandboxes) Resume(ctx context.Context, caller control.Caller, id string, ttl time.Duration) (box run.Sandbox, err error) {
	defer func() { s.audit(ctx, caller, "sandbox.resume", box.ID, err) }()
	if ttl == 0 {
		ttl = s.cfg.TTL
	}
	if err := checkTTL(ttl); err != nil {
		return run.Sandbox{}, err
	}
	if box, err = s.Get(ctx, caller, id); err != nil {
		return run.Sandbox{}, err
	}
	if box.State == run.SandboxRunning {
		return box, fault.New(fault.Conflict, "sandbox %s is running", id)
	}
	h, err := s.reach(ctx, caller, box)
	if err != nil {
		return box, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), turnFor)
	defer cancel()
	if err := h.failed(ctx, h.box.Resume(ctx, max(min(ttl, time.Until(box.Deadline)), time.Millisecond))); err != nil {
		return box, err
	}
	resumed, err := s.record.ResumeSandbox(ctx, id, ttl)
	if fault.Is(err, fault.Conflict) {
		// Somebody else has resumed it, for another time than its service's clock has
		// now: it is the longer one, and both are told.
		resumed, err = s.extend(ctx, caller, id, ttl, true)
	}
	return s.turned(ctx, box, resumed, err)
}

// turnFor bounds a Pause or Resume, which write or read a sandbox's memory.
const turnFor = 4 * time.Minute

// turned is the end of a Pause or Resume that the execution service has done. What
// is not on record now is put there by a sweep.
func (s *Sandboxes) turned(ctx context.Context, was, now run.Sandbox, err error) (run.Sandbox, error) {
	if err == nil {
		return now, nil
	}
	s.poke()
	if fault.Is(err, fault.Conflict) { // a sweep was there first
		return s.record.Sandbox(ctx, was.TenantID, was.ID)
	}
	return was, err
}

// settle puts on record that a sandbox is paused, or runs, when its service says so.
// The service is asked once more: what it said before may have been overtaken.
func (s *Sandboxes) settle(ctx context.Context, conn Connection, box run.Sandbox) error {
	there, err := conn.Attach(ctx, box.ID)
	if err != nil {
		return nil // the next sweep sees that
	}
	info, err := there.Info(ctx)
	switch {
	case err != nil:
		return nil
	case info.State == execenv.StatePaused && box.State == run.SandboxRunning:
		_, err = s.record.PauseSandbox(ctx, box.ID)
	case info.State == execenv.StateRunning && box.State == run.SandboxPaused:
		_, err = s.record.ResumeSandbox(ctx, box.ID, s.cfg.TTL)
	default:
		return nil
	}
	if fault.Is(err, fault.Conflict) || fault.Is(err, fault.Gone) {
		return nil
	}
	if err == nil {
		s.log.InfoContext(ctx, "a sandbox was not what the record said", slog.String("sandbox", box.ID), slog.String("state", string(info.State)))
	}
	return err
}
