package client

import (
	"context"
	"io"
	"iter"
	"net/http"

	"github.com/agentdock/agentdock/api"
)

// RunExec runs a command and goes through what it writes: "started" with its id,
// then events of type "output", and as the last one "end", with how it ended. A
// connection that breaks is taken up again where it broke, and the command runs
// once. Leaving the loop, or ending ctx, ends nothing: see KillExec.
func (c *Client) RunExec(ctx context.Context, sandbox string, spec api.ExecSpec) iter.Seq2[api.ExecEvent, error] {
	spec = named(spec)
	return follow(ctx, c, func() place[api.ExecEvent] { return &execPlace{sandbox: sandbox, exec: spec.ID, run: &spec} })
}

// FollowExec goes through what a command writes, from an offset on, to its end,
// as RunExec does.
func (c *Client) FollowExec(ctx context.Context, sandbox, exec string, from int64) iter.Seq2[api.ExecEvent, error] {
	return follow(ctx, c, func() place[api.ExecEvent] { return &execPlace{sandbox: sandbox, exec: exec, from: from} })
}

// ExecOutputBytes are the bytes of a piece of output.
func ExecOutputBytes(o *api.ExecOutput) []byte { return piece{text: o.Text, bytes: o.Base64}.data() }

// CopyExec writes what comes out of a command to two writers, until it has
// ended, and returns how.
func CopyExec(events iter.Seq2[api.ExecEvent, error], stdout, stderr io.Writer) (*api.ExecResult, error) {
	return copyOutput(events, stdout, stderr, func(e api.ExecEvent) (*piece, *api.ExecResult) {
		if e.Output == nil {
			return nil, e.End
		}
		return &piece{stream: e.Output.Stream, text: e.Output.Text, bytes: e.Output.Base64}, nil
	})
}

// execPlace is a place in a command's output.
type execPlace struct {
	sandbox, exec string
	// run is what to start, until that is known to have happened.
	run  *api.ExecSpec
	from int64
}

func (p *execPlace) what() string { return "command " + p.exec + " of sandbox " + p.sandbox }

// request starts the command, or asks for the rest of what it writes.
func (p *execPlace) request() call {
	if p.run != nil {
		return call{method: http.MethodPost, path: sandboxPath(p.sandbox) + "/run", body: *p.run, header: ndjson(0), once: true}
	}
	return call{method: http.MethodGet, path: execPath(p.sandbox, p.exec) + "/output", header: ndjson(p.from), once: true}
}

func (p *execPlace) take(event api.ExecEvent) (verdict, error) {
	switch {
	case event.Started != nil:
		p.run = nil
		return news, nil
	case event.Output != nil:
		if event.Output.Next <= p.from {
			return passed, nil
		}
		p.from = event.Output.Next
		return news, nil
	case event.End != nil:
		return last, nil
	case event.Interrupted != nil:
		return interrupted(event.Interrupted)
	}
	return passed, nil
}
