package client

import (
	"context"
	"crypto/rand"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/agentdock/agentdock/api"
)

// CreateSandbox makes a live sandbox, in which commands can run when it returns.
// Each call has an idempotency key of its own, so that it can be repeated if its
// answer is lost.
func (c *Client) CreateSandbox(ctx context.Context, spec api.SandboxSpec) (*api.Sandbox, error) {
	return c.CreateSandboxNamed(ctx, spec, rand.Text())
}

// CreateSandboxNamed is CreateSandbox with a key that names the request: the same
// key brings back the same sandbox, as it is by then, also from another process.
func (c *Client) CreateSandboxNamed(ctx context.Context, spec api.SandboxSpec, idempotencyKey string) (*api.Sandbox, error) {
	var box api.Sandbox
	err := c.do(ctx, call{
		method: http.MethodPost, path: "/v1/sandboxes", body: spec, header: http.Header{"Idempotency-Key": {idempotencyKey}},
	}, &box)
	return orNil(&box, err)
}

// Sandbox returns a sandbox as it stands.
func (c *Client) Sandbox(ctx context.Context, id string) (*api.Sandbox, error) {
	var box api.Sandbox
	err := c.do(ctx, call{method: http.MethodGet, path: sandboxPath(id)}, &box)
	return orNil(&box, err)
}

// KillSandbox ends a sandbox and everything in it.
func (c *Client) KillSandbox(ctx context.Context, id string) (*api.Sandbox, error) {
	var box api.Sandbox
	err := c.do(ctx, call{method: http.MethodDelete, path: sandboxPath(id)}, &box)
	return orNil(&box, err)
}

// ExtendSandbox makes the time of a sandbox end so long from now. With atLeast
// it never makes it end sooner than before.
func (c *Client) ExtendSandbox(ctx context.Context, id string, ttl time.Duration, atLeast bool) (*api.Sandbox, error) {
	var box api.Sandbox
	err := c.do(ctx, call{
		method: http.MethodPost, path: sandboxPath(id) + "/extend", body: api.SandboxExtension{TTLMS: ttl.Milliseconds(), AtLeast: atLeast},
	}, &box)
	return orNil(&box, err)
}

// PauseSandbox puts a sandbox away, with its files and commands, until it is resumed
// or its deadline comes.
func (c *Client) PauseSandbox(ctx context.Context, id string) (*api.Sandbox, error) {
	var box api.Sandbox
	err := c.do(ctx, call{method: http.MethodPost, path: sandboxPath(id) + "/pause"}, &box)
	return orNil(&box, err)
}

// ResumeSandbox goes on with a sandbox that is paused, whose time then ends so long
// from now.
func (c *Client) ResumeSandbox(ctx context.Context, id string, ttl time.Duration) (*api.Sandbox, error) {
	var box api.Sandbox
	err := c.do(ctx, call{
		method: http.MethodPost, path: sandboxPath(id) + "/resume", body: api.SandboxExtension{TTLMS: ttl.Milliseconds()},
	}, &box)
	return orNil(&box, err)
}

// SandboxMetrics returns what a sandbox has used, over time.
func (c *Client) SandboxMetrics(ctx context.Context, id string) (*api.SandboxMetrics, error) {
	var m api.SandboxMetrics
	err := c.do(ctx, call{method: http.MethodGet, path: sandboxPath(id) + "/metrics"}, &m)
	return orNil(&m, err)
}

// SandboxQuery says which sandboxes; its zero value is all of them.
type SandboxQuery struct {
	States []api.SandboxState
	Labels map[string]string
	// PageSize is how many come with one request; 0 leaves it to the service.
	PageSize int
	// Cursor is the Next of the page before.
	Cursor string
}

// SandboxPage returns one page of sandboxes, newest first.
func (c *Client) SandboxPage(ctx context.Context, q SandboxQuery) (*api.SandboxList, error) {
	var list api.SandboxList
	err := c.do(ctx, call{method: http.MethodGet, path: "/v1/sandboxes", query: selection(q.States, q.Labels, q.PageSize, q.Cursor)}, &list)
	return orNil(&list, err)
}

// Sandboxes goes through all sandboxes, newest first, and fetches pages as it
// needs them. It ends after an error.
func (c *Client) Sandboxes(ctx context.Context, q SandboxQuery) iter.Seq2[api.Sandbox, error] {
	return pages(q.Cursor, func(cursor string) ([]api.Sandbox, string, error) {
		q := q
		q.Cursor = cursor
		page, err := c.SandboxPage(ctx, q)
		if err != nil {
			return nil, "", err
		}
		return page.Sandboxes, page.Next, nil
	})
}

func sandboxPath(id string) string { return "/v1/sandboxes/" + url.PathEscape(id) }

func execPath(sandbox, exec string) string {
	return sandboxPath(sandbox) + "/execs/" + url.PathEscape(exec)
}
