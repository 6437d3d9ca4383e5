package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// steps runs the commands one after the other, from where the record ends.
func (j *job) steps(ctx context.Context) *verdict {
	var worst *run.Outcome
	for i, cmd := range j.Spec.Commands {
		o, v := j.step(ctx, i, cmd)
		if v != nil {
			return v
		}
		if o.Success() {
			continue
		}
		if worst == nil {
			worst = &o
		}
		if !cmd.ContinueOnFailure || endsJob(o.Kind) {
			break
		}
	}
	if worst != nil {
		return finished(run.Failed, *worst)
	}
	last := j.Steps[len(j.Steps)-1].Outcome
	o := *last
	o.Evidence = fmt.Sprintf("every command exited with 0; the last: %s", last.Evidence)
	return finished(run.Succeeded, o)
}

// endsJob is true of outcomes after which no further command makes sense,
// whatever the job says: the sandbox is gone, or was never to run this.
func endsJob(k run.Kind) bool {
	return k == run.OutOfMemory || k == run.PolicyDenied || k == run.Cancelled || k == run.InfrastructureLost
}

// step runs a command to its end and puts that on record. A command whose end
// is on record is not run again, and one that was started is followed.
func (j *job) step(ctx context.Context, i int, cmd run.Command) (run.Outcome, *verdict) {
	started := i < len(j.Steps)
	if started && j.Steps[i].Outcome != nil {
		return *j.Steps[i].Outcome, nil
	}
	if !started {
		if v := j.startStep(ctx, i); v != nil {
			return run.Outcome{}, v
		}
	}
	log := &stepLog{j: j, step: i}
	if started {
		if v := log.resume(ctx); v != nil {
			return run.Outcome{}, v
		}
	}
	res, v := j.command(ctx, i, cmd, log)
	if v == nil {
		v = j.judge(i, res)
	} else if v.do == finish {
		res.Outcome = v.outcome // the command's end was not learned
	}
	if v == nil || v.do == finish {
		if unrecorded := j.endStep(ctx, i, res); unrecorded != nil {
			return run.Outcome{}, unrecorded
		}
	}
	return res.Outcome, v
}

// startStep puts on record that the command may start from now on.
func (j *job) startStep(ctx context.Context, i int) *verdict {
	if j.hold.isCancelled() {
		return cancelled("a caller asked for it, before command %d started", i+1)
	}
	if !j.deadline.IsZero() && time.Until(j.deadline) <= 0 {
		return failed(run.WallClock, "the job's time of %s was over before command %d started", j.Spec.Timeout, i+1)
	}
	step := run.Step{Index: i, StartedAt: time.Now().UTC()}
	v := j.record(ctx, "record the start of a command", func(ctx context.Context) error {
		return j.w.deps.Store.StartStep(ctx, j.hold.lease, step)
	})
	if v == nil {
		j.Steps, j.State = append(j.Steps, step), run.Running
	}
	return v
}

func (j *job) endStep(ctx context.Context, i int, res execenv.Result) *verdict {
	step := run.Step{
		Index: i, Outcome: &res.Outcome, StdoutBytes: res.StdoutBytes, StderrBytes: res.StderrBytes, Truncated: res.Truncated,
		StartedAt: res.StartedAt, Duration: res.Duration,
	}
	if step.StartedAt.IsZero() {
		step.StartedAt = j.Steps[i].StartedAt
	}
	if res.Usage != (run.Usage{}) {
		j.usage = res.Usage
	}
	v := j.record(ctx, "record the end of a command", func(ctx context.Context) error {
		return j.w.deps.Store.EndStep(ctx, j.hold.lease, step)
	})
	if v == nil {
		j.Steps[i] = step
	}
	return v
}

// judge is the verdict on a job of which a command ended for a reason that is
// not its own.
func (j *job) judge(i int, res execenv.Result) *verdict {
	switch res.Outcome.Kind {
	case run.Cancelled:
		if j.hold.isCancelled() {
			j.usage = res.Usage
			return finished(run.StateCancelled, res.Outcome)
		}
		return j.lost("the sandbox was removed from outside while command %d ran", i+1)
	case run.InfrastructureLost:
		return j.lost("command %d: %s", i+1, res.Outcome.Evidence)
	}
	return nil
}

