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
