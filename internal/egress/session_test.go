package egress

import (
	"net"
	"sync"
	"testing"

	"github.com/agentdock/agentdock/internal/egress/policy"
	"github.com/agentdock/agentdock/internal/run"
)

// Connections that end by themselves and the end of their sandbox meet.
func TestASandboxEndsAsItsConnectionsDo(t *testing.T) {
	p, err := policy.Compile(run.Network{Mode: run.NetworkAllow, Allow: []string{"example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	s := newSession(&Gateway{places: 1000}, p)
	var all []*upstream
	for range 200 {
		at := target{host: "example.com", port: 443}
		if _, err := s.admit(at); err != nil {
			break // as many as may be open
		}
		conn, peer := net.Pipe()
		t.Cleanup(func() { peer.Close() })
		u := s.newUpstream(conn, at, "example.com:443")
		if !s.opened(u) {
			t.Fatal("it is not allowed")
		}
		all = append(all, u)
	}
	var ended sync.WaitGroup
	for _, u := range all {
		ended.Go(func() { _ = u.Close() })
	}
	ended.Go(func() { s.end("the sandbox is destroyed") })
	ended.Wait()
	if len(all) == 0 || s.gateway.taken.Load() != 0 {
		t.Errorf("of %d connections %d places are still taken", len(all), s.gateway.taken.Load())
	}
	if len(s.open) != 0 {
		t.Errorf("%d connections are still open", len(s.open))
	}
	for _, c := range s.record.use().Connections {
		if c.Duration == 0 {
			t.Fatalf("a line never ended: %+v", c)
		}
	}
}
