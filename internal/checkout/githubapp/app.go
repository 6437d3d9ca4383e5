// Package githubapp acts as a GitHub App: it makes a token that reads the
// contents of one repository, and revokes it. Three calls of GitHub's API are
// all it takes, so they are made with the standard library; see docs/adr/0015.
package githubapp

import (
	"bytes"
	"context"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/agentdock/agentdock/internal/checkout/egress"
	"github.com/agentdock/agentdock/internal/checkout/reason"
)

const (
	// DefaultAPI and DefaultWeb are github.com's.
	DefaultAPI = "https://api.github.com"
	DefaultWeb = "https://github.com"

	maxAnswer = 1 << 20
	// mintTime bounds how long a token is waited for, and its end if it is not used.
	mintTime   = 15 * time.Second
	apiVersion = "2022-11-28"
)

// Config says which App this is.
type Config struct {
	// ID is the App's id or client id.
	ID  string
	Key *rsa.PrivateKey
	// API is the base of GitHub's API (https://HOST/api/v3 for GitHub Enterprise
	// Server), Web that of repositories' URLs.
	API, Web string
	// Transport makes the connections.
	Transport http.RoundTripper
	// Agent names us to the server.
	Agent string
}

// App is a GitHub App.
type App struct {
	cfg    Config
	web    *url.URL
	client *http.Client
}

// New checks the configuration; it asks nobody.
func New(cfg Config) (*App, error) {
	if cfg.ID == "" {
		return nil, errors.New("cannot act as a GitHub App: its id is missing")
	}
	if cfg.Key == nil {
		return nil, errors.New("cannot act as a GitHub App: its private key is missing")
	}
	if cfg.API == "" {
		cfg.API = DefaultAPI
	}
	if cfg.Web == "" {
		cfg.Web = DefaultWeb
	}
	if _, err := base("API", cfg.API); err != nil {
		return nil, err
	}
	web, err := base("web", cfg.Web)
	if err != nil {
		return nil, err
	}
	cfg.API = strings.TrimSuffix(cfg.API, "/")
	return &App{cfg: cfg, web: web, client: &http.Client{
		Transport: cfg.Transport,
		// The App's signature goes to the API and nowhere else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

func base(what, text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("cannot act as a GitHub App: the %s URL must be https://HOST[/PATH]", what)
	}
	if u.Host, err = egress.Authority(u); err != nil {
		return nil, fmt.Errorf("cannot act as a GitHub App: the %s URL %w", what, err)
	}
	return u, nil
}

// Serves reports whether repositories of that URL are on the App's GitHub, and
// which one it is.
func (a *App) Serves(u *url.URL) (owner, name string, ok bool) {
	if host, err := egress.Authority(u); err != nil || host != a.web.Host {
		return "", "", false
	}
	path, under := strings.CutPrefix(u.Path, strings.TrimSuffix(a.web.Path, "/")+"/")
	owner, name, ok = strings.Cut(strings.TrimSuffix(strings.TrimSuffix(path, "/"), ".git"), "/")
	return owner, name, under && ok && plain(owner) && plain(name)
}

// plain reports whether s is a name that GitHub gives out; such a name means the
// same in every part of a URL.
func plain(s string) bool {
	for _, c := range []byte(s) {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-_.", c) >= 0) {
			return false
		}
	}
	return s != "" && s != "." && s != ".." && len(s) <= 100
}

// Mint makes a token that reads the contents of that repository and no other.
// The caller revokes and drops it.
func (a *App) Mint(ctx context.Context, owner, name string) (*Token, error) {
	if !plain(owner) || !plain(name) {
		return nil, reason.New(reason.BadSource, "%q is no repository on GitHub", reason.Clean(owner+"/"+name))
	}
	repository := owner + "/" + name
	jwt, err := sign(a.cfg.Key, a.cfg.ID, time.Now())
	if err != nil {
		return nil, reason.Wrap(reason.AppRefused, err, "the App's key cannot sign")
	}
	var installation struct {
		ID          int64      `json:"id"`
		SuspendedAt *time.Time `json:"suspended_at"`
	}
	at := call{app: a, as: "Bearer " + jwt, repository: repository}
	if err := at.do(ctx, http.MethodGet, "/repos/"+repository+"/installation", nil, &installation); err != nil {
		return nil, err
	}
	if installation.SuspendedAt != nil {
		return nil, suspended(repository)
	}
	ask := map[string]any{"repositories": []string{name}, "permissions": map[string]string{"contents": "read"}}
	// From here on there may be a token. The end of the caller does not keep its
	// answer away, because what is not known cannot be revoked.
	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), mintTime)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var raw json.RawMessage
	if err := at.do(detached, http.MethodPost, fmt.Sprintf("/app/installations/%d/access_tokens", installation.ID), ask, &raw); err != nil {
		return nil, err
	}
	token, err := accept(raw, owner, name)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, reason.Also(err, a.Revoke(detached, token))
	}
	return token, nil
}

