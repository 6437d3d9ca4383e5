package execd

import (
	"context"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/execenvtest"
	"github.com/agentdock/agentdock/internal/execenv/fake/simprobe"
)

// A Guard that lowers nothing is an Environment like any other.
func TestContract(t *testing.T) {
	h := simprobe.Harness(func(t *testing.T, env execenv.Environment) execenv.Environment {
		g := NewGuard(env, Policy{MaxLifetime: maxLifetime}, quiet())
		done := make(chan struct{})
		go func() { defer close(done); g.Run(context.Background()) }()
		t.Cleanup(func() {
			if err := g.Close(context.Background()); err != nil {
				t.Error(err)
			}
			<-done
		})
		return g
	})
	h.Served = true
	execenvtest.Run(t, h)
}

const maxLifetime = 24 * time.Hour
