// Package gitwire fetches from a git server over HTTPS, protocol version 2
// (gitprotocol-v2(5)): as much of it as it takes to get one commit, shallow or
// whole, as a pack. It stands where other systems start git: see
// docs/adr/0015.
//
// A server is hostile until it has been parsed here. Lines, refs and answers
// are bounded in size and number; the pack is passed on as opaque bytes, which
// nothing on this side of the sandbox interprets.
package gitwire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/agentdock/agentdock/internal/checkout/egress"
	"github.com/agentdock/agentdock/internal/checkout/reason"
)

// Remote is a repository on a server.
type Remote struct {
	// URL is the repository's, HTTPS and without credentials.
	URL *url.URL
	// Authorize, if set, adds credentials to a request to that URL's host.
	Authorize func(*http.Request)
	// Transport makes the connections; its policy is the caller's.
	Transport http.RoundTripper
	// Agent names us to the server.
	Agent string
}

// Session is a remote that has said what it can do.
type Session struct {
	remote Remote
	client *http.Client
	base   string
	// format is the hash function of the repository: "sha1" or "sha256".
	format  string
	shallow bool
}

// maxRedirects within the server.
const maxRedirects = 3

// maxAnswer bounds capabilities and refs: of these there are few, because only
// those that a name can mean are asked for.
const maxAnswer = 1 << 20

const protocol = "version=2"

// Open asks the server what it can do.
func Open(ctx context.Context, remote Remote) (*Session, error) {
	s := &Session{remote: remote, base: strings.TrimSuffix(remote.URL.String(), "/"), format: "sha1"}
	s.client = &http.Client{Transport: remote.Transport, CheckRedirect: s.checkRedirect}
	resp, err := s.do(ctx, http.MethodGet, "/info/refs?service=git-upload-pack", "", nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	// A repository that was renamed is elsewhere on the same server.
	moved := *resp.Request.URL
	moved.RawQuery = ""
	base, ok := strings.CutSuffix(moved.String(), "/info/refs")
	if !ok {
		return nil, reason.New(reason.Malformed, "%s sends to a page that is no repository", s.host())
	}
	s.base = base
	if err := s.expect(resp, "application/x-git-upload-pack-advertisement"); err != nil {
		return nil, err
	}
	if err := s.readCapabilities(newLines(io.LimitReader(resp.Body, maxAnswer))); err != nil {
		return nil, err
	}
	return s, nil
}

// Format is the repository's hash function: "sha1" or "sha256".
func (s *Session) Format() string { return s.format }

func (s *Session) host() string { return s.remote.URL.Host }

// errRedirect stands for one that is not followed.
type errRedirect struct {
	code reason.Code
	what string
}

func (e errRedirect) Error() string { return e.what }

// checkRedirect keeps requests, and with them the credentials, on the server
// that the caller named. There, the first request, which has no body, may be
// sent on a few times: so servers lead from a repository's old name to its new
// one. A token opens one repository, whatever the name, so it reads nothing more
// by that.
func (s *Session) checkRedirect(req *http.Request, via []*http.Request) error {
	to, err := egress.Authority(req.URL)
	here, hereErr := egress.Authority(s.remote.URL)
	moved := func(how string) error {
		return errRedirect{reason.Moved, "a redirect to another URL of its own " + how}
	}
	switch {
	case err != nil || hereErr != nil || to != here:
		return errRedirect{reason.HostRefused, fmt.Sprintf("a redirect to %s://%s", reason.Clean(req.URL.Scheme), reason.Clean(req.URL.Host))}
	case req.URL.Scheme != "https":
		return moved("that is not HTTPS")
	case req.URL.User != nil:
		return moved("with credentials in it")
	case via[0].Method != http.MethodGet:
		return moved("in the middle of a fetch")
	case len(via) > maxRedirects:
		return moved(fmt.Sprintf("for the %dth time", len(via)))
	}
	// In another spelling, the server would be taken for another one and given
	// no credentials.
	req.URL.Host = s.remote.URL.Host
	if s.remote.Authorize != nil {
		s.remote.Authorize(req)
	}
	return nil
}

func (s *Session) do(ctx context.Context, method, path, contentType string, body []byte) (*http.Response, error) {
	var send io.Reader
	if body != nil {
		send = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.base+path, send)
	if err != nil {
		return nil, reason.Wrap(reason.BadSource, err, "the URL is malformed")
	}
	req.Header.Set("User-Agent", s.remote.Agent)
	req.Header.Set("Git-Protocol", protocol)
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if s.remote.Authorize != nil {
		s.remote.Authorize(req)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, s.failure(ctx, err)
	}
	return resp, nil
}

// failure says why there is no answer, or not all of one.
func (s *Session) failure(ctx context.Context, err error) error {
	var redirect errRedirect
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case reason.Of(err) != "":
		return err
	case errors.As(err, &redirect):
		return reason.New(redirect.code, "%s answers with %v, which is not followed; name the repository by its own URL", s.host(), redirect)
	case errors.Is(err, egress.ErrRefused):
		return reason.New(reason.HostRefused, "%s is at an address that is private, local or reserved; the operator can allow its network", s.host())
	case errors.Is(err, errMalformed):
		return reason.Wrap(reason.Malformed, err, "%s does not answer as a git server does", s.host())
	}
	return reason.Wrap(reason.Unavailable, err, "cannot reach %s", s.host())
}

