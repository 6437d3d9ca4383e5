package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
	"github.com/agentdock/agentdock/internal/tenant"
)

// Labels by which sandboxes are known to be a job's (REQUIREMENTS B10).
const (
	labelSandbox = "agentdock.sandbox"
	labelJob     = "agentdock.execution_id"
	labelAttempt = "agentdock.attempt"
)

// destroyFor bounds the removal of a sandbox. What is left then is swept.
const destroyFor = time.Minute

// job is a job in this worker's hands.
type job struct {
	run.Job
	tenant  tenant.Tenant
	adopted bool

	w    *Worker
	hold *hold
	slot *slot
	log  *slog.Logger

	// conn and sandbox are nil while there is none.
	conn    Connection
	sandbox execenv.Sandbox
	// deadline is when the job's time is over; zero without a bound.
	deadline time.Time
	usage    run.Usage
	resolved run.Resolved
}

// sandboxID is the name of the sandbox of an attempt.
func sandboxID(jobID string, attempt int) string { return fmt.Sprintf("%s-%d", jobID, attempt) }

func (j *job) sandboxID() string { return sandboxID(j.ID, j.Attempt) }

// execute does this worker's part of a job, and puts on record how it ended.
func (w *Worker) execute(ctx context.Context, c store.Claimed, mine *slot) {
	h := w.hold(ctx, c)
	defer h.stop()
	j := &job{
		Job: c.Job, tenant: c.Tenant, adopted: c.Adopted, w: w, hold: h, slot: mine, resolved: c.Job.Resolved,
		log: w.log.With("job", c.Job.ID, "tenant", c.Job.TenantID, "attempt", c.Job.Attempt),
	}
	defer j.disconnect()
	j.settle(j.decide(h.ctx))
}

// decide is run. A defect of ours in it must not take the other jobs with it.
func (j *job) decide(ctx context.Context) (v *verdict) {
	defer func() {
		if p := recover(); p != nil {
			j.log.Error("a defect in the worker", "panic", p, "stack", string(debug.Stack()))
			v = failed(run.InfrastructureLost, "a defect in the worker ended the job")
		}
	}()
	return j.run(ctx)
}

// run goes from where the record ends to the verdict.
func (j *job) run(ctx context.Context) *verdict {
	if v := j.hopeless(); v != nil {
		return v
	}
	v := j.begin(ctx)
	if v != nil {
		return v
	}
	end := j.steps(ctx)
	if end.do == finish && end.state != run.StateCancelled {
		if v := j.collect(ctx); v != nil {
			end = v
		}
	}
	if end.do == finish {
		j.measure(ctx)
	}
	return end
}

// hopeless ends jobs that nobody can run, or whose turn never ends.
func (j *job) hopeless() *verdict {
	switch n := len(j.Spec.Commands); {
	case n == 0 || n > run.MaxCommands:
		return failed(run.PolicyDenied, "the job has %d commands; it must have 1 to %d", n, run.MaxCommands)
	case j.hold.lease.Fence > j.w.cfg.MaxClaims:
		return failed(run.InfrastructureLost, "%d workers took the job and none came to its end", j.hold.lease.Fence-1)
	case j.State == run.Starting && j.Attempt > j.w.cfg.MaxStarts:
		return failed(run.InfrastructureLost, "the job was started %d times and never came to its first command", j.Attempt-1)
	}
	return nil
}

// begin makes the sandbox of the attempt, or finds it.
func (j *job) begin(ctx context.Context) *verdict {
	if j.State == run.Running {
		return j.attach(ctx, "its worker died")
	}
	prepare, done := j.preparing(ctx)
	defer done()
	if j.adopted {
		// No command has run, and nobody knows how far the files came.
		if j.hold.isCancelled() {
			return cancelled("a caller asked for it; no command had started")
		}
		return again(errors.New("its worker died before the first command"))
	}
	return j.start(prepare)
}

// preparing is the context of what comes before the first command: it also ends
// when a caller cancels.
func (j *job) preparing(ctx context.Context) (context.Context, func()) {
	prepare, end := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-j.hold.cancelled:
			end(errCancelled)
		case <-prepare.Done():
		}
	}()
	return prepare, func() { end(nil) }
}

// attach finds the sandbox on the service that the record names. A service that
// does not answer is waited for; one that does not know the sandbox has lost it.
func (j *job) attach(ctx context.Context, because string) *verdict {
	until := time.Now().Add(j.w.cfg.Patience)
	var wait backoff
	for {
		j.disconnect()
		err := j.reach(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return j.interrupted(ctx)
		case fault.Is(err, fault.NotFound):
			return j.lost("execution service %s has no longer a sandbox for the job (%s)", j.Node, because)
		case time.Now().After(until):
			return j.lost("execution service %s could not be reached for %s (%s): %s", j.Node, j.w.cfg.Patience, because, fault.Public(err))
		}
		j.log.Warn("cannot reach the sandbox; trying again", "node", j.Node, "error", err)
		wait.pause(ctx)
	}
}

