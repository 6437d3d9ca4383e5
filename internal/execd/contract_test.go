package execd

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/execenvtest"
	"github.com/agentdock/agentdock/internal/execenv/fake/simprobe"
	"github.com/agentdock/agentdock/internal/execenv/fake"
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
			return ownersClock{g}
		},
		Image:       "base",
		Probe:       fake.Binary(simprobe.Name),
		FailCreate:  create.turnOn,
		FailDestroy: destroy.turnOn,
		Patience:    20 * time.Second,
	})
}

const maxLifetime = 24 * time.Hour

// ownersClock hides MaxLifetime, which the suite does not know: to it, a
// sandbox that asks for no lifetime has none.
type ownersClock struct{ *Guard }

func (o ownersClock) List(ctx context.Context) ([]execenv.Info, error) {
	infos, err := o.Guard.List(ctx)
	for i, info := range infos {
		if time.Until(info.ExpiresAt) > maxLifetime/2 {
			infos[i].ExpiresAt = time.Time{}
		}
	}
	return infos, err
}

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
