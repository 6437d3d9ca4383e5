package gvisor

import (
	"context"
	"fmt"
	"testing"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/testenv"
)

// A service in which many commands run goes on creating sandboxes.
func TestCreateBesideManyCommands(t *testing.T) {
	testenv.RequireRoot(t)
	t.Parallel()
	env := newTestEnvironment(t)
	ctx := context.Background()
	limits := run.DefaultLimits()
	limits.PIDs = 1000
	busy, err := env.Create(ctx, execenv.Spec{ID: "busy", Image: "bare", Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	const commands = 90
	for range commands {
		// It waits for input that does not come.
		if _, err := busy.Exec(ctx, execenv.ExecSpec{Argv: []string{guestPath, "unpack", "/workspace", "x"}, Stdin: true}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		if _, err := env.Create(ctx, execenv.Spec{ID: fmt.Sprintf("late-%d", i), Image: "bare", Limits: limits}); err != nil {
			t.Fatalf("beside %d commands: %v", commands, err)
		}
	}
}

// Two services on one host never share a host user, and a user is used again
// only after its sandbox is gone.
func TestHostUsersAreNobodyElses(t *testing.T) {
	one, err := claimHostUsers()
	if err != nil {
		t.Fatal(err)
	}
	two, err := claimHostUsers()
	if err != nil {
		t.Fatal(err)
	}
	defer two.close()
	if one.first == two.first {
		t.Fatalf("both have the block at %d", one.first)
	}
	a, b := one.take(), one.take()
	if a == b || a < one.first || b >= one.first+blockSize {
		t.Errorf("users %d and %d of the block at %d", a, b, one.first)
	}
	one.release(a)
	if again := one.take(); again != a {
		t.Errorf("user %d is not used again, %d is", a, again)
	}
	first := one.first
	one.close()
	three, err := claimHostUsers()
	if err != nil {
		t.Fatal(err)
	}
	defer three.close()
	if three.first > first {
		t.Errorf("the block at %d is not given back; got %d", first, three.first)
	}
}
