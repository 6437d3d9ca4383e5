package storetest_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/agentdock/agentdock/internal/store"
	"github.com/agentdock/agentdock/internal/store/sqlite"
	"github.com/agentdock/agentdock/internal/store/storetest"
)

// mutantVar tells a child process which defect to run the suite against.
const mutantVar = "STORETEST_MUTANT"

// TestSuiteBites runs the suite against stores with one defect each: the case
// that is about it must fail. A case fails a test of its own, so each runs in
// a child process.
func TestSuiteBites(t *testing.T) {
	if os.Getenv(mutantVar) != "" {
		t.Skip("this is the child")
	}
	for i, m := range allMutants() {
		t.Run(m.caughtBy+"/"+m.defect, func(t *testing.T) {
			t.Parallel()
			out, err := child(t, strconv.Itoa(i), m.caughtBy)
			if !strings.Contains(out, "--- FAIL: TestMutant/cases/"+m.caughtBy) {
				t.Errorf("the suite let it pass (%v):\n%s", err, out)
			}
		})
		// Negative control: without the defect the case passes.
		t.Run(m.caughtBy+"/no defect", func(t *testing.T) {
			t.Parallel()
			if out, err := child(t, "-1", m.caughtBy); err != nil {
				t.Errorf("the case fails without a defect: %v\n%s", err, out)
			}
		})
	}
}

func child(t *testing.T, mutant, only string) (string, error) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestMutant$/^cases$/^"+only+"$", "-test.short", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), mutantVar+"="+mutant)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("cannot run the child: %v", err)
	}
	return string(out), err
}

// TestMutant runs the suite in a child process.
func TestMutant(t *testing.T) {
	which, err := strconv.Atoi(os.Getenv(mutantVar))
	if err != nil {
		return // not a child
	}
	storetest.Run(t, storetest.Harness{
		Place: func(t *testing.T) string { return filepath.Join(t.TempDir(), "record.db") },
		Open: func(place string) (store.Store, error) {
			s, err := sqlite.Open(context.Background(), place)
			if err != nil || which < 0 {
				return s, err
			}
			return allMutants()[which].plant(s), nil
		},
	})
}