// command starts or finds the command, and follows it to its end. A connection
// that breaks is made again: the command goes on without it.
func (j *job) command(ctx context.Context, i int, cmd run.Command, log *stepLog) (execenv.Result, *verdict) {
	until := time.Time{}
	var wait backoff
	for {
		res, v, err := j.once(ctx, i, cmd, log)
		switch {
		case v != nil:
			return res, v
		case err == nil:
			return res, nil
		case ctx.Err() != nil:
			return res, j.interrupted(ctx)
		case fault.Is(err, fault.NotFound):
			return res, j.lost("execution service %s has no longer a sandbox for the job", j.Node)
		}
		switch fault.CodeOf(err) {
		case fault.Invalid, fault.Denied, fault.Unsupported:
			return refused(err), nil
		case fault.Gone:
			return j.endedBefore(ctx, i)
		}
		// The time begins anew whenever something was heard.
		if until.IsZero() || log.moved() {
			until = time.Now().Add(j.w.cfg.Patience)
		}
		if time.Now().After(until) {
			return res, j.lost("command %d could not be followed for %s: %s", i+1, j.w.cfg.Patience, fault.Public(err))
		}
		j.log.Warn("cannot follow a command; trying again", "step", i, "error", err)
		wait.pause(ctx)
		if v := j.attach(ctx, "the connection broke"); v != nil {
			return res, v
		}
	}
}

// once follows the command through one connection.
func (j *job) once(ctx context.Context, i int, cmd run.Command, log *stepLog) (execenv.Result, *verdict, error) {
	id := fmt.Sprintf("step-%d", i)
	x, err := j.sandbox.AttachExec(ctx, id)
	found := log.resumed && err == nil
	if !log.resumed || fault.Is(err, fault.NotFound) {
		x, err = j.sandbox.Exec(ctx, execenv.ExecSpec{
			ID: id, Argv: cmd.Argv, Dir: cmd.Dir, Env: cmd.Env, Stdin: len(cmd.Stdin) > 0,
			EndAtLimit: cmd.EndAtLimit, Timeout: j.timeout(cmd),
		})
	}
	if err != nil {
		return execenv.Result{}, nil, err
	}
	log.resumed = true
	defer j.killWhenCancelled(ctx, x)()
	following, stopFeeding := ctx, func() error { return nil }
	switch {
	case len(cmd.Stdin) == 0:
	case !found:
		following, stopFeeding = feed(ctx, x, cmd.Stdin)
	default:
		whole, err := fed(ctx, x)
		if err != nil {
			return execenv.Result{}, nil, err
		}
		if !whole {
			return execenv.Result{}, j.lost("command %d: %v", i+1, errHalfFed), nil
		}
	}
	v, err := log.follow(following, x)
	if unfed := stopFeeding(); unfed != nil && v == nil {
		return execenv.Result{}, j.lost("command %d: %v", i+1, unfed), nil
	}
	if v != nil || err != nil {
		return execenv.Result{}, v, err
	}
	res, err := x.Wait(ctx)
	return res, nil, err
}

// timeout is the least of what the command and the job have left. The
// execution service keeps it, so that it holds while no worker does.
func (j *job) timeout(cmd run.Command) time.Duration {
	t := cmd.Timeout
	if !j.deadline.IsZero() {
		left := max(time.Until(j.deadline), time.Millisecond)
		if t == 0 || left < t {
			t = left
		}
	}
	return t
}

// killWhenCancelled kills the command when a caller cancels the job. The
// function it returns ends that.
func (j *job) killWhenCancelled(ctx context.Context, x execenv.Exec) func() {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-j.hold.cancelled:
		case <-ctx.Done():
			return
		}
		var wait backoff
		for ctx.Err() == nil {
			if err := x.Kill(ctx); err == nil || fault.Is(err, fault.NotFound) || fault.Is(err, fault.Gone) {
				return
			}
			wait.pause(ctx)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// refused is the result of a command that the execution service would not run.
func refused(err error) execenv.Result {
	return execenv.Result{Outcome: run.Outcome{Kind: run.PolicyDenied, Evidence: "the execution service refused the command: " + fault.Public(err)}}
}

// endedBefore is the result of a command whose sandbox had ended before it
// could start.
func (j *job) endedBefore(ctx context.Context, i int) (execenv.Result, *verdict) {
	info, err := j.sandbox.Info(ctx)
	if err != nil || info.Outcome == nil {
		return execenv.Result{}, j.lost("the sandbox ended before command %d started", i+1)
	}
	o := *info.Outcome
	o.Evidence = "before the command started, its sandbox ended: " + o.Evidence
	return execenv.Result{Outcome: o}, nil
}
