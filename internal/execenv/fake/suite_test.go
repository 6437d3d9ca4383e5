package fake_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/execenvtest"
	"github.com/agentdock/agentdock/internal/execenv/execenvtest/simprobe"
	"github.com/agentdock/agentdock/internal/execenv/fake"
)

func TestContract(t *testing.T) {
	execenvtest.Run(t, newHarness(nil))
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

// newHarness is for the fake, in what wrap makes of it.
func newHarness(wrap func(execenv.Environment) execenv.Environment) execenvtest.Harness {
	var create, destroy switches
	var inner sync.Map // the fake in an environment
	open := func(t *testing.T) execenv.Environment {
		f := fake.New(fake.Config{
			Programs:    map[string]fake.Program{simprobe.Name: simprobe.Probe},
			Images:      []string{"base"},
			CreateTakes: 5 * time.Millisecond,
			FailCreate:  create.check,
			FailDestroy: destroy.check,
		})
		t.Cleanup(f.Close)
		env := execenv.Environment(f)
		if wrap != nil {
			env = wrap(f)
		}
		inner.Store(env, f)
		return env
	}
	fakeIn := func(env execenv.Environment) *fake.Environment {
		f, _ := inner.Load(env)
		return f.(*fake.Environment)
	}
	return execenvtest.Harness{
		New:   open,
		Image: "base",
		Probe: fake.Binary(simprobe.Name),
		KillInfrastructure: func(_ *testing.T, env execenv.Environment, id string) {
			fakeIn(env).Lose(id)
		},
		Restart: func(t *testing.T, env execenv.Environment) execenv.Environment {
			fakeIn(env).Close()
			return open(t)
		},
		FailCreate:  create.turnOn,
		FailDestroy: destroy.turnOn,
		Patience:    20 * time.Second,
	}
}
