package client

import (
	"context"
	"io"
	"iter"
	"math"
	"net/http"
	"net/url"

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
	return follow(ctx, c, func() place[api.LogEvent] { return &logPlace{jobID: jobID, LogOptions: o} })
}

// OutputBytes are the bytes of a piece of output.
func OutputBytes(o *api.LogOutput) []byte { return piece{text: o.Text, bytes: o.Base64}.data() }

// CopyLog writes what a job's commands write to two writers, until the job has
// ended, and returns how.
func (c *Client) CopyLog(ctx context.Context, jobID string, stdout, stderr io.Writer) (*api.LogEnd, error) {
	return copyOutput(c.Log(ctx, jobID, LogOptions{}), stdout, stderr, func(e api.LogEvent) (*piece, *api.LogEnd) {
		if e.Output == nil {
			return nil, e.End
		}
		return &piece{stream: e.Output.Stream, text: e.Output.Text, bytes: e.Output.Base64}, nil
	})
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

// logPlace is a place in a job's log.
type logPlace struct {
	jobID string
	LogOptions
}

func (p *logPlace) what() string { return "the log of job " + p.jobID }

func (p *logPlace) request() call {
	query := url.Values{}
	if p.NoFollow {
		query.Set("follow", "false")
	}
	return call{method: http.MethodGet, path: jobPath(p.jobID) + "/log", query: query, header: ndjson(p.After), once: true}
}

func (p *logPlace) take(event api.LogEvent) (verdict, error) {
	switch {
	case event.Output != nil:
		if event.Output.Seq <= p.After {
			return passed, nil
		}
		p.After = event.Output.Seq
		return news, nil
	case event.End != nil:
		return last, nil
	case event.Interrupted != nil:
		return interrupted(event.Interrupted)
	}
	return passed, nil
}
