package hostile

import (
	"encoding/hex"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
)

// services are listeners of the host that a sandbox must not reach. They count
// who came.
type services struct {
	port, abstract, address string
	visits                  atomic.Int64
}

func openServices(t *testing.T) *services {
	t.Helper()
	s := &services{abstract: "@agentdock-" + newID(), address: hostAddress()}
	tcp, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	s.port = strconv.Itoa(tcp.Addr().(*net.TCPAddr).Port)
	udp, err := net.ListenPacket("udp", ":"+s.port)
	if err != nil {
		t.Fatal(err)
	}
	unix, err := net.Listen("unix", s.abstract)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []net.Listener{tcp, unix} {
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				s.visits.Add(1)
				_ = c.Close()
			}
		}()
	}
	t.Cleanup(func() { _ = udp.Close() })
	go func() {
		b := make([]byte, 64)
		for {
			n, from, err := udp.ReadFrom(b)
			if err != nil {
				return
			}
			s.visits.Add(1)
			_, _ = udp.WriteTo(b[:n], from)
		}
	}()
	return s
}

// hostAddress is one of the host's own that is not loopback, where it has one.
func hostAddress() string {
	all, _ := net.InterfaceAddrs()
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() && !n.IP.IsLinkLocalUnicast() {
			return n.IP.String()
		}
	}
	return "127.0.0.1"
}

func (s *services) vars() map[string]string {
	return map[string]string{
		"$port": s.port, "$abstract": s.abstract, "$address": s.address,
		"$canary": hex.EncodeToString([]byte(canary())),
	}
}
