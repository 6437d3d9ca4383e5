package execrpc_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
)

func mustBeLeft(t *testing.T, env *stub, want int) {
	t.Helper()
	env.mu.Lock()
	defer env.mu.Unlock()
	if len(env.boxes) != want {
		t.Errorf("%d sandboxes are left, want %d", len(env.boxes), want)
	}
}

// An environment that succeeds although its caller has gone is the hard case:
// it kept its own contract, and yet nobody knows of the sandbox.
func TestACreateNobodyWaitsForLeavesNothing(t *testing.T) {
	env := newStub()
	entered := make(chan struct{})
	env.onCreate = func(ctx context.Context, _ execenv.Spec) error {
		entered <- struct{}{}
		<-ctx.Done()
		return nil
	}
	c := wired(t, env)
	call, cancel := context.WithCancel(ctx(t))
	result := make(chan error, 1)
	go func() { _, err := c.Create(call, spec("a")); result <- err }()
	<-entered
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("Create = %v, want the caller's own end", err)
	}
	mustBeLeft(t, env, 0) // at once, not some time later
	env.onCreate = nil
	box(t, c, "a") // and the ID can be used again
	mustBeLeft(t, env, 1)
}

func TestAnAnswerThatWasLostIsUndone(t *testing.T) {
	env := newStub()
	c := wired(t, env)
	for i := range 60 {
		call, cancel := context.WithTimeout(ctx(t), time.Duration(i)*20*time.Microsecond)
		_, err := c.Create(call, spec("a"))
		cancel()
		if err != nil {
			mustBeLeft(t, env, 0)
			continue
		}
		mustBeLeft(t, env, 1)
		if err := c.Destroy(ctx(t), "a"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUndoingACreateSparesWhatOthersHave(t *testing.T) {
	env := newStub()
	var hold atomic.Bool
	entered := make(chan struct{})
	env.onCreate = func(ctx context.Context, _ execenv.Spec) error {
		if hold.Load() {
			entered <- struct{}{}
			<-ctx.Done()
		}
		return nil
	}
	c := wired(t, env)
	box(t, c, "mine")
	env.mu.Lock()
	env.boxes["older"] = &stubBox{s: env, spec: spec("older"), execs: map[string]*stubExec{}} // of an earlier life of the service
	env.mu.Unlock()
	hold.Store(true)
	for _, id := range []string{"mine", "older"} {
		call, cancel := context.WithCancel(ctx(t))
		result := make(chan error, 1)
		go func() { _, err := c.Create(call, spec(id)); result <- err }()
		<-entered
		cancel()
		if err := <-result; err == nil {
			t.Error("Create succeeded after its context had ended")
		}
		if _, err := c.Attach(ctx(t), id); err != nil {
			t.Errorf("sandbox %s: %v", id, err)
		}
	}
}

func TestConcurrentCreatesOfWhichSomeAreAbandoned(t *testing.T) {
	env := newStub()
	c := wired(t, env)
	for range 30 {
		var all sync.WaitGroup
		var kept atomic.Int32
		for i := range 6 {
			all.Go(func() {
				call, cancel := context.WithTimeout(ctx(t), time.Duration(i)*300*time.Microsecond)
				defer cancel()
				if _, err := c.Create(call, spec("a")); err == nil {
					kept.Add(1)
				}
			})
		}
		all.Wait()
		mustBeLeft(t, env, min(int(kept.Load()), 1))
		if err := c.Destroy(ctx(t), "a"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestACreateThatFailsIsNotUndoneTwice(t *testing.T) {
	env := newStub()
	env.onCreate = func(context.Context, execenv.Spec) error { return fault.New(fault.Exhausted, "full") }
	env.onDestroy = func(id string) error { t.Errorf("Destroy(%s)", id); return nil }
	_, err := wired(t, env).Create(ctx(t), spec("a"))
	wantCode(t, "Create", err, fault.Exhausted)
}
