package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/agentdock/agentdock/api"
)

// LogOptions say which part of a log; the zero value is all of it, to the end of
// the job.
type LogOptions struct {
	// After is the Seq of the last output that is known already.
	After int64
	// NoFollow ends with what is there now.
	NoFollow bool
}

// Log goes through the log of a job: events of type "output", and as the last
// one "end", with how the job ended. With NoFollow, the last one of a job that
// has not ended is "interrupted".
//
// A connection that breaks is taken up again where it broke, so no output comes
// twice and none is missed. It ends after an error. A sequence that is over
// without an error and without "end" does not happen, but for NoFollow.
func (c *Client) Log(ctx context.Context, jobID string, o LogOptions) iter.Seq2[api.LogEvent, error] {
	return func(yield func(api.LogEvent, error) bool) {
		f := &follower{c: c, jobID: jobID, after: o.After, noFollow: o.NoFollow, yield: yield}
		if err := f.run(ctx); err != nil && !errors.Is(err, errEnough) {
			yield(api.LogEvent{}, err)
		}
	}
}

// OutputBytes are the bytes of a piece of output.
func OutputBytes(o *api.LogOutput) []byte {
	if len(o.Base64) > 0 {
		return o.Base64
	}
	return []byte(o.Text)
}

// CopyLog writes what a job's commands write to two writers, until the job has
// ended, and returns how.
func (c *Client) CopyLog(ctx context.Context, jobID string, stdout, stderr io.Writer) (*api.LogEnd, error) {
	for event, err := range c.Log(ctx, jobID, LogOptions{}) {
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
			if _, err := to.Write(OutputBytes(event.Output)); err != nil {
				return nil, err
			}
		}
	}
	return nil, ErrInterrupted
}

// Wait returns a job when it has ended.
func (c *Client) Wait(ctx context.Context, jobID string) (*api.Job, error) {
	// A log after its end has nothing but the end of the job.
	for event, err := range c.Log(ctx, jobID, LogOptions{After: math.MaxInt64}) {
		if err != nil {
			return nil, err
		}
		if event.End != nil {
			return c.Job(ctx, jobID)
		}
	}
	return nil, ErrInterrupted
}

var (
	errEnough = errors.New("the caller has enough")
	errAgain  = errors.New("the stream is to be opened again")
)

// follower keeps its place in a log over connections that break.
type follower struct {
	c        *Client
	jobID    string
	after    int64
	noFollow bool
	yield    func(api.LogEvent, error) bool
	// progress says that something came over this connection.
	progress bool
}

func (f *follower) run(ctx context.Context) error {
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
			return fmt.Errorf("cannot follow the log of job %s: %w: %w", f.jobID, ErrInterrupted, err)
		}
		if err := f.c.pause(ctx, wait, err); err != nil {
			return err
		}
		wait = min(2*wait, f.c.maxWait)
	}
}

// once reads one connection to its end. It returns nil when there is no more to
// come.
func (f *follower) once(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	query := url.Values{}
	if f.noFollow {
		query.Set("follow", "false")
	}
	header := http.Header{"Accept": {"application/x-ndjson"}}
	if f.after > 0 {
		header.Set("Last-Event-ID", strconv.FormatInt(f.after, 10))
	}
	res, err := f.c.open(ctx, call{method: http.MethodGet, path: jobPath(f.jobID) + "/log", query: query, header: header, once: true})
	if err != nil {
		return err
	}
	defer res.Body.Close()
	silent := time.AfterFunc(f.c.silence, cancel)
	defer silent.Stop()
	in := json.NewDecoder(res.Body)
	for {
		silent.Reset(f.c.silence)
		var event api.LogEvent
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

func (f *follower) take(event api.LogEvent) (last bool, _ error) {
	switch {
	case event.Output != nil:
		if event.Output.Seq <= f.after {
			return false, nil
		}
		f.after, f.progress = event.Output.Seq, true
		if !f.yield(event, nil) {
			return true, errEnough
		}
	case event.End != nil:
		if !f.yield(event, nil) {
			return true, errEnough
		}
		return true, nil
	case event.Interrupted != nil:
		return true, f.interrupted(event)
	}
	return false, nil
}

func (f *follower) interrupted(event api.LogEvent) error {
	if event.Interrupted.Reason == "not_following" {
		if !f.yield(event, nil) {
			return errEnough
		}
		return nil
	}
	return interruptedFor(event.Interrupted.Reason)
}
