// Package contract runs the contract suite against the real execution service,
// in a process of its own, through the wire.
package contract

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/execenvtest"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/testenv"
	"github.com/agentdock/agentdock/internal/testenv/gateway"
)

func TestGVisorThroughTheWire(t *testing.T) {
	testenv.RequireRoot(t)
	images := testenv.BareStore(t)
	var services sync.Map // by client
	of := func(env execenv.Environment) *testenv.Execd {
		s, _ := services.Load(env)
		return s.(*testenv.Execd)
	}
	execenvtest.Run(t, execenvtest.Harness{
		Image:    testenv.BareImage,
		Served:   true,
		Patience: patience(t),
		New: func(t *testing.T) execenv.Environment {
			dir, err := os.MkdirTemp("", "gateway") // short: a socket's path has a limit
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			wayOut := filepath.Join(dir, "s")
			t.Cleanup(gateway.Start(t, wayOut))
			s := testenv.StartExecd(t, images, "--egress-socket", wayOut)
			c := s.Dial()
			env := &breakable{Environment: c}
			services.Store(execenv.Environment(env), s)
			return env
		},
		Leftovers: func(_ *testing.T, env execenv.Environment) []string { return of(env).Leftovers() },
		KillInfrastructure: func(t *testing.T, env execenv.Environment, id string) {
			pid := of(env).Sentry(id)
			if pid == 0 {
				t.Fatalf("sandbox %s has no process", id)
			}
			if err := unix.Kill(pid, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
		},
		FailCreate: func(_ *testing.T, env execenv.Environment, id string) (heal func()) {
			env.(*breakable).broken.Store(id, true)
			return func() { env.(*breakable).broken.Delete(id) }
		},
		FailDestroy: func(_ *testing.T, env execenv.Environment, id string) (heal func()) {
			return of(env).HoldGroup(id)
		},
		Restart: func(t *testing.T, env execenv.Environment) execenv.Environment {
			s := of(env)
			s.Kill()
			s.Start()
			// Calls that meet the old connection are Unavailable, and repeated.
			for {
				if _, err := env.List(t.Context()); !fault.Is(err, fault.Unavailable) {
					return env
				}
			}
		},
	})
}

// patience is longer than usual where AGENTDOCK_TEST_PATIENCE says so, for
// machines that are slow because they are emulated.
func patience(t *testing.T) time.Duration {
	text := os.Getenv("AGENTDOCK_TEST_PATIENCE")
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// breakable gives chosen sandboxes an image that does not boot.
type breakable struct {
	execenv.Environment
	broken sync.Map
}

func (b *breakable) Create(ctx context.Context, spec execenv.Spec) (execenv.Sandbox, error) {
	if _, ok := b.broken.Load(spec.ID); ok {
		spec.Image = testenv.CorruptImage
	}
	return b.Environment.Create(ctx, spec)
}
