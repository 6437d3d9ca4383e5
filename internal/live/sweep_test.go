package live

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/fake"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
	"github.com/agentdock/agentdock/internal/tenant"
)

func (w *world) sweep() {
	w.Helper()
	w.ok(w.Sweep(w.Context()))
}

func (w *world) eventually(what string, holds func() bool) {
	w.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatalf("%s did not happen in a minute", what)
		}
	}
}

func TestTimeIsOver(t *testing.T) {
	w := newWorld(t, fake.Config{})
	c := w.caller(tenant.Quota{})
	short, stays, extended := w.create(c, Request{TTL: MinTTL}), w.create(c, Request{}), w.create(c, Request{TTL: MinTTL})
	_, err := w.Extend(t.Context(), c, extended.ID, time.Hour, false)
	w.ok(err)
	w.eventually("the end", func() bool {
		w.sweep()
		box, err := w.Get(t.Context(), c, short.ID)
		return err == nil && box.State == run.SandboxEnded
	})
	if got := w.is(short, run.SandboxEnded); got.Outcome.Kind != run.WallClock {
		t.Errorf("ended as %v", got.Outcome)
	}
	w.is(stays, run.SandboxRunning)
	w.is(extended, run.SandboxRunning)
	if n := w.there("here"); n != 2 {
		t.Errorf("%d sandboxes are there, want 2", n)
	}
	_, err = w.Extend(t.Context(), c, short.ID, time.Hour, false)
	w.fails(err, fault.Gone)
}

// TestLostWithItsService: a service that ends takes its sandboxes with it, and
// the record says so; those of another go on.
func TestLostWithItsService(t *testing.T) {
	w := newWorld(t, fake.Config{}, "a", "b")
	c := w.caller(tenant.Quota{})
	at := map[string]run.Sandbox{}
	for len(at) < 2 {
		box := w.create(c, Request{})
		at[box.Node] = box
	}
	// It is there again, with nothing in it.
	w.ok(w.envs["a"].Destroy(t.Context(), at["a"].ID))
	_, err := w.Open(t.Context(), c, at["a"].ID)
	if err == nil { // the handle is remembered; its use tells
		h, _ := w.Open(t.Context(), c, at["a"].ID)
		_, err = h.Start(t.Context(), Command{Argv: []string{"true"}})
	}
	w.fails(err, fault.Gone)
	w.sweep()
	if got := w.is(at["a"], run.SandboxEnded); got.Outcome.Kind != run.InfrastructureLost {
		t.Errorf("ended as %v", got.Outcome)
	}
	w.is(at["b"], run.SandboxRunning)
	if out, _ := w.run(c, at["b"].ID, "echo", "on"); out != "on\n" {
		t.Errorf("the other says %q", out)
	}
}

// TestServiceAway: while a service is away nothing is known of its sandboxes, so
// nothing is said; those that ended keep their places for a bounded time.
func TestServiceAway(t *testing.T) {
	w := newWorld(t, fake.Config{})
	c := w.caller(tenant.Quota{Sandboxes: 1})
	box := w.create(c, Request{})
	w.stop["here"]()
	w.eventually("an error", func() bool { return w.Sweep(t.Context()) != nil })
	w.is(box, run.SandboxRunning)
	killed, err := w.Kill(t.Context(), c, box.ID)
	w.ok(err)
	if killed.State != run.SandboxEnding {
		t.Errorf("killed while its service is away: %s", killed.State)
	}
	_, _, err = w.Create(t.Context(), c, Request{})
	w.fails(err, fault.Exhausted)
	old := killed
	old.ExpiresAt = time.Now().Add(-givenUp - time.Second)
	w.giveUp(t.Context(), []run.Sandbox{old})
	w.is(box, run.SandboxEnded)
}

