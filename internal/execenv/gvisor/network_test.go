package gvisor

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/egress/link"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/testenv"
	"github.com/agentdock/agentdock/internal/testenv/gateway"
)

// withGateway gives sandboxes a way out, which the test's clean-up closes.
func withGateway(t *testing.T) func(*Config) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "egress")
	t.Cleanup(gateway.Start(t, socket))
	return func(c *Config) { c.Gateway = &link.Client{Socket: socket, Service: "test"} }
}

func networkSpec(id string) execenv.Spec {
	return execenv.Spec{
		ID: id, Image: "bare", Limits: run.DefaultLimits(),
		Network: run.Network{Mode: run.NetworkAllow, Allow: []string{"nobody.example"}},
	}
}

// Without a gateway nothing gets out, and what comes back is used again: whether
// the gateway was lost, or a program has killed the helper inside.
func TestNetworkFailsClosedAndComesBack(t *testing.T) {
	testenv.RequireRoot(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	socket := filepath.Join(t.TempDir(), "egress")
	e := openTestEnvironment(t, t.TempDir(), func(c *Config) { c.Gateway = &link.Client{Socket: socket, Service: "test"} })
	if _, err := e.Create(ctx, networkSpec("absent")); !fault.Is(err, fault.Unavailable) {
		t.Fatalf("without a gateway: %v", err)
	}
	if boxes, err := e.List(ctx); err != nil || len(boxes) != 0 {
		t.Fatalf("after that there are %v, %v", boxes, err)
	}
	stop := gateway.Start(t, socket)
	sb, err := e.Create(ctx, networkSpec("box"))
	if err != nil {
		t.Fatal(err)
	}
	b := sb.(*box)
	reached := func() bool { return reachesProxy(ctx, t, b) }
	if !reached() {
		t.Fatal("the proxy is not there")
	}
	stop()
	await(t, "nothing listens without a gateway", func() bool { return !reached() })
	stop = gateway.Start(t, socket)
	defer stop()
	await(t, "the proxy is back with the gateway", reached)
	b.network.mu.Lock()
	helper := b.network.helper
	b.network.mu.Unlock()
	if err := helper.Kill(); err != nil {
		t.Fatal(err)
	}
	await(t, "another helper was started", func() bool {
		b.network.mu.Lock()
		defer b.network.mu.Unlock()
		return b.network.helper != helper
	})
	await(t, "the proxy is back after its helper was killed", reached)
	use, err := b.NetworkUse(ctx)
	if err != nil || len(use.Denied) != 0 {
		t.Errorf("the transcript is %+v, %v", use, err)
	}
}

// reachesProxy says whether a program can connect to the proxy.
func reachesProxy(ctx context.Context, t *testing.T, b *box) bool {
	t.Helper()
	x, err := b.Exec(ctx, execenv.ExecSpec{Argv: []string{guestPath, "probe", "connect", "127.0.0.1:3128"}})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := x.Output(ctx, 0, func(c execenv.Chunk) error { out.Write(c.Data); return nil }); err != nil {
		t.Fatal(err)
	}
	return strings.HasSuffix(out.String(), "127.0.0.1:3128 ok\n")
}

// await tries until it is so.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !so(); {
		if time.Now().After(end) {
			t.Fatalf("not so after a minute: %s", what)
		}
	}
}
