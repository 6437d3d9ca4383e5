package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"
)

// maxAnswer bounds an answer that is kept in memory.
const maxAnswer = 64 << 20

// call is one request that may be sent more than once.
type call struct {
	// path has ids escaped: one that holds a slash leads nowhere else.
	method, path string
	query        url.Values
	header       http.Header
	// body is JSON; stream is a body that can be sent once.
	body   any
	stream io.Reader
	// once says that it must not be repeated.
	once bool
}

// do sends a call until it is answered, and reads the answer into a value.
func (c *Client) do(ctx context.Context, k call, into any) error {
	res, err := c.open(ctx, k)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if into == nil {
		return nil
	}
	text, err := readAll(res)
	if err != nil {
		return fmt.Errorf("cannot read the answer to %s %s: %w", k.method, k.path, err)
	}
	if raw, ok := into.(*[]byte); ok {
		*raw = text
		return nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("cannot read the answer to %s %s: %w", k.method, k.path, err)
	}
	return nil
}

func readAll(res *http.Response) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err == nil && len(text) > maxAnswer {
		err = fmt.Errorf("it is larger than %d bytes", maxAnswer)
	}
	return text, err
}

// open sends a call until it is answered, and returns the answer.
func (c *Client) open(ctx context.Context, k call) (*http.Response, error) {
	var body []byte
	if k.body != nil {
		var err error
		if body, err = json.Marshal(k.body); err != nil {
			return nil, fmt.Errorf("cannot write the request: %w", err)
		}
	}
	wait := c.firstWait
	for attempt := 1; ; attempt++ {
		res, err := c.send(ctx, k, body)
		if err == nil {
			return res, nil
		}
		if k.once || attempt >= c.attempts || !passing(err) || ctx.Err() != nil {
			return nil, err
		}
		if err := c.pause(ctx, wait, err); err != nil {
			return nil, err
		}
		wait = min(2*wait, c.maxWait)
	}
}

// pause waits before the next attempt: as long as the service said, or for a
// time that differs between callers, so that they do not all come back at once.
func (c *Client) pause(ctx context.Context, wait time.Duration, because error) error {
	wait = wait/2 + rand.N(wait/2+1)
	var e *Error
	if errors.As(because, &e) && e.RetryAfter > 0 {
		wait = e.RetryAfter
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait {
		return because // it would only be told the same later
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return errors.Join(ctx.Err(), because)
	}
}

func (c *Client) send(ctx context.Context, k call, body []byte) (*http.Response, error) {
	address := c.base.String() + k.path
	if len(k.query) > 0 {
		address += "?" + k.query.Encode()
	}
	var reader io.Reader
	switch {
	case k.stream != nil:
		reader = k.stream
	case body != nil:
		reader = bytes.NewReader(body)
	}
	r, err := http.NewRequestWithContext(ctx, k.method, address, reader)
	if err != nil {
		return nil, fmt.Errorf("cannot make the request: %w", err)
	}
	for name, values := range k.header {
		r.Header[name] = values
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		r.Header.Set("Authorization", "Bearer "+c.key)
	}
	r.Header.Set("User-Agent", c.agent)
	res, err := c.http.Do(r)
	if err != nil {
		return nil, fmt.Errorf("cannot reach the service: %w", err)
	}
	if res.StatusCode >= 200 && res.StatusCode < 300 {
		return res, nil
	}
	defer res.Body.Close()
	return nil, problem(res)
}
