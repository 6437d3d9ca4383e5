package client

import (
	"context"
	"crypto/rand"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/agentdock/agentdock/api"
)

// named gives a command an id, by which it can be started again without running
// twice.
func named(spec api.ExecSpec) api.ExecSpec {
	if spec.ID == "" {
		spec.ID = "c-" + strings.ToLower(rand.Text())
	}
	return spec
}

// StartExec starts a command and returns its id. It can be repeated: a command
// with the id of the spec is started once.
func (c *Client) StartExec(ctx context.Context, sandbox string, spec api.ExecSpec) (string, error) {
	var started api.ExecStarted
	err := c.do(ctx, call{method: http.MethodPost, path: sandboxPath(sandbox) + "/execs", body: named(spec)}, &started)
	return started.ID, err
}

// Exec returns a command as it stands.
func (c *Client) Exec(ctx context.Context, sandbox, exec string) (*api.Exec, error) {
	var x api.Exec
	err := c.do(ctx, call{method: http.MethodGet, path: execPath(sandbox, exec)}, &x)
	return orNil(&x, err)
}

// Execs lists the commands that run and those that ended last, oldest first.
func (c *Client) Execs(ctx context.Context, sandbox string) ([]api.Exec, error) {
	var list api.ExecList
	err := c.do(ctx, call{method: http.MethodGet, path: sandboxPath(sandbox) + "/execs"}, &list)
	return list.Execs, err
}

// KillExec kills a command and everything it started.
func (c *Client) KillExec(ctx context.Context, sandbox, exec string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: execPath(sandbox, exec)}, nil)
}

// SignalExec sends a signal, such as SIGINT, to a command's first process.
func (c *Client) SignalExec(ctx context.Context, sandbox, exec, signal string) error {
	return c.do(ctx, call{
		method: http.MethodPost, path: execPath(sandbox, exec) + "/signal", body: api.ExecSignal{Signal: signal}, once: true,
	}, nil)
}

// ResizeExec changes the size of a command's terminal.
func (c *Client) ResizeExec(ctx context.Context, sandbox, exec string, size api.TerminalSize) error {
	return c.do(ctx, call{method: http.MethodPost, path: execPath(sandbox, exec) + "/resize", body: size}, nil)
}

// WriteStdin writes to a command, and closes its input afterwards if that is
// wanted. It is sent once; it waits for the program to read.
func (c *Client) WriteStdin(ctx context.Context, sandbox, exec string, r io.Reader, closeAfter bool) error {
	query := url.Values{}
	if closeAfter {
		query.Set("close", "true")
	}
	return c.do(ctx, call{
		method: http.MethodPost, path: execPath(sandbox, exec) + "/stdin", query: query, stream: r, once: true,
		header: http.Header{"Content-Type": {"application/octet-stream"}},
	}, nil)
}
