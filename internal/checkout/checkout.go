// Package checkout gets a git repository into a sandbox (REQUIREMENTS B5, C4).
//
// The pack with the commit is fetched here, on the worker's side of the trust
// line, with a GitHub App's token where there is one. It lies in a file without
// a name, as bytes that nothing here looks into. The token ends with the fetch.
// A repository that consists of that pack and a handful of small files, all
// named by us, then goes into the sandbox through the port's archive call, and
// the git of the root image unpacks and checks it out in there, as the
// unprivileged user and within the sandbox's limits. No git runs on this side,
// and no name from a repository is ever a path on it: docs/adr/0015.
//
// A repository that cannot be had is a reason.Error. Any other error says that
// the sandbox or this machine failed, or that the context ended.
package checkout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/agentdock/agentdock/internal/checkout/egress"
	"github.com/agentdock/agentdock/internal/checkout/githubapp"
	"github.com/agentdock/agentdock/internal/checkout/gitwire"
	"github.com/agentdock/agentdock/internal/checkout/reason"
	"github.com/agentdock/agentdock/internal/execenv"
)

const (
	defaultMaxBytes = int64(1) << 30
	defaultTimeout  = 5 * time.Minute
	// revokeTime is how long a token's end may take, whatever has happened.
	revokeTime = 15 * time.Second
)

// Config says how repositories are fetched.
type Config struct {
	// App reads private repositories; nil leaves the public ones.
	App *githubapp.App
	// Egress says which servers may be connected to.
	Egress egress.Policy
	// Dir is where packs lie while they are on their way.
	Dir string
	// MaxBytes bounds a pack, Timeout a checkout from first to last; 0 is 1 GiB
	// and 5 minutes.
	MaxBytes int64
	Timeout  time.Duration
	// Agent names us to servers.
	Agent string
}

// Checkout fetches repositories. It may be used concurrently.
type Checkout struct{ cfg Config }

// New makes the directory for packs and removes what a crash has left there.
func New(cfg Config) (*Checkout, error) {
	cfg.MaxBytes = cmp.Or(cfg.MaxBytes, defaultMaxBytes)
	cfg.Timeout = cmp.Or(cfg.Timeout, defaultTimeout)
	if err := sweepSpools(cfg.Dir); err != nil {
		return nil, reason.Line(fmt.Errorf("cannot prepare the directory for repositories: %w", err))
	}
	return &Checkout{cfg: cfg}, nil
}

// Request names what to fetch.
type Request struct {
	// Repository is an HTTPS URL without credentials. Ref is a branch, a tag, a
	// full ref, pull/N, a whole commit hash, or empty for the default branch.
	Repository, Ref string
	// Depth is how many commits of the history come with it; 0 is one, less is
	// all of them.
	Depth int
	// MaxBytes lowers the bound of the configuration, to what the sandbox can
	// hold; 0 leaves it.
	MaxBytes int64
	// AppReads reports whether the GitHub App may be used to read a repository
	// for whoever asks; nil is never. Without it, only what is public is found.
	AppReads func(owner, name string) bool
}

// Validate says what is wrong with a request before anybody is asked.
func (r Request) Validate() error {
	if _, err := ParseURL(r.Repository); err != nil {
		return err
	}
	return gitwire.ValidRef(r.Ref)
}

// Result says what was checked out.
type Result struct {
	// Commit is the full hash, Ref the full name that led there, if one did.
	Commit, Ref string
	// Bytes is the size of the pack.
	Bytes int64
}

// Into fetches a repository into the workspace of a sandbox, which must be
// untouched: Fetch and Fetched.Into in one.
func (c *Checkout) Into(ctx context.Context, sb execenv.Sandbox, req Request) (Result, error) {
	f, err := c.Fetch(ctx, req)
	if err != nil {
		return Result{}, err
	}
	defer f.Close()
	return f.Result, f.Into(ctx, sb)
}

// Fetched is a repository on its way to a sandbox.
type Fetched struct {
	Result
	repository
	deadline time.Time
	timeout  time.Duration
}

// Origin is the one spelling of the repository's URL.
func (f *Fetched) Origin() string { return f.origin }

// Close frees the pack.
func (f *Fetched) Close() error { return f.pack.Close() }

// Fetch gets the repository from its server. The token it may take exists only
// during the call; if it could not be revoked, the error wraps a
// githubapp.Unrevoked that says until when it lives on.
func (c *Checkout) Fetch(ctx context.Context, req Request) (*Fetched, error) {
	f, err := c.fetchWithToken(ctx, req)
	return f, reason.Line(err)
}

