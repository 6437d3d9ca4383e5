package egress

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"time"

	"github.com/agentdock/agentdock/internal/egress/link"
	"github.com/agentdock/agentdock/internal/egress/policy"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/tunnel"
)

// answer takes one line of an execution service.
func (g *Gateway) answer(conn net.Conn) {
	_ = conn.SetDeadline(time.Now().Add(link.Timeout))
	reader := bufio.NewReader(conn)
	line, err := link.ReadLine(reader, link.MaxRequest)
	if err != nil {
		return
	}
	var r link.Request
	if err := json.Unmarshal(line, &r); err != nil || len(r.Sandbox) > 256 {
		tell(conn, nil, fault.New(fault.Invalid, "the gateway cannot understand what it is asked"))
		return
	}
	if r.Op == link.OpAttach {
		g.attach(conn, reader, r)
		return
	}
	use, err := g.do(r)
	tell(conn, use, err)
}

func tell(w io.Writer, use *run.NetworkUse, err error) bool {
	a := link.Answer{Use: use}
	if err != nil {
		a.Code, a.Error = fault.CodeOf(err), fault.Public(err)
	}
	line, err := json.Marshal(a)
	if err != nil {
		return false
	}
	_, err = w.Write(append(line, '\n'))
	return err == nil
}

func (g *Gateway) do(r link.Request) (*run.NetworkUse, error) {
	g.mu.Lock()
	s := g.sessions[r.Sandbox]
	if r.Op == link.OpForget {
		delete(g.sessions, r.Sandbox)
	}
	g.mu.Unlock()
	switch {
	case r.Op == link.OpForget:
		if s != nil {
			s.end("the sandbox is destroyed")
		}
		return nil, nil
	case s == nil:
		return nil, fault.New(fault.NotFound, "the gateway does not know that sandbox")
	case r.Op == link.OpUse:
		use := s.record.use()
		return &use, nil
	case r.Op == link.OpSet:
		p, err := policy.Compile(r.Network)
		if err != nil {
			return nil, fault.New(fault.Invalid, "%v", err)
		}
		s.set(p)
		return nil, nil
	}
	return nil, fault.New(fault.Invalid, "the gateway cannot do that")
}

// attach serves a sandbox's stream until it ends.
func (g *Gateway) attach(conn net.Conn, reader io.Reader, r link.Request) {
	p, err := policy.Compile(r.Network)
	if err != nil {
		tell(conn, nil, fault.New(fault.Invalid, "%v", err))
		return
	}
	s, err := g.session(r.Sandbox, p, conn)
	if err != nil {
		tell(conn, nil, err)
		return
	}
	defer s.detached(conn)
	if !tell(conn, nil, nil) {
		return
	}
	_ = conn.SetDeadline(time.Time{})
	t := tunnel.Accept(struct {
		io.Reader
		io.WriteCloser
	}{reader, impatient{conn, g.stalled}}, policy.MaxConnections)
	defer t.Close()
	stop := s.closeOnEnd(t)
	defer stop()
	for {
		st, err := t.Accept()
		if err != nil {
			return
		}
		g.wg.Go(func() { g.serve(s, newClient(st, s)) })
	}
}

// impatient is a stream that has to take what is written within a time. Nothing
// else in it goes on meanwhile, and whatever is inside may have stopped its reader.
type impatient struct {
	net.Conn
	stalled time.Duration
}

func (i impatient) Write(p []byte) (int, error) {
	_ = i.SetWriteDeadline(time.Now().Add(i.stalled))
	return i.Conn.Write(p)
}

// session finds or makes what is known of a sandbox, and takes its stream.
func (g *Gateway) session(name string, p policy.Policy, stream io.Closer) (*session, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.sessions[name]
	switch {
	case g.closed:
		return nil, fault.New(fault.Unavailable, "the gateway stops")
	case s == nil && len(g.sessions) >= maxSandboxes:
		return nil, fault.New(fault.Exhausted, "the gateway serves %d sandboxes already", maxSandboxes)
	case s == nil:
		s = newSession(g, p)
		g.sessions[name] = s
	default:
		s.set(p)
	}
	s.attached(stream)
	return s, nil
}
