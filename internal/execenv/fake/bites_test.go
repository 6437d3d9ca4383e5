package fake_test

import (
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/execenvtest"
	"github.com/agentdock/agentdock/internal/execenv/fake/simprobe"
)

// mutantVar tells a child process which mutant to run the suite against.
const mutantVar = "EXECENVTEST_MUTANT"

// TestSuiteBites runs the suite against environments with one defect each:
// the case that is about it must fail. A case fails a test of its own, so
// each runs in a child process.
func TestSuiteBites(t *testing.T) {
	if os.Getenv(mutantVar) != "" {
		t.Skip("this is the child")
	}
	for i, m := range mutants() {
		t.Run(m.caughtBy+"/"+m.defect, func(t *testing.T) {
			t.Parallel()
			out, err := child(t, strconv.Itoa(i), m.caughtBy)
			if !strings.Contains(out, "--- FAIL: TestMutant/cases/"+m.caughtBy) {
				t.Errorf("the suite let it pass (%v):\n%s", err, out)
			}
		})
	}
	// Negative control: the wrapper without a defect fails nothing.
	t.Run("no defect", func(t *testing.T) {
		if out, err := child(t, "-1", ""); err != nil {
			t.Errorf("the suite fails without a defect: %v\n%s", err, out)
		}
	})
}

func child(t *testing.T, mutant, only string) (string, error) {
	t.Helper()
	pattern := "^TestMutant$"
	if only != "" {
		pattern += "/^cases$/^" + only + "$"
	}
	cmd := exec.Command(os.Args[0], "-test.run="+pattern, "-test.short", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), mutantVar+"="+mutant)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("cannot run the child: %v", err)
	}
	return string(out), err
}

// TestSuiteSeesWhatIsLeft checks the checks that belong to no case.
func TestSuiteSeesWhatIsLeft(t *testing.T) {
	if os.Getenv(mutantVar) != "" {
		t.Skip("this is the child")
	}
	for mutant, says := range map[string]string{
		leftOnHost:    `the host still holds:\s+a mount`,
		leftGoroutine: "goroutines are left",
	} {
		t.Run(mutant, func(t *testing.T) {
			t.Parallel()
			out, err := child(t, mutant, "P1_create_is_idempotent")
			if err == nil || !regexp.MustCompile(says).MatchString(out) {
				t.Errorf("the suite let it pass (%v):\n%s", err, out)
			}
		})
	}
}

const (
	leftOnHost    = "something is left on the host"
	leftGoroutine = "a goroutine is left"
)

// TestMutant is the child's part.
func TestMutant(t *testing.T) {
	name := os.Getenv(mutantVar)
	if name == "" {
		return // it is not a test by itself: it runs as a child of those above
	}
	n, err := strconv.Atoi(name)
	h := simprobe.Harness(func(_ *testing.T, env execenv.Environment) execenv.Environment {
		b := &bend{Environment: env}
		switch {
		case err == nil && n >= 0:
			mutants()[n].bend(b)
		case name == leftGoroutine:
			go func() { select {} }()
		}
		return b
	})
	if name == leftOnHost {
		h.Leftovers = func(*testing.T, execenv.Environment) []string { return []string{"a mount"} }
	}
	if err == nil && n >= 0 {
		h.Patience = 2 * time.Second // a defect that hangs is found soon
	}
	execenvtest.Run(t, h)
}