// TestOrphans: what a service has and nobody needs goes; a job's sandbox, and
// one that says too little, stay.
func TestOrphans(t *testing.T) {
	w := newWorld(t, fake.Config{})
	c := w.caller(tenant.Quota{})
	needed := w.create(c, Request{})
	id, err := newID()
	w.ok(err)
	labels := func(id string) map[string]string { return map[string]string{labelSandbox: "true", labelID: id} }
	job := labels("0198c5d8-3c5b-7000-8000-000000000000")
	job[labelAttempt] = "1"
	for _, spec := range []execenv.Spec{
		{ID: id, Labels: labels(id)},
		{ID: "0198c5d8-3c5b-7000-8000-000000000000-1", Labels: job},
		{ID: "somebodys"},
		{ID: "another", Labels: labels(id)},
	} {
		spec.Image, spec.Limits = "default", run.DefaultLimits()
		_, err := w.envs["here"].Create(t.Context(), spec)
		w.ok(err)
	}
	w.sweep()
	infos, err := w.envs["here"].List(t.Context())
	w.ok(err)
	left := map[string]bool{}
	for _, info := range infos {
		left[info.ID] = true
	}
	if left[id] || len(left) != 4 || !left[needed.ID] {
		t.Errorf("left are %v, want all but %s", left, id)
	}
}

// TestProcessDiesWhileItCreates: a sandbox that is on record and that nobody
// finishes ends, wherever its creator stopped.
func TestProcessDiesWhileItCreates(t *testing.T) {
	w := newWorld(t, fake.Config{})
	c := w.caller(tenant.Quota{Sandboxes: 2})
	var boxes []run.Sandbox
	for i := range 2 {
		n, err := w.complete(c, Request{})
		w.ok(err)
		box, err := w.store.CreateSandbox(t.Context(), n)
		w.ok(err)
		boxes = append(boxes, box)
		if i == 1 {
			w.ok(w.store.PlaceSandbox(t.Context(), box.ID, "here"))
			_, err = w.envs["here"].Create(t.Context(), execenv.Spec{
				ID: box.ID, Image: "default", Limits: run.DefaultLimits(), Labels: map[string]string{labelSandbox: "true", labelID: box.ID},
			})
			w.ok(err)
		}
	}
	w.sweep() // its creator may still be at work
	w.is(boxes[0], run.SandboxCreating)
	if n := w.there("here"); n != 1 {
		t.Fatalf("%d sandboxes are there", n)
	}
	later := w.another(Config{Starting: time.Nanosecond})
	w.ok(later.Sweep(t.Context()))
	for _, box := range boxes {
		w.is(box, run.SandboxEnded)
	}
	if n := w.there("here"); n != 0 {
		t.Errorf("%d sandboxes are left", n)
	}
}

// TestDestroyThatFails is tried again, and nobody is told that it is done.
func TestDestroyThatFails(t *testing.T) {
	var broken atomic.Bool
	broken.Store(true)
	w := newWorld(t, fake.Config{FailDestroy: func(string) error {
		if broken.Load() {
			return errors.New("broken")
		}
		return nil
	}})
	c := w.caller(tenant.Quota{})
	box := w.create(c, Request{})
	killed, err := w.Kill(t.Context(), c, box.ID)
	w.ok(err)
	if killed.State != run.SandboxEnding {
		t.Errorf("it is %s although it is there", killed.State)
	}
	if err := w.Sweep(t.Context()); err == nil {
		t.Error("a sweep that could not remove it says nothing")
	}
	broken.Store(false)
	w.sweep()
	w.is(box, run.SandboxEnded)
}

func TestRunEndsAndMeasures(t *testing.T) {
	w := newWorld(t, fake.Config{})
	c := w.caller(tenant.Quota{})
	box := w.create(c, Request{})
	s := w.another(Config{Sweep: 10 * time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Run(ctx) }()
	w.eventually("a sample", func() bool { return len(s.usage.of(box.ID)) > 0 })
	cancel()
	<-done
	_, samples, err := s.Metrics(t.Context(), c, box.ID)
	if err != nil || len(samples) < 2 {
		t.Errorf("%v, %v", samples, err)
	}
}

func TestOldRecordsGo(t *testing.T) {
	w := newWorld(t, fake.Config{})
	c := w.caller(tenant.Quota{})
	box := w.create(c, Request{})
	_, err := w.Kill(t.Context(), c, box.ID)
	w.ok(err)
	s := w.another(Config{Retention: time.Nanosecond})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Run(ctx) }()
	w.eventually("the record is removed", func() bool {
		page, err := w.store.Sandboxes(t.Context(), store.SandboxQuery{TenantID: c.Tenant.ID})
		return err == nil && len(page.Sandboxes) == 0
	})
	cancel()
	<-done
}
