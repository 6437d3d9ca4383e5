// Package egress is the gateway: the only way out of sandboxes that have one. It
// gets each sandbox's connections as one stream (package tunnel), speaks HTTP
// proxy and SOCKS5 on each, and connects to what the sandbox's policy allows.
//
// What holds:
//
//   - A name is resolved here, and only if the policy allows it. All of its
//     addresses must be public, or in a network that the operator gave this very
//     name; the address that was checked is the one that is dialled.
//   - In a tunnel the first bytes must be a TLS hello for the name that was asked
//     for, or HTTP. Each HTTP request is read, its authority compared with the
//     name, and written anew.
//   - Whatever cannot be decided is refused. Every decision is in the transcript.
package egress

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/agentdock/agentdock/internal/egress/policy"
)

// Bounds on one connection.
const (
	// defaultPatience is how long a client may take to say what it wants.
	defaultPatience = 10 * time.Second
	maxHeader       = 32 << 10
	// defaultStalled is how long a sandbox's stream may take nothing.
	defaultStalled = 30 * time.Second
	// defaultIdle ends a connection in which nothing moves.
	defaultIdle = 5 * time.Minute
	dialTimeout = 15 * time.Second
	// maxAddresses is how many of a name's addresses are tried.
	maxAddresses = 4
	// abandoned is how long a sandbox without a stream is remembered; whoever
	// attached it has been killed then.
	abandoned = 10 * time.Minute
	// maxSandboxes bounds what is remembered of sandboxes.
	maxSandboxes = 4096
)

// Resolver resolves names; *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Config says how to get out.
type Config struct {
	// File has the operator's mirrors.
	File     *policy.File
	Resolver Resolver
	Log      *slog.Logger
	// Patience is how long a program may take to say what it wants; 0 is 10 s.
	Patience time.Duration
	// Idle is how long nothing may move in a connection; 0 is 5 min.
	Idle time.Duration
	// Stalled is how long a sandbox's stream may take nothing before it is ended;
	// 0 is 30 s.
	Stalled time.Duration
	// MaxConnections is how many connections to servers all sandboxes have
	// together; 0 is as many as half of the descriptors allow.
	MaxConnections int64
}

// Gateway serves any number of sandboxes.
type Gateway struct {
	file     *policy.File
	resolver Resolver
	own      func() ([]net.Addr, error) // addresses of this host
	log      *slog.Logger
	proxy    *proxy
	patience time.Duration
	idle     time.Duration
	stalled  time.Duration
	places   int64        // for connections to servers
	taken    atomic.Int64 // of them

	mu       sync.Mutex
	sessions map[string]*session
	closed   bool
	// conns are open connections of execution services.
	conns map[net.Conn]struct{}
	wg    sync.WaitGroup
}

// New makes a gateway.
func New(c Config) *Gateway {
	g := &Gateway{
		file: c.File, resolver: c.Resolver, own: net.InterfaceAddrs, log: c.Log,
		sessions: map[string]*session{}, conns: map[net.Conn]struct{}{},
	}
	if g.patience = c.Patience; g.patience == 0 {
		g.patience = defaultPatience
	}
	if g.idle = c.Idle; g.idle == 0 {
		g.idle = defaultIdle
	}
	if g.stalled = c.Stalled; g.stalled == 0 {
		g.stalled = defaultStalled
	}
	if g.places = c.MaxConnections; g.places == 0 {
		g.places = placesFor(c.Log)
	}
	g.proxy = newProxy(c.Log, g.patience, g.idle)
	return g
}

// placesFor leaves half of the descriptors for look-ups, streams and what execution
// services ask: who is out of descriptors can take nothing away from anybody.
func placesFor(log *slog.Logger) int64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		log.Warn("cannot tell how many descriptors there may be", "error", err)
		limit.Cur = 1024 // the least that there is anywhere
	}
	return int64(min(limit.Cur, 1<<20) / 2)
}

// takePlace reports whether there may be one more connection to a server.
func (g *Gateway) takePlace() bool {
	if g.taken.Add(1) <= g.places {
		return true
	}
	g.givePlace()
	return false
}

func (g *Gateway) givePlace() { g.taken.Add(-1) }

// Serve serves execution services that connect to l, until Close.
func (g *Gateway) Serve(l net.Listener) error {
	stop := make(chan struct{})
	defer close(stop)
	go g.sweep(stop)
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			// Out of descriptors, most likely: nothing is decided without one.
			g.log.Error("cannot take a connection", "error", err)
			select {
			case <-time.After(100 * time.Millisecond):
				continue
			case <-stop:
				return nil
			}
		}
		if !g.track(conn) {
			_ = conn.Close()
			return nil
		}
		g.wg.Go(func() {
			defer g.untrack(conn)
			g.answer(conn)
		})
	}
}

func (g *Gateway) track(conn net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.conns[conn] = struct{}{}
	}
	return !g.closed
}

func (g *Gateway) untrack(conn net.Conn) {
	_ = conn.Close()
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.conns, conn)
}

// Close ends every connection and waits until nothing runs.
func (g *Gateway) Close() {
	g.mu.Lock()
	g.closed = true
	for conn := range g.conns {
		_ = conn.Close()
	}
	sessions := g.sessions
	g.sessions = map[string]*session{}
	g.mu.Unlock()
	for _, s := range sessions {
		s.end("the gateway stops")
	}
	g.wg.Wait()
	g.proxy.close()
}

// sweep forgets sandboxes whose service is gone.
func (g *Gateway) sweep(stop <-chan struct{}) {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			g.forgetAbandoned(time.Now().Add(-abandoned))
		case <-stop:
			return
		}
	}
}

func (g *Gateway) forgetAbandoned(before time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for name, s := range g.sessions {
		if s.unusedSince(before) {
			delete(g.sessions, name)
		}
	}
}