// accept reads the answer to the request for a token. With an error, the token
// is the one to revoke, as far as the answer has one.
func accept(raw json.RawMessage, owner, name string) (*Token, error) {
	var only struct {
		Token string `json:"token"`
	}
	_ = json.Unmarshal(raw, &only) // fails again below
	token := &Token{secret: []byte(only.Token)}
	var answer grant
	if err := json.Unmarshal(raw, &answer); err != nil {
		return token, reason.New(reason.TokenRefused, "GitHub's answer to the request for a token is not what it should be; what it may hold was not used")
	}
	token.Expires = answer.ExpiresAt
	return token, answer.check(owner, name, time.Now())
}

// grant is the answer to the request for a token.
type grant struct {
	Token        string            `json:"token"`
	ExpiresAt    time.Time         `json:"expires_at"`
	Permissions  map[string]string `json:"permissions"`
	Repositories []struct {
		FullName string `json:"full_name"`
	} `json:"repositories"`
}

// check holds the answer to what was asked for. A token that can do more is not
// used.
func (g grant) check(owner, name string, now time.Time) error {
	wrong := func(what string) error {
		return reason.New(reason.TokenRefused, "the token that GitHub made %s; it was not used", what)
	}
	if g.Token == "" {
		return wrong("is empty")
	}
	for _, c := range []byte(g.Token) {
		if c <= ' ' || c >= 0x7f {
			return wrong("is malformed")
		}
	}
	for what, access := range g.Permissions {
		if access != "read" || what != "contents" && what != "metadata" { // metadata comes with everything
			return wrong("may do more than read the contents of a repository")
		}
	}
	if g.Permissions["contents"] != "read" {
		return reason.New(reason.PermissionDenied, "the token that GitHub made does not read the contents of a repository; give the App the permission, and have its owner accept it")
	}
	if len(g.Repositories) != 1 || !strings.EqualFold(g.Repositories[0].FullName, owner+"/"+name) {
		return wrong("is not for this repository alone")
	}
	// GitHub's live for an hour. Clocks differ by minutes at most, or the App's
	// signature would not have been taken.
	switch life := g.ExpiresAt.Sub(now); {
	case g.ExpiresAt.IsZero():
		return wrong("has no time at which it expires")
	case life <= 0:
		return wrong("has expired already")
	case life > 2*time.Hour:
		return wrong("lives too long")
	}
	return nil
}

// call is one to the API.
type call struct {
	app        *App
	as         string // Authorization
	byToken    bool   // and not by the App's signature
	repository string // for messages
}

func (c call) do(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.app.cfg.API+path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", c.as)
	req.Header.Set("Accept", "application/vnd.github+json")
	req.Header.Set("X-GitHub-Api-Version", apiVersion)
	req.Header.Set("User-Agent", c.app.cfg.Agent)
	resp, err := c.app.client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return reason.Wrap(reason.Unavailable, err, "cannot reach GitHub's API")
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return reason.Wrap(reason.Unavailable, err, "cannot read what GitHub's API answers")
	}
	if resp.StatusCode/100 != 2 {
		return c.refused(resp, data)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		// Not the JSON error: it may quote the answer, which may be a token.
		return reason.New(reason.Unavailable, "what GitHub's API answers is not what it should be")
	}
	return nil
}
