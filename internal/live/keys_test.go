package live

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/execenv/fake"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/tenant"
)

func TestSameKeySameSandbox(t *testing.T) {
	w := newWorld(t, fake.Config{})
	c := w.caller(tenant.Quota{Sandboxes: 1})
	r := Request{IdempotencyKey: "key", Env: map[string]string{"A": "b"}}
	first := w.create(c, r)
	// Another process, whose operator has other defaults, knows the request.
	again, created, err := w.another(Config{TTL: time.Hour}).Create(t.Context(), c, r)
	if err != nil || created || again.ID != first.ID || again.State != run.SandboxRunning {
		t.Errorf("created %v: %s, which is %s, %v", created, again.ID, again.State, err)
	}
	for what, other := range map[string]Request{
		"value":  {IdempotencyKey: "key", Env: map[string]string{"A": "c"}},
		"limits": {IdempotencyKey: "key", Env: r.Env, Limits: run.Limits{PIDs: 99}},
		"time":   {IdempotencyKey: "key", Env: r.Env, TTL: time.Hour},
	} {
		if _, _, err := w.Create(t.Context(), c, other); !fault.Is(err, fault.Conflict) {
			t.Errorf("another %s with the same key: %v", what, err)
		}
	}
	_, err = w.Kill(t.Context(), c, first.ID)
	w.ok(err)
	if again, created, err := w.Create(t.Context(), c, r); err != nil || created || again.ID != first.ID || again.Outcome == nil {
		t.Errorf("after its end, created %v: %s, %v, %v", created, again.ID, again.Outcome, err)
	}
	if n := w.there("here"); n != 0 {
		t.Errorf("there are %d sandboxes", n)
	}
}

// TestWhatIsOnRecordTellsNoValues: a request that differs in a value has another
// digest under the same key, and the same request another one under another key.
func TestWhatIsOnRecordTellsNoValues(t *testing.T) {
	name := func(key, value string) (string, string) {
		kept, digest, err := named(Request{IdempotencyKey: key, Env: map[string]string{"A": value}})
		if err != nil || kept == key {
			t.Fatalf("%q is kept, %v", kept, err)
		}
		return kept, string(digest[:])
	}
	key, one := name("k", "v")
	if _, other := name("k", "w"); other == one {
		t.Error("the digest does not cover values")
	}
	if otherKey, other := name("l", "v"); other == one || otherKey == key {
		t.Error("whoever reads the record can try values")
	}
}

func TestSameKeyWhileItIsMade(t *testing.T) {
	w := newWorld(t, fake.Config{CreateTakes: 200 * time.Millisecond})
	c := w.caller(tenant.Quota{Sandboxes: 1})
	ids, made := make([]string, 8), atomic.Int32{}
	var all sync.WaitGroup
	for i := range ids {
		all.Go(func() {
			box, created, err := w.Create(t.Context(), c, Request{IdempotencyKey: "key"})
			if err != nil || box.State != run.SandboxRunning {
				t.Errorf("%s is %s, %v", box.ID, box.State, err)
			}
			if ids[i] = box.ID; created {
				made.Add(1)
			}
		})
	}
	all.Wait()
	for _, id := range ids {
		if id != ids[0] || made.Load() != 1 {
			t.Fatalf("%d made: %v", made.Load(), ids)
		}
	}
}

// TestSameKeyAfterAFailure: what failed has made none, also for a call that was
// waiting for it.
func TestSameKeyAfterAFailure(t *testing.T) {
	begun, fail := make(chan struct{}), make(chan struct{})
	var tries atomic.Int32
	w := newWorld(t, fake.Config{FailCreate: func(string) error {
		if tries.Add(1) > 1 {
			return nil
		}
		close(begun)
		<-fail
		return errors.New("broken")
	}})
	c := w.caller(tenant.Quota{Sandboxes: 2})
	r := Request{IdempotencyKey: "key"}
	first := make(chan error, 1)
	go func() {
		_, _, err := w.Create(context.Background(), c, r)
		first <- err
	}()
	<-begun
	second := make(chan error, 1)
	go func() {
		box, created, err := w.Create(context.Background(), c, r)
		if err == nil && (!created || box.State != run.SandboxRunning) {
			err = errors.New("it is given what has failed")
		}
		second <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, _, err := w.Create(ctx, c, r); !fault.Is(err, fault.Unavailable) {
		t.Errorf("whoever does not wait is told %v", err)
	}
	close(fail)
	if err := <-first; err == nil {
		t.Error("the first did not fail")
	}
	if err := <-second; err != nil {
		t.Error(err)
	}
}
