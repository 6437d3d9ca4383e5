package doctor

import (
	"testing"

	"github.com/agentdock/agentdock/internal/execenv"
)

// What is declared to be missing is said of each check that is about it, and no
// check is said to hold that was not tried.
func TestDeclared(t *testing.T) {
	have := execenv.Capabilities{
		Isolation: execenv.IsolationContainer,
		Enforces:  execenv.Enforces{Disk: true, Inodes: true, Output: true, WallClock: true},
	}
	want := map[string]Status{
		"kernel isolation": NotEnforced, "process quota": NotEnforced, "processor quota": NotEnforced, "memory quota": NotEnforced,
	}
	found := 0
	for _, g := range declared(have) {
		status, missing := want[g.Name]
		if !missing {
			status = Unproven
		} else {
			found++
		}
		if g.Status != status || g.Evidence == "" {
			t.Errorf("%s: %s (%s), want %s", g.Name, g.Status, g.Evidence, status)
		}
	}
	if found != len(want) {
		t.Errorf("%d of %d checks were found by their names", found, len(want))
	}
	r := &Report{Guarantees: declared(have)}
	if r.judge(); r.OK || r.ExitStatus() != 1 {
		t.Error("a host that attacks were not tried on is said to hold")
	}
}
