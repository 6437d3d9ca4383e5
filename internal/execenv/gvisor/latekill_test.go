package gvisor

import (
	"context"
	"testing"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/testenv"
)

// A command can end by itself just as it is to be killed. A kill that comes after
// its slot was given back must not reach whoever has the slot then.
func TestALateKillReachesNobodyElse(t *testing.T) {
	testenv.RequireRoot(t)
	t.Parallel()
	env := newTestEnvironment(t)
	ctx := context.Background()
	sb, err := env.Create(ctx, execenv.Spec{ID: "late", Image: "bare", Limits: run.DefaultLimits()})
	if err != nil {
		t.Fatal(err)
	}
	box, _ := inner(env).find("late")
	first, err := sb.Exec(ctx, execenv.ExecSpec{ID: "first", Argv: []string{guestPath}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	second, err := sb.Exec(ctx, execenv.ExecSpec{ID: "second", Argv: []string{guestPath, "unpack", "/workspace", "x"}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	box.mu.Lock()
	before, now := box.execs["first"].proc, box.execs["second"].proc
	box.mu.Unlock()
	if before.slot != now.slot {
		t.Fatalf("they have slots %d and %d, so this tests nothing", before.slot, now.slot)
	}
	if err := before.kill(); err != nil {
		t.Error(err)
	}
	if err := second.CloseStdin(ctx); err != nil {
		t.Error(err)
	}
	r, err := second.Wait(ctx)
	if err != nil || r.Outcome.Kind != run.Exited {
		t.Errorf("the second: %s (%s), %v", r.Outcome, r.Outcome.Evidence, err)
	}
}
