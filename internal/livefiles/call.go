package livefiles

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/guest/filewire"
	"github.com/agentdock/agentdock/internal/run"
)

// errUnasked says that the helper sent what it was not asked for.
var errUnasked = errors.New("it says what it was not asked")

const (
	// lingering is how long the helper may take to end after its last word.
	lingering = 2 * time.Second
	// clearing is how long a helper may take to be gone after it was killed.
	clearing = 15 * time.Second
)

// job is one run of the helper.
type job struct {
	what    string
	request filewire.Request
	// timeout of the helper; 0 is the sandbox's own limit.
	timeout time.Duration
	// input, if set, writes what the helper reads. It ends when ctx does.
	input func(ctx context.Context, x execenv.Exec) error
	// record takes what the helper says before its end.
	record func(filewire.Record) error
}

// call runs the helper to its end. When it returns, nothing is left of it, or it
// has been killed.
func (f *Files) call(ctx context.Context, j job) (filewire.End, error) {
	j.request.Budget = f.budget
	argument, err := j.request.Encode()
	if err != nil {
		return filewire.End{}, fault.Wrap(fault.Internal, err, "cannot %s", j.what)
	}
	x, err := f.sandbox.Exec(ctx, execenv.ExecSpec{
		Argv:  []string{filewire.Program, "files", argument},
		Stdin: j.input != nil, OutputBytes: f.budget, Timeout: j.timeout,
		// Few threads: the sandbox may be short of processes.
		Env: map[string]string{"GOMAXPROCS": "1"},
	})
	if err != nil {
		return filewire.End{}, err
	}
	r := &running{job: j, exec: x}
	return r.follow(ctx)
}

// running is a job whose helper has started.
type running struct {
	job
	exec execenv.Exec
}

func (r *running) follow(ctx context.Context) (filewire.End, error) {
	work, cancel := context.WithCancel(ctx)
	defer cancel()
	out, in := io.Pipe()
	followed := make(chan error, 1)
	go func() {
		err := r.exec.Output(work, 0, func(c execenv.Chunk) error {
			if c.Stream != execenv.Stdout {
				return nil
			}
			_, err := in.Write(c.Data)
			return err
		})
		_ = in.CloseWithError(err) // nil is the end of the stream
		followed <- err
	}()
	fed := make(chan error, 1)
	if r.input != nil {
		go func() { fed <- r.input(work, r.exec) }()
	} else {
		fed <- nil
	}

	end, err := r.read(out)
	// Nobody reads any more: what is still said is dropped.
	go func() { _, _ = io.Copy(io.Discard, out) }()
	if err != nil {
		r.stop(ctx)
	}
	lost := r.await(ctx, followed)
	cancel()
	var contents *contentsError
	switch inputErr := soon(fed); {
	case errors.As(inputErr, &contents):
		return end, fault.Wrap(fault.Unavailable, contents.cause, "cannot %s: the contents could not be read to their end", r.what)
	case err == nil && end.Code != filewire.OK:
		return end, r.failure(end)
	case err == nil && inputErr != nil:
		return end, disturbed(r.what, inputErr)
	case err == nil:
		return end, lost
	case ctx.Err() != nil:
		return end, fault.Wrap(fault.Unavailable, ctx.Err(), "cannot %s: it was given up", r.what)
	}
	return end, r.why(ctx, err)
}

// contentsError says that a caller's reader failed.
type contentsError struct{ cause error }

func (e *contentsError) Error() string { return e.cause.Error() }

// soon waits for what feeds the helper, unless it is stuck in a caller's reader.
func soon(fed <-chan error) error {
	timer := time.NewTimer(lingering)
	defer timer.Stop()
	select {
	case err := <-fed:
		return err
	case <-timer.C:
		return errors.New("it ended before it had read everything")
	}
}

// read takes records up to the end.
func (r *running) read(out io.Reader) (filewire.End, error) {
	records := filewire.NewReader(out)
	for {
		rec, err := records.Next()
		if err != nil {
			return filewire.End{}, err
		}
		if rec.End != nil {
			return *rec.End, nil
		}
		if err := r.record(rec); err != nil {
			return filewire.End{}, err
		}
	}
}

// await returns once the helper has ended. One that goes on after its last word,
// or whose caller has gone, is killed.
func (r *running) await(ctx context.Context, followed <-chan error) error {
	timer := time.NewTimer(lingering)
	defer timer.Stop()
	select {
	case err := <-followed:
		if err == nil {
			return nil
		}
	case <-timer.C:
	case <-ctx.Done():
	}
	r.kill(ctx)
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), clearing)
	defer cancel()
	if _, err := r.exec.Wait(late); err != nil {
		return err
	}
	return nil
}

func (r *running) kill(ctx context.Context) {
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), clearing)
	defer cancel()
	_ = r.exec.Kill(late) // a sandbox that has ended has killed it
}

// stop ends a helper that nobody listens to. One that has an input gets the
// chance to tidy up when that ends.
func (r *running) stop(ctx context.Context) {
	if r.input != nil {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), lingering)
		defer cancel()
		if r.exec.CloseStdin(late) == nil {
			if _, err := r.exec.Wait(late); err == nil {
				return
			}
		}
	}
	r.kill(ctx)
}

// failure is the error that the helper reports.
func (r *running) failure(end filewire.End) error {
	code := fault.Internal
	switch end.Code {
	case filewire.Invalid:
		code = fault.Invalid
	case filewire.NotFound:
		code = fault.NotFound
	case filewire.Conflict:
		code = fault.Conflict
	case filewire.Denied:
		code = fault.Denied
	case filewire.Exhausted:
		code = fault.Exhausted
	}
	return fault.New(code, "cannot %s: %s", r.what, end.Message)
}

// why finds out how a helper ended that did not say so, from what the execution
// service knows of it.
func (r *running) why(ctx context.Context, err error) error {
	var f *fault.Error
	if errors.As(err, &f) {
		return err // of the connection, or of whoever takes the answer
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), clearing)
	defer cancel()
	res, waitErr := r.exec.Wait(late)
	if waitErr != nil {
		return waitErr
	}
	switch o := res.Outcome; {
	case slices.Contains(o.LimitsHit, run.LimitPIDs):
		return fault.New(fault.Exhausted, "cannot %s: the sandbox has as many processes as it may have", r.what)
	case o.Kind == run.NotStarted && strings.Contains(o.Evidence, syscall.ENOENT.Error()):
		return fault.New(fault.Unsupported, "cannot %s: there is no helper in the sandbox (%s)", r.what, o.Evidence)
	case o.Kind == run.NotStarted: // no process to be had, or no memory for it
		return fault.New(fault.Exhausted, "cannot %s: the sandbox has no room for the helper (%s)", r.what, o.Evidence)
	case o.Kind == run.OutOfMemory, o.Kind == run.InfrastructureLost:
		return fault.New(fault.Gone, "cannot %s: the sandbox has ended", r.what)
	case o.Kind == run.WallClock:
		return fault.New(fault.Unavailable, "cannot %s: the time limit has passed", r.what)
	}
	return disturbed(r.what, err)
}

// disturbed is the error when an answer cannot be true, or is none.
func disturbed(what string, err error) error {
	return fault.Wrap(fault.Unavailable, err, "cannot %s: the helper in the sandbox was disturbed", what)
}

// IsHelper says whether a command is a request of this package, and none of whom
// the sandbox belongs to.
func IsHelper(argv []string) bool {
	return len(argv) == 3 && argv[0] == filewire.Program && argv[1] == "files"
}