func (j *job) reach(ctx context.Context) error {
	conn, err := j.w.nodes.named(ctx, j.Node)
	if err != nil {
		return err
	}
	j.conn = conn
	call, cancel := context.WithTimeout(ctx, dialFor)
	defer cancel()
	sb, err := conn.Attach(call, j.sandboxID())
	if err != nil {
		return err
	}
	info, err := sb.Info(call)
	if err != nil {
		return err
	}
	j.sandbox = sb
	j.setDeadline(info.CreatedAt)
	return nil
}

func (j *job) setDeadline(created time.Time) {
	if j.Spec.Timeout > 0 && j.deadline.IsZero() {
		j.deadline = created.Add(j.Spec.Timeout)
	}
}

func (j *job) disconnect() {
	if j.conn != nil {
		j.conn.Close()
	}
	j.conn, j.sandbox = nil, nil
}

// measure asks for the sandbox's usage once more, for its peaks. The last
// command's is good enough if that fails.
func (j *job) measure(ctx context.Context) {
	if j.sandbox == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, dialFor)
	defer cancel()
	if u, err := j.sandbox.Usage(ctx); err == nil && u.PeakMemoryBytes >= j.usage.PeakMemoryBytes && u.CPU >= j.usage.CPU {
		j.usage = u
	}
}

// settle puts the verdict on record, and removes the sandbox once the record
// says that nobody needs it.
func (j *job) settle(v *verdict) {
	ctx := j.hold.ctx
	if v.do == release && j.w.cfg.Sole {
		v = j.abandoned()
		ctx = context.WithoutCancel(ctx)
	}
	if errors.Is(context.Cause(ctx), errReleased) && (v.do == finish || v.do == requeue) {
		// The end is known and needs one write: it is worth a moment.
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		ctx = last
	}
	var unrecorded *verdict
	switch v.do {
	case finish:
		j.dropOthers(ctx)
		if unrecorded = j.endOpenStep(ctx, v.outcome); unrecorded != nil {
			break
		}
		unrecorded = j.record(ctx, "record the job's end", func(ctx context.Context) error {
			return j.w.deps.Store.Finish(ctx, j.hold.lease, store.End{State: v.state, Outcome: v.outcome, Usage: j.usage, Lost: v.lost})
		})
		j.log.Info("job ended", "state", v.state, "outcome", v.outcome.String(), "evidence", v.outcome.Evidence)
	case requeue:
		unrecorded = j.record(ctx, "queue the job again", func(ctx context.Context) error {
			return j.w.deps.Store.Requeue(ctx, j.hold.lease, v.lost)
		})
		j.log.Warn("job is queued again", "lost", v.lost, "reason", v.why)
	case release:
		j.log.Info("job is left to the next worker", "reason", v.why)
		if err := j.hold.release(); err != nil {
			j.log.Warn("the job goes on elsewhere when its lease has run out", "error", err)
		}
		return
	default:
		j.log.Warn("job is let go", "reason", v.why)
		return
	}
	if unrecorded != nil {
		// The sandbox may be needed: whoever claims the job next decides.
		j.log.Warn("the job's end is not on record", "reason", unrecorded.why)
		return
	}
	j.destroy()
}

// endOpenStep puts on record how a command ended that was started, maybe by
// another worker, when the end of the job is all that will be known of it.
func (j *job) endOpenStep(ctx context.Context, o run.Outcome) *verdict {
	last := len(j.Steps) - 1
	if last < 0 || j.Steps[last].Outcome != nil {
		return nil
	}
	return j.endStep(ctx, last, execenv.Result{Outcome: o})
}

// abandoned is the verdict on a job whose worker and execution service end
// together.
func (j *job) abandoned() *verdict {
	if j.State == run.Running {
		return j.lost("AgentDock was stopped while the job ran")
	}
	return again(errReleased)
}

// destroy removes the sandbox of an attempt that is over.
func (j *job) destroy() {
	if j.Node == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(j.hold.ctx), destroyFor)
	defer cancel()
	err := j.destroyOn(ctx)
	if err != nil {
		j.log.Warn("cannot remove the sandbox; the sweep will", "node", j.Node, "error", err)
	}
}

func (j *job) destroyOn(ctx context.Context) error {
	if j.conn == nil {
		conn, err := j.w.nodes.named(ctx, j.Node)
		if err != nil {
			return err
		}
		j.conn = conn
	}
	return j.conn.Destroy(ctx, j.sandboxID())
}
