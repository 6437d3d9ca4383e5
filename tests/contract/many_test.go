package contract

import (
	"fmt"
	"testing"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/testenv"
)

// A service in which many commands run goes on creating sandboxes.
func TestCreateBesideManyCommands(t *testing.T) {
	testenv.RequireRoot(t)
	env := testenv.StartExecd(t, testenv.BareStore(t), "--max-execs", "200").Dial()
	limits := run.DefaultLimits()
	limits.PIDs = 2000
	create := func(id string) execenv.Sandbox {
		t.Helper()
		sb, err := env.Create(t.Context(), execenv.Spec{ID: id, Image: testenv.BareImage, Limits: limits})
		if err != nil {
			t.Fatal(err)
		}
		return sb
	}
	busy := create("busy")
	for range 120 {
		// It waits for input that does not come.
		if _, err := busy.Exec(t.Context(), execenv.ExecSpec{Argv: []string{"/.agentdock/agentdock-guest", "unpack", "/workspace", "x"}, Stdin: true}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		create(fmt.Sprintf("late-%d", i))
	}
}
