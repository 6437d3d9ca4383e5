package docker

import (
	"slices"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/clauses"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/execenvtest"
	"github.com/agentdock/agentdock/internal/testenv"
)

// TestWithControlGroups: a daemon that has them is held to the limits that another
// declares it cannot enforce. Here only one that runs as root has them, which is
// refused outside of tests; what it does with a limit is the same.
func TestWithControlGroups(t *testing.T) {
	daemon := testenv.StartRootfulDockerd(t)
	daemon.ImportBare()
	open := func(t *testing.T) *testEnvironment {
		return openTest(t, daemon, stateDir(t, daemon), func(c *Config) { c.AllowRootful = true })
	}
	t.Run("declared", func(t *testing.T) {
		if missing := open(t).Capabilities().Enforces.Missing(); len(missing) > 0 {
			t.Errorf("it declares that it cannot enforce %q", missing)
		}
	})
	t.Run("contract", func(t *testing.T) {
		execenvtest.Run(t, execenvtest.Harness{
			New:   func(t *testing.T) execenv.Environment { return open(t) },
			Image: testenv.BareImage,
			// Where limits are: on record, enforced, and of what has ended.
			Only:               func(c clauses.Case) bool { return slices.Contains([]string{"P3", "P8", "X9"}, c.Clause) },
			Leftovers:          leftovers,
			KillInfrastructure: killSupervisor,
		})
	})
	t.Run("processor", func(t *testing.T) { processorLimit(t, open(t)) })
}

// processorLimit lets two threads of a sandbox burn what they get, and once more
// in one that may have eight times as much.
func processorLimit(t *testing.T, e *testEnvironment) {
	used := func(id string, milli int64) float64 {
		s := spec(e, id)
		s.Limits.MilliCPU = milli
		sb, err := e.Create(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		before, err := sb.Usage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if r := wait(t, start(t, sb, guestPath, "probe", "burn", "1500")); !r.Outcome.Success() {
			t.Fatalf("it ended as %v", r.Outcome)
		}
		after, err := sb.Usage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if after.MemoryBytes == 0 || after.PeakMemoryBytes < after.MemoryBytes {
			t.Errorf("of memory it says that it uses %d bytes, at most %d", after.MemoryBytes, after.PeakMemoryBytes)
		}
		return (after.CPU - before.CPU).Seconds() / time.Since(began).Seconds()
	}
	const few, many = 100, 800
	if got := used("few", few); got <= 0 || got > 1.5*few/1000 {
		t.Errorf("with a limit of %d thousandths it used %.3f processors", few, got)
	}
	// Control: the limit is what kept it.
	if got := used("many", many); got <= 1.5*few/1000 {
		t.Errorf("with a limit of %d thousandths it used %.3f processors too, so this shows nothing", many, got)
	}
}
