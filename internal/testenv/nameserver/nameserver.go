// Package nameserver is a DNS server for tests, on loopback, which says what a test
// wants.
package nameserver

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// Server answers with the addresses that a test gives a name, one list after
// the other, with a time to live of 0.
type Server struct {
	conn net.PacketConn

	mu      sync.Mutex
	answers map[string][][]string
	cnames  map[string]string
	asked   []string
	count   map[string]int
}

// Start starts one on loopback, which the test's clean-up stops.
func Start(t testing.TB) *Server {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	s := &Server{conn: conn, answers: map[string][][]string{}, cnames: map[string]string{}, count: map[string]int{}}
	go s.serve()
	return s
}

// Address is where it answers.
func (s *Server) Address() string { return s.conn.LocalAddr().String() }

// Resolver asks it.
func (s *Server) Resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", s.Address())
	}}
}

// Set gives a name its addresses; more lists are for later questions, and the
// last one stays.
func (s *Server) Set(name string, lists ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[name] = nil
	for _, l := range lists {
		s.answers[name] = append(s.answers[name], strings.Fields(l))
	}
}

// Alias makes a name stand for another one.
func (s *Server) Alias(name, other string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cnames[name] = other
}

// Questions are the names that were asked for.
func (s *Server) Questions() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.asked, " ")
}

func (s *Server) serve() {
	buf := make([]byte, 4096)
	for {
		n, from, err := s.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(buf[:n]) != nil || len(m.Questions) == 0 {
			continue
		}
		m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
		s.answer(&m)
		if out, err := m.Pack(); err == nil {
			_, _ = s.conn.WriteTo(out, from)
		}
	}
}

func (s *Server) answer(m *dnsmessage.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := m.Questions[0]
	name := strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))
	s.asked = append(s.asked, name)
	add := func(owner string, body dnsmessage.ResourceBody) {
		m.Answers = append(m.Answers, dnsmessage.Resource{
			Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(owner + "."), Class: dnsmessage.ClassINET}, Body: body,
		})
	}
	for s.cnames[name] != "" {
		add(name, &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName(s.cnames[name] + ".")})
		name = s.cnames[name]
	}
	lists := s.answers[name]
	if len(lists) == 0 {
		m.RCode = dnsmessage.RCodeNameError
		return
	}
	for _, text := range lists[0] {
		switch addr := netip.MustParseAddr(text); {
		case addr.Is4() && q.Type == dnsmessage.TypeA:
			add(name, &dnsmessage.AResource{A: addr.As4()})
		case addr.Is6() && q.Type == dnsmessage.TypeAAAA:
			add(name, &dnsmessage.AAAAResource{AAAA: addr.As16()})
		}
	}
	// A resolver asks for addresses of both versions.
	if s.count[name]++; s.count[name]%2 == 0 && len(lists) > 1 {
		s.answers[name] = lists[1:]
	}
}
