package gvisor

import (
	"context"
	"testing"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/lifecycle"
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
	if _, err := env.Create(ctx, execenv.Spec{ID: "late", Image: "bare", Limits: run.DefaultLimits()}); err != nil {
		t.Fatal(err)
	}
	box, _ := inner(env).boxes.Find("late")
	begin := func(spec execenv.ExecSpec) (x execenv.Exec, p *program) {
		x, err := box.Begin(ctx, spec, func(c *lifecycle.Command) {
			p = &program{cmd: c, box: box}
			p.start()
		})
		if err != nil {
			t.Fatal(err)
		}
		return x, p
	}
	first, before := begin(execenv.ExecSpec{Argv: []string{guestPath}})
	if _, err := first.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	second, now := begin(execenv.ExecSpec{Argv: []string{guestPath, "unpack", "/workspace", "x"}, Stdin: true})
	if before.proc.slot != now.proc.slot {
		t.Fatalf("they have slots %d and %d, so this tests nothing", before.proc.slot, now.proc.slot)
	}
	if err := before.proc.kill(); err != nil {
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
