package livefiles

import (
	"context"
	"errors"
	"path"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/guest/filewire"
)

// Event is something that happened to a file.
type Event struct {
	Kind filewire.EventKind
	// Path is absolute; it is that of the directory if Kind is Overflow.
	Path string
}

// Watch calls ready once what happens in a directory is seen from then on, and
// yield for each event, until ctx ends, yield fails, or the directory is gone.
// Nothing waits for yield: what it does not take in time is lost, and an
// Overflow says so.
func (f *Files) Watch(ctx context.Context, dir string, recursive bool, ready func() error, yield func(Event) error) error {
	dir, err := Resolve(dir)
	if err != nil {
		return err
	}
	began := false
	for {
		again := began
		end, err := f.call(ctx, job{
			what:    "watch",
			request: filewire.Request{Op: filewire.Watch, Path: []byte(dir), Recursive: recursive},
			input:   stayOpen,
			record: func(r filewire.Record) error {
				switch {
				case r.Ready && !began:
					began = true
					return ready()
				case r.Ready && again:
					again = false
					return yield(Event{Kind: filewire.Overflow, Path: dir})
				case r.Event != nil && began && !again:
					return yield(Event{Kind: r.Event.Kind, Path: path.Join(dir, string(r.Event.Name))})
				}
				return errUnasked
			},
		})
		switch {
		case err != nil:
			return err
		case !began || again:
			return disturbed("watch", errors.New("it did not begin"))
		case !end.More:
			return fault.New(fault.NotFound, "cannot watch: %q is gone", clip(dir))
		}
	}
}

// stayOpen keeps the helper's input open until nobody watches any more.
func stayOpen(ctx context.Context, x execenv.Exec) error {
	<-ctx.Done()
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), clearing)
	defer cancel()
	_ = x.CloseStdin(late)
	return nil
}
