package egress

import (
	"bufio"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentdock/agentdock/internal/tunnel"
)

// client is a program's connection. It is a net.Conn for package http.
type client struct {
	*tunnel.Stream
	session *session
	r       *bufio.Reader
	hurried atomic.Bool // it has a deadline of its own

	mu sync.Mutex
	// In a tunnel, target is what it was opened for, and ready the connection to
	// it that nobody uses yet.
	target *target
	ready  *upstream
}

func newClient(st *tunnel.Stream, s *session) *client {
	return &client{Stream: st, session: s, r: bufio.NewReaderSize(st, 4096)}
}

// Read implements net.Conn.
func (c *client) Read(p []byte) (int, error) { return c.r.Read(p) }

// Write implements net.Conn. Whoever reads nothing has as long as a connection may
// be idle.
func (c *client) Write(p []byte) (int, error) {
	if !c.hurried.Load() {
		_ = c.SetWriteDeadline(time.Now().Add(c.session.gateway.idle))
	}
	return c.Stream.Write(p)
}

// LocalAddr implements net.Conn.
func (c *client) LocalAddr() net.Addr { return inside{} }

// RemoteAddr implements net.Conn.
func (c *client) RemoteAddr() net.Addr { return inside{} }

// Close implements net.Conn.
func (c *client) Close() error {
	if u := c.takeReady(target{}); u != nil {
		u.refuse("no request in it could be passed on") // package http refuses some by itself
	}
	return c.Stream.Close()
}

// takeReady returns the connection that was opened with the tunnel, once. The
// zero target is any.
func (c *client) takeReady(t target) *upstream {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ready == nil || t != (target{}) && c.ready.target != t {
		return nil
	}
	u := c.ready
	c.ready = nil
	return u
}

// hurry bounds what is read and written from now on.
func (c *client) hurry() {
	c.hurried.Store(true)
	_ = c.SetDeadline(time.Now().Add(c.session.gateway.patience))
}

// relax ends that.
func (c *client) relax() {
	c.hurried.Store(false)
	_ = c.SetDeadline(time.Time{})
}

// first looks at the first byte that is to come.
func (c *client) first() (byte, error) {
	c.hurry()
	b, err := c.r.Peek(1)
	if err != nil {
		return 0, err
	}
	return b[0], nil
}

// inside is the address of everything in a sandbox.
type inside struct{}

func (inside) Network() string { return "sandbox" }
func (inside) String() string  { return "sandbox" }

// serve speaks with one program until it has what it wants, or not.
func (g *Gateway) serve(s *session, c *client) {
	first, err := c.first()
	switch {
	case err != nil:
		_ = c.Close()
	case first == socksVersion:
		g.serveSOCKS(c)
	case isHTTP(first):
		g.proxy.take(c)
	default:
		s.record.refused("", 0, "it speaks neither HTTP nor SOCKS5 to the proxy")
		_ = c.Close()
	}
}

// isHTTP reports whether a request line can begin with it.
func isHTTP(first byte) bool { return 'A' <= first && first <= 'Z' }
