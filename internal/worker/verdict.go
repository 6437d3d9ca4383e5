package worker

import (
	"context"
	"errors"
	"fmt"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// verdict is how this worker's part in a job ends. There is one per claim.
type verdict struct {
	do action
	// state and outcome go on record with finish.
	state   run.State
	outcome run.Outcome
	// lost says that a command may have run, and that nobody knows how far.
	lost bool
	// why is for the log.
	why error
}

type action int

const (
	// finish makes the job terminal.
	finish action = iota
	// requeue gives it back for another attempt.
	requeue
	// letGo touches nothing: the job is another's, or over.
	letGo
	// release leaves everything to whoever claims it next.
	release
)

func finished(state run.State, o run.Outcome) *verdict {
	return &verdict{do: finish, state: state, outcome: o}
}

func failed(kind run.Kind, format string, args ...any) *verdict {
	return finished(run.Failed, run.Outcome{Kind: kind, Evidence: fmt.Sprintf(format, args...)})
}

func cancelled(format string, args ...any) *verdict {
	return finished(run.StateCancelled, run.Outcome{Kind: run.Cancelled, Evidence: fmt.Sprintf(format, args...)})
}

func again(why error) *verdict { return &verdict{do: requeue, why: why} }

// lost is the end of an attempt in which a command may have run. Another one
// follows only if the job was allowed it.
func (j *job) lost(format string, args ...any) *verdict {
	v := failed(run.InfrastructureLost, format, args...)
	switch {
	case j.hold.isCancelled():
		v = cancelled("a caller asked for it; before the command's end could be learned, "+format, args...)
	case j.Lost+1 < max(j.Spec.MaxAttempts, 1):
		v.do, v.why = requeue, errors.New(v.outcome.Evidence)
	}
	v.lost = true
	return v
}

// errCancelled and errTimeout are why preparations are given up.
var (
	errCancelled = errors.New("a caller asked for the job to end")
	errTimeout   = errors.New("the time of the job is over")
)

// interrupted is the verdict on a job whose context has ended before its first
// command.
func (j *job) interrupted(ctx context.Context) *verdict {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errCancelled):
		return cancelled("a caller asked for it; no command had started")
	case errors.Is(cause, errTimeout):
		return failed(run.WallClock, "the job's time of %s was over before its first command started", j.Spec.Timeout)
	case errors.Is(cause, errReleased):
		return &verdict{do: release, why: cause}
	default:
		return &verdict{do: letGo, why: cause}
	}
}

// record puts something on record. It waits while the store is away: nothing
// may happen that is not on it.
func (j *job) record(ctx context.Context, what string, do func(ctx context.Context) error) *verdict {
	var wait backoff
	for {
		err := do(ctx)
		switch {
		case err == nil:
			return nil
		case fault.Is(err, fault.Gone), fault.Is(err, fault.NotFound):
			return &verdict{do: letGo, why: errLost}
		case ctx.Err() != nil:
			return j.interrupted(ctx)
		case !fault.Is(err, fault.Unavailable):
			// A defect, here or there. Another worker may have another version;
			// it gets the job when the lease has run out, and not at once.
			return &verdict{do: letGo, why: fmt.Errorf("cannot %s: %w", what, err)}
		}
		j.log.Warn("cannot "+what+"; trying again", "error", err)
		wait.pause(ctx)
	}
}