// expect judges the status and type of an answer.
func (s *Session) expect(resp *http.Response, contentType string) error {
	switch code := resp.StatusCode; {
	case code == http.StatusOK:
	case code == http.StatusUnauthorized && s.remote.Authorize != nil:
		return reason.New(reason.TokenRefused, "%s does not accept the token that was made for the repository (status 401): it was revoked, or the App was suspended or removed meanwhile", s.host())
	case code == http.StatusUnauthorized, code == http.StatusNotFound, code == http.StatusGone:
		if s.remote.Authorize != nil {
			return reason.New(reason.NotFound, "%s has no such repository (status %d)", s.host(), code)
		}
		return reason.New(reason.NotFound, "%s has no such public repository (status %d); a private one takes a GitHub App that is installed there and a grant to use it", s.host(), code)
	case code == http.StatusForbidden:
		return reason.New(reason.PermissionDenied, "%s denies access to the repository (status 403)", s.host())
	case code == http.StatusTooManyRequests:
		return reason.New(reason.RateLimited, "%s asks for a pause%s", s.host(), retryAfter(resp))
	case code >= 500:
		return reason.New(reason.Unavailable, "%s fails (status %d)", s.host(), code)
	default:
		return reason.New(reason.Malformed, "%s does not answer as a git server does (status %d)", s.host(), code)
	}
	if got, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); got != contentType {
		return reason.New(reason.Malformed, "what %s answers is no git repository, but %q", s.host(), reason.Clean(got))
	}
	return nil
}

func retryAfter(resp *http.Response) string {
	if after := resp.Header.Get("Retry-After"); after != "" {
		return " (retry after " + reason.Clean(after) + ")"
	}
	return ""
}

// readCapabilities reads the first answer. Some servers say what service it is
// before they say which version they speak.
func (s *Session) readCapabilities(in *lines) error {
	bad := func(err error) error { return s.failure(context.Background(), err) }
	kind, line, err := in.next()
	if err == nil && strings.HasPrefix(string(line), "# service=") {
		if kind, _, err = in.next(); err == nil && kind == flush {
			kind, line, err = in.next()
		}
	}
	if err != nil {
		return bad(err)
	}
	if kind != data || text(line) != "version 2" {
		return reason.New(reason.Malformed, "%s does not speak version 2 of git's protocol", s.host())
	}
	var fetches, lists bool
	for {
		kind, line, err := in.next()
		if err != nil {
			return bad(err)
		}
		if kind == flush {
			break
		}
		name, value, _ := strings.Cut(text(line), "=")
		switch name {
		case "ls-refs":
			lists = true
		case "fetch":
			fetches = true
			s.shallow = strings.Contains(" "+value+" ", " shallow ")
		case "object-format":
			s.format = value
		}
	}
	if !fetches || !lists {
		return reason.New(reason.Malformed, "%s does not let repositories be fetched", s.host())
	}
	if s.format != "sha1" && s.format != "sha256" {
		return reason.New(reason.Malformed, "the repository uses a hash function that is not known here")
	}
	return nil
}

// text is a line without the newline that may end it.
func text(line []byte) string { return strings.TrimSuffix(string(line), "\n") }

// command sends one and returns its answer, which the caller closes.
func (s *Session) command(ctx context.Context, name string, args func(*request)) (io.ReadCloser, error) {
	var body request
	body.line("command=%s", name)
	body.line("agent=%s", s.remote.Agent)
	body.line("object-format=%s", s.format)
	body.delim()
	args(&body)
	body.flush()
	resp, err := s.do(ctx, http.MethodPost, "/git-upload-pack", "application/x-git-upload-pack-request", body)
	if err != nil {
		return nil, err
	}
	if err := s.expect(resp, "application/x-git-upload-pack-result"); err != nil {
		resp.Body.Close()
		return nil, err
	}
	return resp.Body, nil
}

// remoteError is what a server says instead of an answer.
func remoteError(line string) (string, bool) {
	message, ok := strings.CutPrefix(line, "ERR ")
	return reason.Clean(message), ok
}
