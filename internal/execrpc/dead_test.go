package execrpc_test

import (
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
)

// A peer that is there and says nothing (a stopped process, a network that
// drops everything) must end calls that have no deadline.
func TestAPeerThatFallsSilentEndsTheCall(t *testing.T) {
	if testing.Short() {
		t.Skip("takes as long as it takes to notice a dead peer, 25 s")
	}
	t.Parallel()
	env := newStub()
	path := filepath.Join(t.TempDir(), "silent")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	to := serve(t, env).socket
	var silent atomic.Bool
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("unix", to)
			if err != nil {
				return
			}
			t.Cleanup(func() { near.Close(); far.Close() })
			go swallow(far, near, &silent)
			go swallow(near, far, &silent)
		}
	}()
	e := start(t, box(t, dial(t, path), "a"), "x")
	result := make(chan error, 2)
	go func() { _, err := e.Wait(t.Context()); result <- err }()
	go func() { result <- e.Output(t.Context(), 0, func(execenv.Chunk) error { return nil }) }()
	silent.Store(true)
	begin := time.Now()
	for range 2 {
		wantCode(t, "a call to a silent peer", <-result, fault.Unavailable)
	}
	if took := time.Since(begin); took > 45*time.Second {
		t.Errorf("noticed after %s", took)
	}
}

// swallow copies until silent, and then only reads.
func swallow(dst, src net.Conn, silent *atomic.Bool) {
	p := make([]byte, 4096)
	for {
		n, err := src.Read(p)
		if err != nil {
			if !silent.Load() {
				dst.Close()
			}
			return
		}
		if !silent.Load() {
			if _, err := dst.Write(p[:n]); err != nil {
				return
			}
		}
	}
}
