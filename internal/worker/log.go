package worker

import (
	"context"
	"errors"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/run"
)

// A piece of log goes on record when it is this large or this old. That bounds
// what is in memory, and what is said while a worker dies is still with the
// execution service.
const (
	logBytes = 64 << 10
	logDelay = 100 * time.Millisecond
)

// stepLog carries the log of one command from its sandbox to the record.
type stepLog struct {
	j    *job
	step int
	// end is where the log on record ends, and mark where it ended when moved
	// was asked last.
	end, mark int64
	// resumed says that the command was started before, here or elsewhere.
	resumed bool

	pending []run.LogEntry
	bytes   int
}

// resume asks where another worker has stopped.
func (l *stepLog) resume(ctx context.Context) *verdict {
	l.resumed = true
	return l.j.record(ctx, "learn where the log ends", func(ctx context.Context) (err error) {
		l.end, err = l.j.w.deps.Store.LogEnd(ctx, l.j.hold.lease, l.step)
		return err
	})
}

// moved says whether anything came since it was asked last.
func (l *stepLog) moved() bool {
	was := l.mark
	l.mark = l.end
	return l.end > was
}

// follow returns when all the command says is on record. With an error it can
// be called again.
func (l *stepLog) follow(ctx context.Context, x execenv.Exec) (*verdict, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// What was read and not recorded is read again.
	l.pending, l.bytes = nil, 0
	chunks := make(chan run.LogEntry)
	over := make(chan error, 1)
	go func() {
		over <- x.Output(ctx, l.end, func(c execenv.Chunk) error {
			// The reader waits for the record; the program waits for neither.
			for data := c.Data; len(data) > 0; {
				n := min(len(data), logBytes)
				e := run.LogEntry{Attempt: l.j.Attempt, Step: l.step, Stream: c.Stream.String(), Offset: c.Offset, Data: append([]byte(nil), data[:n]...), At: time.Now().UTC()}
				select {
				case chunks <- e:
				case <-ctx.Done():
					return ctx.Err()
				}
				c.Offset, data = c.Offset+int64(n), data[n:]
			}
			return nil
		})
	}()
	v, err := l.collect(ctx, chunks, over)
	return v, err
}

// collect gathers entries until the output is over.
func (l *stepLog) collect(ctx context.Context, chunks <-chan run.LogEntry, over <-chan error) (*verdict, error) {
	timer := time.NewTimer(logDelay)
	timer.Stop()
	defer timer.Stop()
	for {
		select {
		case e := <-chunks:
			if l.bytes == 0 {
				timer.Reset(logDelay)
			}
			l.add(e)
			if l.bytes < logBytes {
				continue
			}
		case <-timer.C:
		case err := <-over:
			if v := l.flush(ctx); v != nil {
				return v, nil
			}
			return nil, err
		}
		if v := l.flush(ctx); v != nil {
			return v, nil
		}
	}
}

// add joins what the same stream said in one go.
func (l *stepLog) add(e run.LogEntry) {
	l.bytes += len(e.Data)
	if n := len(l.pending); n > 0 {
		last := &l.pending[n-1]
		if last.Stream == e.Stream && last.Offset+int64(len(last.Data)) == e.Offset && len(last.Data)+len(e.Data) <= logBytes {
			last.Data = append(last.Data, e.Data...)
			return
		}
	}
	l.pending = append(l.pending, e)
}

var errShort = errors.New("the record took less of the log than it was given")

func (l *stepLog) flush(ctx context.Context) *verdict {
	if len(l.pending) == 0 {
		return nil
	}
	last := l.pending[len(l.pending)-1]
	want := last.Offset + int64(len(last.Data))
	v := l.j.record(ctx, "record the log", func(ctx context.Context) error {
		end, err := l.j.w.deps.Store.AppendLog(ctx, l.j.hold.lease, l.pending)
		if err == nil && end < want {
			return errShort
		}
		if err == nil {
			l.end = want
		}
		return err
	})
	l.pending, l.bytes = nil, 0
	return v
}
