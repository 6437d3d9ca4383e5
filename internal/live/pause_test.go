package live

import (
	"context"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/fake"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/tenant"
)

func TestPauseAndResume(t *testing.T) {
	w := newWorld(t, fake.Config{})
	c, other := w.caller(tenant.Quota{}), w.caller(tenant.Quota{})
	box := w.create(c, Request{TTL: time.Minute})
	h, err := w.Open(t.Context(), c, box.ID)
	w.ok(err)
	x, err := h.Start(t.Context(), Command{ID: "cat", Argv: []string{"cat"}, Stdin: true})
	w.ok(err)

	_, err = w.Pause(t.Context(), other, box.ID)
	w.fails(err, fault.NotFound)
	_, err = w.Resume(t.Context(), c, box.ID, time.Minute)
	w.fails(err, fault.Conflict)
	paused, err := w.Pause(t.Context(), c, box.ID)
	w.ok(err)
	if paused.State != run.SandboxPaused || !paused.ExpiresAt.Equal(box.Deadline) {
		t.Errorf("paused it is %s until %s, want until its deadline, %s", paused.State, paused.ExpiresAt, box.Deadline)
	}
	for what, err := range map[string]error{
		"open":   second(w.Open(t.Context(), c, box.ID)),
		"extend": second(w.Extend(t.Context(), c, box.ID, time.Hour, false)),
		"pause":  second(w.Pause(t.Context(), c, box.ID)),
	} {
		if !fault.Is(err, fault.Conflict) {
			t.Errorf("%s of a paused sandbox: %v", what, err)
		}
	}
	for range 2 {
		w.sweep() // leaves it alone
	}
	w.is(box, run.SandboxPaused)

	_, err = w.Resume(t.Context(), other, box.ID, time.Minute)
	w.fails(err, fault.NotFound)
	resumed, err := w.Resume(t.Context(), c, box.ID, time.Hour)
	w.ok(err)
	if d := time.Until(resumed.ExpiresAt); resumed.State != run.SandboxRunning || d < 59*time.Minute || d > time.Hour {
		t.Errorf("resumed for an hour it is %s until %s", resumed.State, resumed.ExpiresAt)
	}
	_, err = x.WriteStdin(t.Context(), []byte("after"))
	w.ok(err)
	w.ok(x.CloseStdin(t.Context()))
	if out, outcome := w.follow(x); out != "after" || !outcome.Success() {
		t.Errorf("its command wrote %q and ended as %v", out, outcome)
	}
	_, err = w.Pause(t.Context(), c, box.ID)
	w.ok(err)
	killed, err := w.Kill(t.Context(), c, box.ID)
	w.ok(err)
	if killed.State != run.SandboxEnded || killed.Outcome.Kind != run.Cancelled || w.there("here") != 0 {
		t.Errorf("killed while it was paused it is %s (%v), and %d are there", killed.State, killed.Outcome, w.there("here"))
	}
	_, err = w.Resume(t.Context(), c, box.ID, time.Minute)
	w.fails(err, fault.Gone)
}

func second[T any](_ T, err error) error { return err }

// resumedFirst is a record on which somebody else always resumes first, for so long.
type resumedFirst struct {
	Record
	ttl time.Duration
}

func (r resumedFirst) ResumeSandbox(ctx context.Context, id string, ttl time.Duration) (run.Sandbox, error) {
	if _, err := r.Record.ResumeSandbox(ctx, id, r.ttl); err != nil {
		return run.Sandbox{}, err
	}
	return r.Record.ResumeSandbox(ctx, id, ttl)
}

// TestTwoResumeAtOnce: it lives for the longer time, on record and by its clock.
func TestTwoResumeAtOnce(t *testing.T) {
	for what, ttl := range map[string]struct{ theirs, ours time.Duration }{
		"theirs is longer": {time.Hour, time.Minute}, "ours is longer": {time.Minute, time.Hour},
	} {
		w := newWorld(t, fake.Config{})
		w.record = resumedFirst{w.record, ttl.theirs}
		c := w.caller(tenant.Quota{})
		box := w.create(c, Request{})
		_, err := w.Pause(t.Context(), c, box.ID)
		w.ok(err)
		resumed, err := w.Resume(t.Context(), c, box.ID, ttl.ours)
		w.ok(err)
		if d := time.Until(resumed.ExpiresAt); d < 59*time.Minute || d > time.Hour {
			t.Errorf("%s: on record it ends in %s", what, d)
		}
		there, err := w.envs["here"].Attach(t.Context(), box.ID)
		w.ok(err)
		info, err := there.Info(t.Context())
		w.ok(err)
		if d := info.ExpiresAt.Sub(resumed.ExpiresAt); d.Abs() > time.Minute {
			t.Errorf("%s: by its clock it ends %s after what is on record", what, d)
		}
	}
}

// TestPauseThatIsNotOnRecord: who asked for it died before it was noted.
func TestPauseThatIsNotOnRecord(t *testing.T) {
	w := newWorld(t, fake.Config{})
	c := w.caller(tenant.Quota{})
	box := w.create(c, Request{})
	there, err := w.envs["here"].Attach(t.Context(), box.ID)
	w.ok(err)
	for _, turn := range []struct {
		do   func() error
		want run.SandboxState
	}{
		{func() error { return there.Pause(t.Context(), time.Hour) }, run.SandboxPaused},
		{func() error { return there.Resume(t.Context(), time.Hour) }, run.SandboxRunning},
	} {
		w.ok(turn.do())
		w.sweep()
		w.is(box, turn.want)
	}
	if info, err := there.Info(t.Context()); err != nil || info.State != execenv.StateRunning {
		t.Errorf("it is %v, %v", info.State, err)
	}
	if out, _ := w.run(c, box.ID, "echo", "alive"); out != "alive\n" {
		t.Errorf("it prints %q", out)
	}
}

// TestSpoiledWhilePaused: the end of what cannot be resumed is the truth.
func TestSpoiledWhilePaused(t *testing.T) {
	w := newWorld(t, fake.Config{})
	c := w.caller(tenant.Quota{})
	box := w.create(c, Request{})
	_, err := w.Pause(t.Context(), c, box.ID)
	w.ok(err)
	w.envs["here"].Spoil(box.ID)
	_, err = w.Resume(t.Context(), c, box.ID, time.Minute)
	w.fails(err, fault.Gone)
	w.sweep()
	if now := w.is(box, run.SandboxEnded); now.Outcome.Kind != run.InfrastructureLost {
		t.Errorf("it ended as %v", now.Outcome)
	}
}