func (c *Checkout) fetchWithToken(ctx context.Context, req Request) (*Fetched, error) {
	if err := req.Validate(); err != nil {
		return nil, err
	}
	origin, err := ParseURL(req.Repository)
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(c.cfg.Timeout)
	limited, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()

	transport := c.cfg.Egress.Transport()
	defer transport.CloseIdleConnections()
	remote := gitwire.Remote{URL: origin, Transport: transport, Agent: c.cfg.Agent}
	token, err := c.token(limited, req, &remote)
	notInstalled := err
	if err != nil && reason.Of(err) != reason.NotInstalled {
		return nil, timedOut(ctx, err, c.cfg.Timeout)
	}
	f, err := c.fetch(limited, remote, req)
	if notInstalled != nil && reason.Of(err) == reason.NotFound {
		err = notInstalled // it is not public either, so that is the reason
	}
	if err != nil && limited.Err() != nil {
		err = limited.Err() // whatever a server says to somebody who goes away
	}
	err = withoutToken(timedOut(ctx, expired(err, token), c.cfg.Timeout), token)
	err = c.revoke(ctx, err, token)
	if err != nil {
		if f != nil {
			err = reason.Also(err, f.Close())
		}
		return nil, err
	}
	f.deadline, f.timeout = deadline, c.cfg.Timeout
	return f, nil
}

// token makes one if the repository is on the App's GitHub and whoever asks may
// use the App for it.
func (c *Checkout) token(ctx context.Context, req Request, remote *gitwire.Remote) (*githubapp.Token, error) {
	if c.cfg.App == nil || req.AppReads == nil {
		return nil, nil
	}
	owner, name, ok := c.cfg.App.Serves(remote.URL)
	if !ok || !req.AppReads(owner, name) {
		return nil, nil
	}
	token, err := c.cfg.App.Mint(ctx, owner, name)
	if err != nil {
		return nil, err
	}
	remote.Authorize = token.Authorize
	return token, nil
}

func (c *Checkout) fetch(ctx context.Context, remote gitwire.Remote, req Request) (*Fetched, error) {
	session, err := gitwire.Open(ctx, remote)
	if err != nil {
		return nil, err
	}
	target, err := session.Resolve(ctx, req.Ref)
	if err != nil {
		return nil, err
	}
	limit := c.cfg.MaxBytes
	if req.MaxBytes > 0 {
		limit = min(limit, req.MaxBytes)
	}
	pack, err := newSpool(c.cfg.Dir, limit)
	if err != nil {
		return nil, err
	}
	fetched, err := session.Fetch(ctx, target, depth(req.Depth), pack)
	if err != nil {
		return nil, reason.Also(err, pack.Close())
	}
	return &Fetched{
		Result: Result{Commit: target.Commit, Ref: target.Ref, Bytes: pack.size},
		repository: repository{
			origin: remote.URL.String(), target: target, format: session.Format(), shallow: fetched.Shallow, pack: pack,
		},
	}, nil
}

// depth is what the protocol calls the request's: 0 is everything there.
func depth(asked int) int {
	if asked == 0 {
		return 1
	}
	return max(asked, 0)
}

// revoke ends the token of a fetch that ended with err. It does so also when the
// caller has gone: the token must end now, not in an hour.
func (c *Checkout) revoke(ctx context.Context, err error, token *githubapp.Token) error {
	if token == nil {
		return err
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), revokeTime)
	defer cancel()
	unrevoked := c.cfg.App.Revoke(last, token)
	var left *githubapp.Unrevoked
	if err == nil && errors.As(unrevoked, &left) {
		return reason.Wrap(left.Code, left, "%s", left.Message())
	}
	return reason.Also(err, unrevoked)
}

// clocks is by how much ours and the server's may differ.
const clocks = time.Minute

// expired tells a token that ended during the fetch from one that somebody else
// has ended.
func expired(err error, token *githubapp.Token) error {
	if token == nil || reason.Of(err) != reason.TokenRefused || time.Until(token.Expires) > clocks {
		return err
	}
	return reason.Wrap(reason.TokenExpired, err, "the token that reads the repository expired at %s, before the fetch was over", token.Expires.UTC().Format(time.RFC3339))
}

// timedOut tells our own time limit from the end of the caller's context.
func timedOut(ctx context.Context, err error, limit time.Duration) error {
	if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
		return err
	}
	var left *githubapp.Unrevoked
	if errors.As(err, &left) {
		return reason.Also(reason.New(reason.TimedOut, "it took longer than %s", limit), left)
	}
	return reason.New(reason.TimedOut, "it took longer than %s", limit)
}

// withoutToken keeps a server from having its own words, with the token in
// them, passed on.
func withoutToken(err error, token *githubapp.Token) error {
	if err == nil || token == nil || !token.In(err.Error()) {
		return err
	}
	code := reason.Of(err)
	if code == "" {
		code = reason.Malformed
	}
	return reason.New(code, "the server's answer repeats the credential, and is left out")
}
