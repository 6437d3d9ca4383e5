package simprobe

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/execenvtest"
	"github.com/agentdock/agentdock/internal/execenv/fake"
)

// Harness runs the suite against the fake, or against what wrap puts before
// it (a wire, a pool); nil is the fake itself. Everything the suite can ask
// for can be made to happen. wrap closes what it opens in t's clean-up.
func Harness(wrap func(t *testing.T, env execenv.Environment) execenv.Environment) execenvtest.Harness {
	var create, destroy Switches
	var inner sync.Map // the fake behind an environment
	open := func(t *testing.T) execenv.Environment {
		f := fake.New(fake.Config{
			Programs:    map[string]fake.Program{Name: Probe},
			Images:      []string{"base"},
			CreateTakes: 5 * time.Millisecond, // so that there is something to cut off
			FailCreate:  create.Check,
			FailDestroy: destroy.Check,
		})
		t.Cleanup(f.Close)
		env := execenv.Environment(f)
		if wrap != nil {
			env = wrap(t, f)
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
		Probe: fake.Binary(Name),
		KillInfrastructure: func(_ *testing.T, env execenv.Environment, id string) {
			fakeIn(env).Lose(id)
		},
		SpoilPaused: func(_ *testing.T, env execenv.Environment, id string) {
			fakeIn(env).Spoil(id)
		},
		// What is only in memory ends with its owner: nothing is left.
		Restart: func(t *testing.T, env execenv.Environment) execenv.Environment {
			fakeIn(env).Close()
			return open(t)
		},
		FailCreate:  create.TurnOn,
		FailDestroy: destroy.TurnOn,
		Patience:    20 * time.Second,
	}
}

// Switches make a fake fail for the IDs that are on.
type Switches struct{ on sync.Map }

// Check fails for an ID that is on.
func (s *Switches) Check(id string) error {
	if _, on := s.on.Load(id); on {
		return errors.New("made to fail")
	}
	return nil
}

// TurnOn makes an ID fail until it is healed.
func (s *Switches) TurnOn(_ *testing.T, _ execenv.Environment, id string) (heal func()) {
	s.on.Store(id, true)
	return func() { s.on.Delete(id) }
}
