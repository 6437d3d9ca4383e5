package doctor

import (
	"strings"
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
			status = Declared
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
	r := &Report{Development: true, Environments: []EnvironmentReport{{Runs: true}}, Guarantees: declared(have)}
	if r.judge(); r.OK || r.ExitStatus() != 1 {
		t.Error("a host that attacks were not tried on is said to hold")
	}
	const says = "11 of 15 guarantees are declared, and none is attacked; 4 are not given here: A1 kernel isolation, A5g process quota, A5g processor quota, A5g memory quota."
	if got := r.Summary(); !strings.Contains(got, says) {
		t.Errorf("it says %q", got)
	}
	r.Environments[0].Runs = false
	if got := r.Summary(); !strings.Contains(got, "No sandbox can be started") {
		t.Errorf("where nothing runs, it says %q", got)
	}
}
