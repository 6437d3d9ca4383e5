// Package client talks to an AgentDock service: it submits jobs, follows their
// logs, fetches what they leave, and drives live sandboxes. Messages are those of package api, which
// are generated from the contract of the service.
//
//	c, err := client.New("https://agentdock.example", client.WithAPIKey(key))
//	…
//	job, err := c.CreateJob(ctx, api.JobSpec{
//		Source:   api.Source{Kind: "fixture"},
//		Commands: []api.Command{{Argv: []string{"python3", "-m", "unittest"}}},
//	}, "")
//	…
//	end, err := c.CopyLog(ctx, job.ID, os.Stdout, os.Stderr)
//
// Every method may be called concurrently. Calls that can be repeated without
// harm are repeated when the service cannot be reached or says to come back;
// making a job is one of them, because each call carries an idempotency key. A
// context bounds a call with all its repetitions.
//
// An error of the service is an *Error with a stable code. That a program in a
// sandbox fails is no error: it is in the job's outcome.
package client

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

// Client calls one service.
type Client struct {
	base *url.URL
	key  string
	http *http.Client

	attempts  int
	firstWait time.Duration
	maxWait   time.Duration
	// silence is how long a stream may be without any sign of life.
	silence time.Duration
	agent   string
	plain   bool
}

// Option changes a client that New makes.
type Option func(*Client)

// WithAPIKey sends an API key with every request, to the one service only.
func WithAPIKey(key string) Option { return func(c *Client) { c.key = key } }

// WithHTTPClient uses another HTTP client. Its Timeout must be 0, or it will cut
// log streams.
func WithHTTPClient(h *http.Client) Option { return func(c *Client) { c.http = h } }

// WithAttempts is how often a call is tried before its error is returned; 1 does
// not repeat.
func WithAttempts(n int) Option { return func(c *Client) { c.attempts = max(1, n) } }

// WithBackoff sets the first pause between two attempts, which doubles from one
// to the next, and the longest.
func WithBackoff(first, longest time.Duration) Option {
	return func(c *Client) { c.firstWait, c.maxWait = first, longest }
}

// WithSilence sets how long a log stream may be without any sign of life, of
// which the service sends one every 15 seconds, before it is opened again.
func WithSilence(d time.Duration) Option { return func(c *Client) { c.silence = d } }

// WithUserAgent names the program that calls.
func WithUserAgent(name string) Option { return func(c *Client) { c.agent = name } }

// WithPlainHTTP allows an API key to go over a network without encryption, where
// something else protects it.
func WithPlainHTTP() Option { return func(c *Client) { c.plain = true } }

// New makes a client of the service at a URL such as http://127.0.0.1:7300.
func New(baseURL string, options ...Option) (*Client, error) {
	base, err := url.Parse(strings.TrimSuffix(baseURL, "/"))
	if err != nil {
		return nil, errors.New("cannot use the address of the service: it is no URL; give one like http://127.0.0.1:7300")
	}
	if base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.User != nil || base.RawQuery != "" || base.Fragment != "" {
		return nil, fmt.Errorf("cannot use %q as the address of the service; give one like https://host", base.Redacted())
	}
	c := &Client{
		base: base, attempts: 5, firstWait: 200 * time.Millisecond, maxWait: 10 * time.Second, silence: time.Minute, agent: "agentdock-client",
	}
	for _, o := range options {
		o(c)
	}
	if c.key != "" && base.Scheme == "http" && !c.plain && !isLoopback(base.Hostname()) {
		return nil, fmt.Errorf("cannot send an API key to %s without encryption; use https, or WithPlainHTTP where something else protects it", base.Host)
	}
	c.http = c.guarded()
	return c, nil
}

// guarded is the HTTP client to use: one that never takes the key elsewhere. The
// standard one would take it along to subdomains.
func (c *Client) guarded() *http.Client {
	h := http.Client{}
	if c.http != nil {
		h = *c.http
	} else {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.ResponseHeaderTimeout = 2 * time.Minute
		h.Transport = transport
	}
	inner := h.CheckRedirect
	h.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		if r.URL.Scheme != c.base.Scheme || r.URL.Host != c.base.Host {
			return errRedirected
		}
		if inner != nil {
			return inner(r, via)
		}
		if len(via) >= 5 {
			return errors.New("too many redirects")
		}
		return nil
	}
	return &h
}

var errRedirected = errors.New("the service sends requests on to another host, and the API key must not go there")

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// CloseIdleConnections closes connections that are open and not in use.
func (c *Client) CloseIdleConnections() { c.http.CloseIdleConnections() }
