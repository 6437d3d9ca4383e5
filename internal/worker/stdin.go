package worker

import (
	"context"
	"errors"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
)

// askFor bounds the question whether a command has all its input: whoever is
// still writing makes it wait.
const askFor = 5 * time.Second

var errHalfFed = errors.New("how much of its standard input it was given is not known")

// fed reports whether a command that was found again has had all its input. The
// input is closed behind its last byte, so one that is open is of a worker that
// was lost while it wrote. How far it came nobody knows, and what was written
// twice would be another input; so that command is lost too.
func fed(ctx context.Context, x execenv.Exec) (bool, error) {
	ask, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	_, err := x.WriteStdin(ask, nil)
	switch {
	case err == nil, ask.Err() != nil && ctx.Err() == nil:
		return false, nil
	case fault.Is(err, fault.Gone):
		return true, nil // closed, or the command has ended
	}
	return false, err
}

// feed gives a command its input, beside whoever follows it. The context it
// returns ends when that fails: the program must not take a part for the whole.
// stop ends it, and says whether it has failed.
func feed(ctx context.Context, x execenv.Exec, input []byte) (_ context.Context, stop func() error) {
	following, end := context.WithCancelCause(ctx)
	done := make(chan error, 1)
	go func() {
		err := give(following, x, input)
		if err != nil {
			end(err)
		}
		done <- err
	}()
	return following, func() error {
		broke := context.Cause(following) != nil && ctx.Err() == nil
		end(nil)
		if err := <-done; broke {
			return err
		}
		return nil
	}
}

func give(ctx context.Context, x execenv.Exec, input []byte) error {
	if _, err := x.WriteStdin(ctx, input); err != nil {
		if fault.Is(err, fault.Gone) {
			return nil // the program has ended, or reads no more
		}
		return errors.Join(errHalfFed, err)
	}
	var wait backoff
	for {
		err := x.CloseStdin(ctx)
		if err == nil || ctx.Err() != nil || !fault.Is(err, fault.Unavailable) {
			return nil // what else is wrong, whoever follows learns too
		}
		wait.pause(ctx)
	}
}
