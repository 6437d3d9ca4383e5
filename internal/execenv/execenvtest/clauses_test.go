package execenvtest

import (
	"testing"

	"github.com/agentdock/agentdock/internal/clauses"
)

func TestEveryClauseHasACase(t *testing.T) { clauses.Hold(t, "../execenv.go", Cases()) }

func TestClausesSortAsInTheProtocol(t *testing.T) {
	want := []string{"P1", "P8", "X1", "X2", "X10", "O1", "A1", "G4"}
	for i := range len(want) - 1 {
		if !clauseLess(want[i], want[i+1]) || clauseLess(want[i+1], want[i]) {
			t.Errorf("%s does not come before %s", want[i], want[i+1])
		}
	}
}
