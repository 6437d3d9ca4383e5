package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/agentdock/agentdock/api"
)

// Paths are absolute in the sandbox, or relative to its workspace. What a sandbox
// says of its files is its own word: names and contents are hostile.

func filesPath(sandbox string) string { return sandboxPath(sandbox) + "/files" }

// StatFile says what is at a path.
func (c *Client) StatFile(ctx context.Context, sandbox, path string) (*api.FileEntry, error) {
	var e api.FileEntry
	err := c.do(ctx, call{method: http.MethodGet, path: filesPath(sandbox) + "/stat", query: url.Values{"path": {path}}}, &e)
	return orNil(&e, err)
}

// ListFiles lists a directory, down to a depth; 1 is its own entries.
func (c *Client) ListFiles(ctx context.Context, sandbox, path string, depth int) ([]api.FileEntry, error) {
	var list api.FileList
	query := url.Values{"path": {path}}
	if depth > 0 {
		query.Set("depth", strconv.Itoa(depth))
	}
	err := c.do(ctx, call{method: http.MethodGet, path: filesPath(sandbox), query: query}, &list)
	return list.Entries, err
}

// MakeDirectory makes a directory and its parents.
func (c *Client) MakeDirectory(ctx context.Context, sandbox, path string) (*api.FileEntry, error) {
	var e api.FileEntry
	err := c.do(ctx, call{method: http.MethodPost, path: filesPath(sandbox) + "/directories", body: api.FilePlace{Path: path}, once: true}, &e)
	return orNil(&e, err)
}

// MoveFile gives a file or a directory another name.
func (c *Client) MoveFile(ctx context.Context, sandbox, from, to string) (*api.FileEntry, error) {
	var e api.FileEntry
	err := c.do(ctx, call{method: http.MethodPost, path: filesPath(sandbox) + "/move", body: api.FileMove{From: from, To: to}, once: true}, &e)
	return orNil(&e, err)
}

// RemoveFile removes a file, or a directory and everything in it.
func (c *Client) RemoveFile(ctx context.Context, sandbox, path string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: filesPath(sandbox), query: url.Values{"path": {path}}, once: true}, nil)
}

// WriteFile makes or replaces a regular file. It is sent once.
func (c *Client) WriteFile(ctx context.Context, sandbox, path string, r io.Reader) (*api.FileEntry, error) {
	var e api.FileEntry
	err := c.do(ctx, call{
		method: http.MethodPut, path: filesPath(sandbox) + "/content", query: url.Values{"path": {path}}, stream: r, once: true,
		header: http.Header{"Content-Type": {"application/octet-stream"}},
	}, &e)
	return orNil(&e, err)
}

// ReadFile writes the contents of a regular file. When it returns an error, what
// was written is not to be used.
func (c *Client) ReadFile(ctx context.Context, sandbox, path string, w io.Writer) error {
	return c.copyTo(ctx, w, fmt.Sprintf("read %q", path), call{
		method: http.MethodGet, path: filesPath(sandbox) + "/content", query: url.Values{"path": {path}},
	})
}

// PutArchive unpacks a tar below a directory of the workspace. It is sent once.
func (c *Client) PutArchive(ctx context.Context, sandbox, dir string, tar io.Reader) error {
	return c.do(ctx, call{
		method: http.MethodPut, path: sandboxPath(sandbox) + "/archive", query: url.Values{"dir": {dir}}, stream: tar, once: true,
		header: http.Header{"Content-Type": {"application/x-tar"}},
	}, nil)
}

// GetArchive writes files of the workspace as a tar: those below a directory
// that match a pattern, or all of them.
func (c *Client) GetArchive(ctx context.Context, sandbox, dir string, patterns []string, w io.Writer) error {
	query := url.Values{"dir": {dir}, "pattern": patterns}
	return c.copyTo(ctx, w, "download the files", call{method: http.MethodGet, path: sandboxPath(sandbox) + "/archive", query: query})
}

func (c *Client) copyTo(ctx context.Context, w io.Writer, what string, k call) error {
	res, err := c.open(ctx, k)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(w, res.Body); err != nil {
		return fmt.Errorf("cannot %s: %w: %w", what, ErrInterrupted, err)
	}
	return nil
}

// WatchFiles goes through what happens in a directory; "ready" says that
// everything from then on is seen. It goes on until the loop is left or ctx
// ends, and ends after an error: what happened meanwhile nobody has seen.
func (c *Client) WatchFiles(ctx context.Context, sandbox, path string, recursive bool) iter.Seq2[api.WatchEvent, error] {
	return func(yield func(api.WatchEvent, error) bool) {
		query := url.Values{"path": {path}}
		if recursive {
			query.Set("recursive", "true")
		}
		err := c.watch(ctx, call{
			method: http.MethodGet, path: filesPath(sandbox) + "/watch", query: query, header: http.Header{"Accept": {"application/x-ndjson"}},
		}, yield)
		if err != nil && !errors.Is(err, errEnough) {
			yield(api.WatchEvent{}, err)
		}
	}
}

func (c *Client) watch(ctx context.Context, k call, yield func(api.WatchEvent, error) bool) error {
	res, err := c.open(ctx, k)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	for in := json.NewDecoder(res.Body); ; {
		var event api.WatchEvent
		if err := in.Decode(&event); err != nil {
			return fmt.Errorf("cannot watch the directory any more: %w: %w", ErrInterrupted, err)
		}
		switch {
		case event.Interrupted != nil:
			return fmt.Errorf("cannot watch the directory any more: %w: %s", ErrInterrupted, event.Interrupted.Reason)
		case event.Type == "heartbeat":
		case !yield(event, nil):
			return errEnough
		}
	}
}
