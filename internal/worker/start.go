package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// lifetimeMargin is what a sandbox may live beyond the job's time, so that
// artifacts can be collected. Then the execution service ends it by itself.
const lifetimeMargin = 15 * time.Minute

// start makes the sandbox and puts the files into it.
func (j *job) start(ctx context.Context) *verdict {
	if v := j.create(ctx); v != nil {
		return v
	}
	if v := j.waitsFor(ctx, ""); v != nil {
		return v
	}
	if j.Spec.Timeout > 0 {
		// The job's time counts from here: to wait for room is not the job's.
		var done context.CancelFunc
		ctx, done = context.WithTimeoutCause(ctx, j.Spec.Timeout, errTimeout)
		defer done()
	}
	info, err := j.sandbox.Info(ctx)
	if err != nil {
		return j.startFailed(ctx, err)
	}
	j.setDeadline(time.Now())
	caps := j.conn.Capabilities()
	j.resolved = run.Resolved{
		ImageDigest: info.ImageDigest, Isolation: string(caps.Isolation), Environment: caps.Name + " " + caps.Version,
	}
	if v := j.putFiles(ctx); v != nil {
		return v
	}
	return j.record(ctx, "record what the job runs in", func(ctx context.Context) error {
		return j.w.deps.Store.Resolve(ctx, j.hold.lease, j.resolved)
	})
}

// spec is what the record says of the sandbox. Whoever computes it gets the
// same.
func (j *job) spec() execenv.Spec {
	s := execenv.Spec{
		ID: j.sandboxID(), Image: j.Spec.Image, Env: j.Spec.Env,
		Limits: j.Spec.Limits.Or(run.DefaultLimits().LeaveOpen(run.Limits{})),
		Labels: map[string]string{
			labelSandbox: "true", labelJob: j.ID, labelAttempt: strconv.Itoa(j.Attempt),
		},
	}
	if j.Spec.Timeout > 0 {
		s.Lifetime = j.Spec.Timeout + lifetimeMargin
	}
	return s
}

// create makes the sandbox on the service with the most room. A service is on
// record before it is asked. While none has room, the job leaves its slot to
// others: one that asks for much holds up nobody else.
func (j *job) create(ctx context.Context) *verdict {
	began := time.Now()
	avoid := map[string]error{}
	wait := backoff{most: 10 * time.Second}
	for {
		p, err := j.w.nodes.choose(ctx, j.Spec.KernelOnly, avoid)
		if err == nil {
			v, next := j.createOn(ctx, p)
			if next == nil {
				return v
			}
			avoid[p.node] = next
			continue
		}
		full := anyFull(avoid)
		switch waited := time.Since(began); {
		case ctx.Err() != nil:
			return j.interrupted(ctx)
		case j.w.nodes.allRefuse(avoid):
			return failed(run.PolicyDenied, "%s", reasons(avoid))
		case full && waited > j.w.cfg.RoomFor:
			return failed(run.InfrastructureLost, "no execution service had room for the job for %s: %s", j.w.cfg.RoomFor, reasons(avoid))
		case !full && waited > j.w.cfg.Patience:
			return again(fmt.Errorf("no execution service took the job for %s: %w", j.w.cfg.Patience, err))
		}
		j.log.Warn("cannot make the sandbox; trying again", "error", err)
		if v := j.waitsFor(ctx, reasons(avoid)); v != nil {
			return v
		}
		maps.DeleteFunc(avoid, func(_ string, why error) bool { return !refuses(why) })
		j.slot.stepAside(ctx, wait.next())
	}
}

// waitsFor puts on record why there is no sandbox yet.
func (j *job) waitsFor(ctx context.Context, why string) *verdict {
	if j.resolved.Waiting == why {
		return nil
	}
	j.resolved.Waiting = why
	return j.record(ctx, "record why the job waits", func(ctx context.Context) error {
		return j.w.deps.Store.Resolve(ctx, j.hold.lease, j.resolved)
	})
}

func anyFull(why map[string]error) bool {
	for _, err := range why {
		if fault.Is(err, fault.Exhausted) {
			return true
		}
	}
	return false
}

// refuses reports whether the service that gave this error would give it at any
// other time too. Another service may still take the job.
func refuses(err error) bool {
	switch fault.CodeOf(err) {
	case fault.Unsupported, fault.Denied, fault.NotFound:
		return true
	}
	return false
}

// reasons are what the services said, for the user.
func reasons(of map[string]error) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		all = append(all, fault.Public(of[name]))
	}
	return strings.Join(all, "; ")
}

// createOn returns an error if another service may do better.
func (j *job) createOn(ctx context.Context, p *place) (_ *verdict, next error) {
	defer p.settled()
	if v := j.record(ctx, "record where the sandbox will be", func(ctx context.Context) error {
		return j.w.deps.Store.Place(ctx, j.hold.lease, p.node)
	}); v != nil {
		p.Close()
		return v, nil
	}
	j.disconnect()
	j.Node, j.conn = p.node, p.Connection
	// A service that neither makes it nor says no is as good as away.
	call, done := context.WithTimeout(ctx, j.w.cfg.Patience)
	defer done()
	sb, err := j.conn.Create(call, j.spec())
	if err == nil {
		j.sandbox = sb
		return nil, nil
	}
	if ctx.Err() != nil {
		return j.interrupted(ctx), nil
	}
	switch code := fault.CodeOf(err); code {
	case fault.Invalid:
		return failed(run.PolicyDenied, "execution service %s refused the sandbox: %s", p.node, fault.Public(err)), nil
	case fault.Unsupported, fault.Denied:
		return nil, fault.Wrap(code, err, "execution service %s refused the sandbox: %s", p.node, fault.Public(err))
	case fault.NotFound:
		return nil, fault.Wrap(code, err, "execution service %s has no image %q: %s", p.node, j.Spec.Image, fault.Public(err))
	case fault.Exhausted:
		return nil, fault.Wrap(code, err, "execution service %s has no room: %s", p.node, fault.Public(err))
	case fault.Conflict, fault.Gone:
		return again(fmt.Errorf("cannot make the sandbox: %w", err)), nil
	}
	// Whether there is a sandbox is not known. Another service may only be
	// asked in this attempt if there is none.
	undo, cancel := context.WithTimeout(ctx, dialFor)
	defer cancel()
	if destroyErr := j.conn.Destroy(undo, j.sandboxID()); destroyErr != nil {
		return again(errors.Join(fmt.Errorf("cannot make the sandbox: %w", err), destroyErr)), nil
	}
	return nil, err
}

// startFailed is the verdict when something failed between creation and the
// first command that is neither the job's nor the caller's doing.
func (j *job) startFailed(ctx context.Context, err error) *verdict {
	if ctx.Err() != nil {
		return j.interrupted(ctx)
	}
	return again(fmt.Errorf("cannot prepare the sandbox: %w", err))
}
