package execd

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/execenvtest"
	"github.com/agentdock/agentdock/internal/execenv/fake"
	"github.com/agentdock/agentdock/internal/execenv/fake/simprobe"
)

// A Guard that lowers nothing is an Environment like any other.
func TestContract(t *testing.T) {
	var create, destroy switches
	execenvtest.Run(t, execenvtest.Harness{
		New: func(t *testing.T) execenv.Environment {
			f := fake.New(fake.Config{
				Programs:    map[string]fake.Program{simprobe.Name: simprobe.Probe},
				Images:      []string{"base"},
				CreateTakes: 5 * time.Millisecond,
				FailCreate:  create.check,
				FailDestroy: destroy.check,
			})
			g := NewGuard(f, Policy{MaxLifetime: maxLifetime}, quiet())
			done := make(chan struct{})
			go func() { defer close(done); g.Run(context.Background()) }()
			t.Cleanup(func() {
				if err := g.Close(context.Background()); err != nil {
					t.Error(err)
				}
				<-done
				f.Close()
			})
			return g
		},
		Image:       "base",
		Served:      true,
		Probe:       fake.Binary(simprobe.Name),
		FailCreate:  create.turnOn,
		FailDestroy: destroy.turnOn,
		Patience:    20 * time.Second,
	})
}

const maxLifetime = 24 * time.Hour

// switches make a fake fail for the IDs that are on.
type switches struct{ on sync.Map }

func (s *switches) check(id string) error {
	if _, on := s.on.Load(id); on {
		return errors.New("made to fail")
	}
	return nil
}

func (s *switches) turnOn(_ *testing.T, _ execenv.Environment, id string) (heal func()) {
	s.on.Store(id, true)
	return func() { s.on.Delete(id) }
}
