package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/agentdock/agentdock/internal/egress/address"
)

// target is a server that was asked for, in its one spelling.
type target struct {
	host string
	port uint16
}

func (t target) String() string { return t.host + ":" + strconv.Itoa(int(t.port)) }

// denied is a refusal, with a reason that the program in the sandbox may read.
type denied struct{ reason string }

func (d *denied) Error() string { return d.reason }

// upstream is a connection to a server.
type upstream struct {
	net.Conn
	session *session
	target  target
	entry   *entry
	once    sync.Once
	ctx     context.Context // ends with the connection
	cancel  context.CancelFunc

	mu sync.Mutex
	// of is the client whose tunnel it is.
	of *client
}

func (s *session) newUpstream(conn net.Conn, t target, rule string) *upstream {
	u := &upstream{Conn: conn, session: s, target: t}
	u.ctx, u.cancel = context.WithCancel(s.ctx)
	u.entry = s.record.opened(t, rule, conn.RemoteAddr().String())
	return u
}

// belongsTo makes a tunnel's two ends one: the client's is closed when this one is
// cut.
func (u *upstream) belongsTo(c *client) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.of = c
}

// dial decides, resolves, checks and connects. What became of it is on record.
func (s *session) dial(ctx context.Context, t target) (*upstream, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	stop := context.AfterFunc(s.ctx, cancel)
	defer stop()
	rule, err := s.admit(t)
	if err != nil {
		s.record.refused(t.host, t.port, err.Error())
		return nil, err
	}
	conn, err := s.gateway.connect(ctx, t)
	if err != nil {
		s.failed()
		var refusal *denied
		if errors.As(err, &refusal) {
			s.record.refused(t.host, t.port, err.Error())
		} else {
			s.record.failed(t, rule.String(), err.Error())
		}
		return nil, err
	}
	u := s.newUpstream(conn, t, rule.String())
	if !s.opened(u) {
		u.refuse("it is not allowed any more")
		return nil, &denied{"it is not allowed any more"}
	}
	return u, nil
}

// connect resolves a name once and dials an address that was checked.
func (g *Gateway) connect(ctx context.Context, t target) (net.Conn, error) {
	addrs, err := g.addresses(ctx, t.host)
	if err != nil {
		return nil, err
	}
	var failures []error
	for _, addr := range addrs {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", netip.AddrPortFrom(addr, t.port).String())
		if err == nil {
			return conn, nil
		}
		failures = append(failures, err)
	}
	return nil, fmt.Errorf("it cannot be reached: %w", errors.Join(failures...))
}

// addresses are those of a host, all of them checked: one that is not public
// refuses all, because whoever answers with it means no good.
func (g *Gateway) addresses(ctx context.Context, host string) ([]netip.Addr, error) {
	addr, literal := address.Literal(host)
	addrs := []netip.Addr{addr}
	if !literal {
		var err error
		// With the dot no search list is tried.
		if addrs, err = g.resolver.LookupNetIP(ctx, "ip", host+"."); err != nil {
			return nil, fmt.Errorf("its name cannot be resolved: %w", err)
		}
	}
	own, err := g.own()
	if err != nil {
		return nil, fmt.Errorf("the gateway cannot tell its own addresses: %w", err)
	}
	mirrors := g.file.Networks(host)
	for i, a := range addrs {
		a = a.Unmap().WithZone("")
		if err := address.Check(a, mirrors); err != nil {
			return nil, &denied{fmt.Sprintf("it leads to %s, which is private, local or reserved", a)}
		}
		meant := slices.ContainsFunc(mirrors, func(p netip.Prefix) bool { return p.Contains(a) })
		if !meant && isOwn(own, a) {
			return nil, &denied{fmt.Sprintf("it leads to %s, which is the gateway's own host", a)}
		}
		addrs[i] = a
	}
	if len(addrs) == 0 {
		return nil, errors.New("its name has no address")
	}
	return addrs[:min(len(addrs), maxAddresses)], nil
}

func isOwn(own []net.Addr, a netip.Addr) bool {
	for _, o := range own {
		p, err := netip.ParsePrefix(o.String())
		if err == nil && p.Addr().Unmap() == a {
			return true
		}
	}
	return false
}

// Read implements net.Conn, within the session's limits.
func (u *upstream) Read(p []byte) (int, error) {
	_ = u.SetReadDeadline(time.Now().Add(u.session.gateway.idle))
	n, err := u.Conn.Read(p[:min(len(p), burst)])
	if n > 0 {
		u.session.record.received(u.entry, n)
		if limited := u.moved(n); limited != nil {
			return 0, limited
		}
	}
	return n, err
}

// Write implements net.Conn, within the session's limits.
func (u *upstream) Write(p []byte) (written int, err error) {
	for written < len(p) {
		part := p[written:min(len(p), written+burst)]
		if err := u.moved(len(part)); err != nil {
			return written, err
		}
		_ = u.SetWriteDeadline(time.Now().Add(u.session.gateway.idle))
		n, err := u.Conn.Write(part)
		written += n
		u.session.record.sent(u.entry, n)
		if err != nil {
			return written, err
		}
		// What is sent keeps a connection alive that answers late.
		_ = u.SetReadDeadline(time.Now().Add(u.session.gateway.idle))
	}
	return written, nil
}

// moved counts bytes and holds them back to their rate.
func (u *upstream) moved(n int) error {
	if over, most := u.session.count(n); over {
		reason := fmt.Sprintf("cut: the network's %d bytes are used up", most)
		u.cut(reason)
		return errors.New(reason)
	}
	return u.session.limiter.WaitN(u.ctx, n)
}

// cut ends the connection and says why in the transcript.
func (u *upstream) cut(reason string) {
	u.cutServer(reason)
	u.cutClient()
}

// cutServer is the part that waits for nobody.
func (u *upstream) cutServer(reason string) {
	u.session.record.reason(u.entry, reason)
	_ = u.Close()
}

// cutClient tells the program, which waits for its helper to read.
func (u *upstream) cutClient() {
	u.mu.Lock()
	of := u.of
	u.mu.Unlock()
	if of != nil {
		_ = of.Close()
	}
}

// refuse ends the connection as one that was not allowed.
func (u *upstream) refuse(reason string) {
	u.session.record.turned(u.entry, reason)
	_ = u.Close()
}

// CloseWrite lets the server read end of file.
func (u *upstream) CloseWrite() error {
	if tcp, ok := u.Conn.(*net.TCPConn); ok {
		return tcp.CloseWrite()
	}
	return u.Close()
}

// Close implements net.Conn.
func (u *upstream) Close() error {
	err := u.Conn.Close()
	u.cancel()
	u.once.Do(func() {
		u.session.closed(u)
		u.session.record.ended(u.entry)
	})
	return err
}
