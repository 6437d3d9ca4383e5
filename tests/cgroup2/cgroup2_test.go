package cgroup2

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/testenv"
)

// insideVariable is set in the machine, where this same test is what runs.
const insideVariable = "AGENTDOCK_TEST_INSIDE"

// limit bounds the machine's life: several times what it takes on two cores
// that have nothing else to do.
const limit = 10 * time.Minute

// contractCases are a few of those about evidence and what is left, which
// depend on control groups; the container's step has the memory limit and the
// restart. For all of the suite an emulated processor has not the time, and
// three of its cases not the speed: the clocks of X9 fork storm and P8 lifetime
// run out, and under a repeated fork bomb a starved sentry gives memory back
// too late for that case's small limit. One with more memory is inside.
const contractCases = "X4_result_has_times_and_counts|P2_failure_half_way.*|P5_failed_destroy.*|P8_sandbox_that_was_lost.*"

func contract(cases string) []string {
	return []string{"/test/contract.test", "-test.v", "-test.parallel=3", "-test.run=^TestGVisorThroughTheWire$/^cases$/^(" + cases + ")$"}
}

// planned is a step and what it must come to. A step whose output must hold
// something is a program that must fail with it; the others are Go tests.
type planned struct {
	Step
	fails string
}

func steps() []planned {
	env := []string{
		"PATH=/bin", insideVariable + "=1", "AGENTDOCK_TEST_BIN=/bin", "AGENTDOCK_TEST_PROBE=/test/probe",
		"AGENTDOCK_TEST_REQUIRE_REAL=1", "AGENTDOCK_TEST_PATIENCE=4m",
	}
	tests := []planned{
		{Step: Step{Name: "control groups", Argv: []string{"/test/cgroup.test", "-test.v"}, Seconds: 60}},
		{Step: Step{Name: "inside", Argv: []string{"/test/inside.test", "-test.v"}, Seconds: 200}},
		// The container's root holds the tests and the service, which therefore
		// has to make way for its sandboxes before it can limit them.
		{Step: Step{Name: "container", Group: "containers/one", Contained: true, Argv: contract("X9_memory_bomb.*|P4_restart.*"), Seconds: 200}},
		{Step: Step{
			Name: "container without memory", Group: "limited/one", Contained: true, Controllers: []string{"cpu", "pids"},
			Argv: []string{"/bin/agentdock-execd", "--socket", "/run/e.sock", "--state-dir", "/tmp/state", "--image-dir", "/tmp/images"}, Seconds: 60,
		}, fails: "lacks memory (it has: cpu, pids)"},
		{Step: Step{Name: "contract", Argv: contract(contractCases), Seconds: 400}},
	}
	for i := range tests {
		tests[i].Env = env
	}
	return tests
}

// TestPureV2 boots the machine and gives what ran in it as cases of its own.
func TestPureV2(t *testing.T) {
	if os.Getenv(insideVariable) != "" {
		runInside(t)
		return
	}
	m, missing := findMachine()
	if missing == "" && testing.Short() {
		missing = "time: it takes minutes"
	}
	if missing != "" {
		missing = "cannot boot a machine with cgroup v2: it lacks " + missing
		if os.Getenv("AGENTDOCK_TEST_REQUIRE_REAL") == "1" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	bin, dir := testenv.Binaries(t), t.TempDir()
	build(t, dir)
	files := parts{
		"/bin/agentdock-execd": filepath.Join(bin, "agentdock-execd"),
		"/bin/agentdock-guest": filepath.Join(bin, "agentdock-guest"),
		"/init":                filepath.Join(dir, "init"),
	}
	for _, name := range []string{"probe", "cgroup.test", "contract.test", "inside.test"} {
		files["/test/"+name] = filepath.Join(dir, name)
	}
	tests := steps()
	var plan Plan
	for _, s := range tests {
		plan.Steps = append(plan.Steps, s.Step)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var console transcript
	begun := time.Now()
	err := m.run(ctx, t, files, plan, console.line)
	if err != nil || !console.done {
		t.Errorf("the machine did not finish its plan within %s: %v; its last lines:\n%s", limit, err, console.tail())
	}
	t.Logf("the machine ran for %s", time.Since(begun).Round(time.Second))
	for _, s := range tests {
		t.Run(strings.ReplaceAll(s.Name, " ", "_"), func(t *testing.T) { s.check(t, console.steps[s.Name]) })
	}
}

// check gives a step's results as this test's own.
func (p planned) check(t *testing.T, got *stepLog) {
	switch {
	case got == nil:
		t.Fatal("it did not run")
	case p.fails != "":
		if got.status == "0" || !strings.Contains(got.text.String(), p.fails) {
			t.Errorf("it ended with status %s and should have failed with %q:\n%s", got.status, p.fails, &got.text)
		}
		return
	}
	t.Logf("took %s", got.took.Round(time.Second))
	results := results(got.text.String())
	for _, r := range results {
		t.Run(r.name, func(t *testing.T) {
			t.Logf("%s in the machine", r.took)
			switch r.verdict {
			case "FAIL":
				t.Fail()
			case "SKIP":
				t.Skip("skipped in the machine")
			}
		})
	}
	if got.status != "0" || len(results) == 0 || t.Failed() {
		t.Errorf("it ended with status %q after %d results:\n%s", got.status, len(results), &got.text)
	}
}

// result is how a Go test without subtests ended.
type result struct{ verdict, name, took string }

var resultLine = regexp.MustCompile(`(?m)^\s*--- (PASS|FAIL|SKIP): (\S+) \((\S+)\)`)

func results(text string) []result {
	all := resultLine.FindAllStringSubmatch(text, -1)
	var leaves []result
	for _, r := range all {
		parent := false
		for _, other := range all {
			parent = parent || strings.HasPrefix(other[2], r[2]+"/")
		}
		if !parent {
			leaves = append(leaves, result{r[1], r[2], r[3]})
		}
	}
	return leaves
}

// transcript is what the machine's console said.
type transcript struct {
	steps   map[string]*stepLog
	current *stepLog
	last    []string
	done    bool
}

type stepLog struct {
	text   strings.Builder
	status string // empty until it ended
	begun  time.Time
	took   time.Duration
}

func (c *transcript) line(line string) {
	c.last = append(c.last[max(0, len(c.last)-40):], line)
	if name, ok := strings.CutPrefix(line, Begin); ok {
		if c.steps == nil {
			c.steps = map[string]*stepLog{}
		}
		c.current = &stepLog{begun: time.Now()}
		c.steps[name] = c.current
		return
	}
	if end, ok := strings.CutPrefix(line, End); ok && c.current != nil {
		c.current.status = end[strings.LastIndexByte(end, ' ')+1:]
		c.current.took = time.Since(c.current.begun)
		c.current = nil
		return
	}
	if c.current != nil {
		fmt.Fprintln(&c.current.text, line)
	}
	c.done = c.done || line == Done
}

func (c *transcript) tail() string { return strings.Join(c.last, "\n") }
