package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strconv"
	"time"

	"github.com/agentdock/agentdock/api"
)

// RunExec runs a command and goes through what it writes: "started" with its id,
// then events of type "output", and as the last one "end", with how it ended. A
// connection that breaks is taken up again where it broke, and the command runs
// once. Leaving the loop, or ending ctx, ends nothing: see KillExec.
func (c *Client) RunExec(ctx context.Context, sandbox string, spec api.ExecSpec) iter.Seq2[api.ExecEvent, error] {
	spec = named(spec)
	return c.follow(ctx, &execFollower{c: c, sandbox: sandbox, exec: spec.ID, run: &spec})
}

// FollowExec goes through what a command writes, from an offset on, to its end,
// as RunExec does.
func (c *Client) FollowExec(ctx context.Context, sandbox, exec string, from int64) iter.Seq2[api.ExecEvent, error] {
	return c.follow(ctx, &execFollower{c: c, sandbox: sandbox, exec: exec, from: from})
}

// ExecOutputBytes are the bytes of a piece of output.
func ExecOutputBytes(o *api.ExecOutput) []byte {
	if len(o.Base64) > 0 {
		return o.Base64
	}
	return []byte(o.Text)
}

// CopyExec writes what comes out of a command to two writers, until it has
// ended, and returns how.
func CopyExec(events iter.Seq2[api.ExecEvent, error], stdout, stderr io.Writer) (*api.ExecResult, error) {
	for event, err := range events {
		switch {
		case err != nil:
			return nil, err
		case event.End != nil:
			return event.End, nil
		case event.Output != nil:
			to := stdout
			if event.Output.Stream == "stderr" {
				to = stderr
			}
			if _, err := to.Write(ExecOutputBytes(event.Output)); err != nil {
				return nil, err
			}
		}
	}
	return nil, ErrInterrupted
}

func (c *Client) follow(ctx context.Context, f *execFollower) iter.Seq2[api.ExecEvent, error] {
	return func(yield func(api.ExecEvent, error) bool) {
		f := *f // each loop begins anew
		f.yield = yield
		if err := f.all(ctx); err != nil && !errors.Is(err, errEnough) {
			yield(api.ExecEvent{}, err)
		}
	}
}

// execFollower keeps its place in a command's output over connections that
// break.
type execFollower struct {
	c             *Client
	sandbox, exec string
	// run is what to start, until that is known to have happened.
	run      *api.ExecSpec
	from     int64
	yield    func(api.ExecEvent, error) bool
	progress bool
}

func (f *execFollower) all(ctx context.Context) error {
	wait, failures := f.c.firstWait, 0
	for {
		f.progress = false
		err := f.once(ctx)
		switch {
		case err == nil, errors.Is(err, errEnough):
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case !errors.Is(err, errAgain) && !passing(err):
			return err
		}
		if f.progress {
			wait, failures = f.c.firstWait, 0
		}
		if failures++; failures >= f.c.attempts {
			return fmt.Errorf("cannot follow command %s of sandbox %s: %w: %w", f.exec, f.sandbox, ErrInterrupted, err)
		}
		if err := f.c.pause(ctx, wait, err); err != nil {
			return err
		}
		wait = min(2*wait, f.c.maxWait)
	}
}

// request starts the command, or asks for the rest of what it writes.
func (f *execFollower) request() call {
	header := http.Header{"Accept": {"application/x-ndjson"}}
	if f.run != nil {
		return call{method: http.MethodPost, path: sandboxPath(f.sandbox) + "/run", body: *f.run, header: header, once: true}
	}
	if f.from > 0 {
		header.Set("Last-Event-ID", strconv.FormatInt(f.from, 10))
	}
	return call{method: http.MethodGet, path: execPath(f.sandbox, f.exec) + "/output", header: header, once: true}
}

func (f *execFollower) once(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	res, err := f.c.open(ctx, f.request())
	if err != nil {
		return err
	}
	defer res.Body.Close()
	silent := time.AfterFunc(f.c.silence, cancel)
	defer silent.Stop()
	in := json.NewDecoder(res.Body)
	for {
		silent.Reset(f.c.silence)
		var event api.ExecEvent
		if err := in.Decode(&event); err != nil {
			return fmt.Errorf("%w: %w", errAgain, err) // without a last word: it was cut
		}
		silent.Stop() // the caller may take its time
		last, err := f.take(event)
		if last || err != nil {
			return err
		}
	}
}

func (f *execFollower) take(event api.ExecEvent) (last bool, _ error) {
	switch {
	case event.Started != nil:
		f.run, f.progress = nil, true
	case event.Output != nil:
		if event.Output.Next <= f.from {
			return false, nil
		}
		f.from, f.progress = event.Output.Next, true
	case event.End != nil:
		last = true
	case event.Interrupted != nil:
		return true, interruptedFor(event.Interrupted.Reason)
	default:
		return false, nil
	}
	if !f.yield(event, nil) {
		return true, errEnough
	}
	return last, nil
}

// interruptedFor says whether a stream that the service ended can be opened
// again.
func interruptedFor(reason string) error {
	if reason == "access_ended" {
		return &Error{Problem: api.Problem{
			Status: http.StatusUnauthorized, Code: api.ProblemCodeUnauthenticated, Title: http.StatusText(http.StatusUnauthorized),
			Detail: "the API key is not valid any more",
		}}
	}
	return fmt.Errorf("%w: %s", errAgain, reason)
}
