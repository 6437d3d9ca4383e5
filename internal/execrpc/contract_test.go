package execrpc_test

import (
	"sync"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/execenvtest"
	"github.com/agentdock/agentdock/internal/execenv/fake"
	"github.com/agentdock/agentdock/internal/execenv/fake/simprobe"
	"github.com/agentdock/agentdock/internal/fault"
)

// The whole contract holds through the wire.
func TestContract(t *testing.T) {
	var create, destroy simprobe.Switches
	newFake := func(t *testing.T) *fake.Environment {
		f := fake.New(fake.Config{
			Programs:    map[string]fake.Program{simprobe.Name: simprobe.Probe},
			Images:      []string{"base"},
			CreateTakes: 5 * time.Millisecond,
			FailCreate:  create.Check,
			FailDestroy: destroy.Check,
		})
		t.Cleanup(f.Close)
		return f
	}
	type behind struct {
		service *service
		fake    *fake.Environment
	}
	var all sync.Map // *behind by client
	of := func(env execenv.Environment) *behind {
		b, _ := all.Load(env)
		return b.(*behind)
	}
	execenvtest.Run(t, execenvtest.Harness{
		New: func(t *testing.T) execenv.Environment {
			f := newFake(t)
			s := serve(t, f)
			client := dial(t, s.socket)
			all.Store(client, &behind{s, f})
			return client
		},
		Image: "base",
		Probe: fake.Binary(simprobe.Name),
		KillInfrastructure: func(_ *testing.T, env execenv.Environment, id string) {
			of(env).fake.Lose(id)
		},
		SpoilPaused: func(_ *testing.T, env execenv.Environment, id string) {
			of(env).fake.Spoil(id)
		},
		Restart: func(t *testing.T, env execenv.Environment) execenv.Environment {
			b := of(env)
			b.service.stop()
			b.fake.Close()
			b.fake = newFake(t)
			b.service.start(b.fake)
			// The client finds the new one at the old place. Calls that meet
			// the old connection first are Unavailable, and are repeated.
			for wait := ctx(t); ; {
				_, err := env.List(wait)
				if !fault.Is(err, fault.Unavailable) || wait.Err() != nil {
					return env
				}
			}
		},
		FailCreate:  create.TurnOn,
		FailDestroy: destroy.TurnOn,
		Patience:    20 * time.Second,
	})
}
