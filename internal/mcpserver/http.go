package mcpserver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/client"
)

const (
	// Path is where the server is over HTTP.
	Path = "/mcp"
	// idleSession is how long a session is kept whose client says nothing.
	idleSession = 30 * time.Minute
	// mostSessions bounds what clients can make this process remember.
	mostSessions = 1000
	// mostOfOne is how many of them one key may have, so that it leaves some to
	// others.
	mostOfOne = 100
	// mostBody has room for what write_file takes, with every byte escaped twice.
	mostBody  = 16 << 20
	verifyFor = 10 * time.Second
	stopFor   = 10 * time.Second
)

// HTTPConfig says who is let in.
type HTTPConfig struct {
	Config
	// Hosts are the names, without port, by which clients may address the server,
	// besides loopback ones and its own address.
	Hosts []string
	// KeyRequired refuses requests without a key. Without it, such a request calls
	// the platform without one, which answers where it asks nobody for a key.
	KeyRequired bool
}

// endpoint is the server behind HTTP.
type endpoint struct {
	cfg    HTTPConfig
	server *Server
	listen net.Addr
	next   http.Handler
	owners owners
}

func newEndpoint(cfg HTTPConfig, listen net.Addr) *endpoint {
	e := &endpoint{cfg: cfg, server: newServer(cfg.Config, nil), listen: listen}
	streams := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return e.server.mcp }, &mcp.StreamableHTTPOptions{
		Logger: e.server.cfg.Log, SessionTimeout: idleSession, MaxRequestBodyBytes: mostBody,
		// Whether a request is for us is checked here, with the names that are set.
		DisableLocalhostProtection: true,
	})
	identified := auth.RequireBearerToken(e.identify, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})
	withKey := identified(e.counting(e.ending(streams)))
	withoutKey := e.ending(streams)
	e.next = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" || cfg.KeyRequired {
			w.Header().Set("WWW-Authenticate", "Bearer") // counts where the answer is 401
			withKey.ServeHTTP(w, r)
			return
		}
		if begins(r) {
			if err := e.verify(r.Context(), ""); err != nil {
				status := http.StatusBadGateway
				if errors.Is(err, auth.ErrInvalidToken) {
					status = http.StatusUnauthorized
					w.Header().Set("WWW-Authenticate", "Bearer")
				}
				http.Error(w, err.Error(), status)
				return
			}
		}
		withoutKey.ServeHTTP(w, r)
	})
	return e
}

// ServeHTTP refuses what no client of ours sends, before anything reads it.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := e.local(r); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	if r.URL.Path != Path {
		http.Error(w, "there is nothing here; the server is at "+Path, http.StatusNotFound)
		return
	}
	if begins(r) && e.full() {
		tooMany(w)
		return
	}
	e.next.ServeHTTP(w, r)
}

// begins reports whether a request begins a session.
func begins(r *http.Request) bool { return r.Header.Get("Mcp-Session-Id") == "" }

func (e *endpoint) full() bool {
	n := 0
	for range e.server.mcp.Sessions() {
		n++
	}
	return n >= mostSessions
}

// local refuses requests that a web page made: in a browser, any page can send
// requests to this machine, and a page whose name is made to resolve here can read
// the answers too. The first says so in Origin or Sec-Fetch-Site, and the second
// in Host.
func (e *endpoint) local(r *http.Request) error {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = strings.Trim(r.Host, "[]")
	}
	if !e.named(host) {
		return errors.New("requests must be made to a loopback address, or to a name that was set with --host")
	}
	for _, origin := range r.Header.Values("Origin") {
		if u, err := url.Parse(origin); err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host) {
			return errors.New("requests of other web pages are refused")
		}
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return nil
	}
	return errors.New("requests of other web pages are refused")
}

func (e *endpoint) named(host string) bool {
	if strings.EqualFold(host, "localhost") || slices.ContainsFunc(e.cfg.Hosts, func(h string) bool { return strings.EqualFold(h, host) }) {
		return true
	}
	// An address is no name, and cannot be made to resolve elsewhere.
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	own, err := netip.ParseAddrPort(e.listen.String())
	return ip.IsLoopback() || err == nil && (ip == own.Addr() || own.Addr().IsUnspecified())
}

// identify looks at the key of a request: the platform is asked once, when a
// session begins; later requests must have the same key, and the platform looks
// at it with every call.
func (e *endpoint) identify(ctx context.Context, key string, r *http.Request) (*auth.TokenInfo, error) {
	if begins(r) {
		if err := e.verify(ctx, key); err != nil {
			return nil, err
		}
	}
	sum := sha256.Sum256([]byte(key))
	return &auth.TokenInfo{UserID: hex.EncodeToString(sum[:])}, nil
}

// verify asks the platform whether it knows a key. A key that it does not know is
// auth.ErrInvalidToken.
func (e *endpoint) verify(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, verifyFor)
	defer cancel()
	c, err := e.cfg.Dial(key)
	if err == nil {
		_, err = c.WhoAmI(ctx)
	}
	if err == nil {
		return nil
	}
	said := tool{does: "begin a session"}.failure(err)
	if client.Is(err, api.ProblemCodeUnauthenticated) {
		return fmt.Errorf("%w: %w", auth.ErrInvalidToken, said)
	}
	return said
}

// bearer is the key of a request, "" if it has none.
func bearer(h http.Header) (string, error) {
	text := h.Get("Authorization")
	if text == "" {
		return "", nil
	}
	kind, key, _ := strings.Cut(text, " ")
	if key = strings.TrimSpace(key); !strings.EqualFold(kind, "bearer") || key == "" {
		return "", refuse("send Authorization: Bearer KEY", "the request has no bearer key")
	}
	return key, nil
}

// ending ends the calls of a session that its client ends: the session alone
// would wait for them.
func (e *endpoint) ending(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete && !begins(r) {
			user := ""
			if token := auth.TokenInfoFromContext(r.Context()); token != nil {
				user = token.UserID
			}
			e.server.calls.cancel(r.Header.Get("Mcp-Session-Id"), user)
		}
		next.ServeHTTP(w, r)
	})
}

// Serve serves sessions over HTTP until ctx ends. Then their calls are cancelled,
// which kills their commands; sandboxes stay until their time to live is over, as
// after the end of any session over HTTP: such a client may come back.
func Serve(ctx context.Context, cfg HTTPConfig, l net.Listener) error {
	e := newEndpoint(cfg, l.Addr())
	server := &http.Server{
		Handler: e, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(e.server.cfg.Log.Handler(), slog.LevelWarn),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		e.server.calls.stop()
		return fmt.Errorf("cannot serve any more: %w", err)
	case <-ctx.Done():
	}
	e.server.calls.stop()
	for session := range e.server.mcp.Sessions() {
		_ = session.Close() // its streams end with it
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopFor)
	defer cancel()
	if err := server.Shutdown(stopping); err != nil {
		return errors.Join(fmt.Errorf("cannot end all connections in order: %w", err), server.Close())
	}
	return nil
}
