package chaos

import (
	"fmt"
	"runtime"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/run"
)

// What is measured.
const (
	execdToSentries  = "execd killed, until none of its sentries exists"
	execdToAll       = "execd killed, until no process it started exists"
	execdToReady     = "execd started again, until it serves"
	sentryToEmpty    = "sentry killed, until its control group is empty"
	stoppedToOutcome = "sentry stopped, from a command's limit to its outcome"
)

// tally is what was done and seen.
type tally struct {
	seed  uint64
	begun time.Time
	left  []string // after everything was destroyed

	mu         sync.Mutex
	kills      map[kind]int
	durations  map[string][]time.Duration
	seen       map[string]map[string]int // by what, then by outcome
	violations []string
	excused    []event                  // what only a kill can explain
	hit        map[string]map[kind]bool // sandboxes in which something was killed
	serial     int
}

func newTally(seed uint64) *tally {
	return &tally{
		seed: seed, begun: time.Now(), kills: map[kind]int{}, durations: map[string][]time.Duration{},
		seen: map[string]map[string]int{}, hit: map[string]map[kind]bool{},
	}
}

func (t *tally) killed(k kind) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kills[k]++
}

// touched is called before the kill, so that nothing can be seen before it.
func (t *tally) touched(sandbox string, k kind) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.hit[sandbox] == nil {
		t.hit[sandbox] = map[kind]bool{}
	}
	t.hit[sandbox][k] = true
}

func (t *tally) took(what string, d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.durations[what] = append(t.durations[what], d)
}

func (t *tally) unique() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.serial++
	return strconv.Itoa(t.serial)
}

func (t *tally) saw(e event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seen[e.What] == nil {
		t.seen[e.What] = map[string]int{}
	}
	t.seen[e.What][e.Outcome]++
	if e.Violation != "" {
		t.violations = append(t.violations, e.Sandbox+": "+e.Violation)
	}
	if len(e.Excuse) > 0 {
		t.excused = append(t.excused, e)
	}
}

// check fails the test for everything that must not be.
func (t *tally) check(tt *testing.T) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.excused {
		if !slices.ContainsFunc(e.Excuse, func(k kind) bool { return t.hit[e.Sandbox][k] }) {
			t.violations = append(t.violations, fmt.Sprintf("%s: %s, and nothing was killed that explains it", e.Sandbox, e.Outcome))
		}
	}
	for _, v := range t.violations {
		tt.Error(v)
	}
	for _, l := range t.left {
		tt.Errorf("left over: %s", l)
	}
	if t.seen["exec"][string(run.Exited)] == 0 {
		tt.Error("no command ever ended by itself: nothing was tested")
	}
	for what, all := range t.durations {
		if slices.Max(all) >= patience {
			tt.Errorf("%s: not within %v", what, patience)
		}
	}
}

// rows are the lines of the table: a heading, or a name and a value.
func (t *tally) rows() (rows [][2]string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	add := func(name, format string, args ...any) {
		rows = append(rows, [2]string{name, fmt.Sprintf(format, args...)})
	}
	total := 0
	for k, n := range t.kills {
		if k != stopSentry {
			total += n
		}
	}
	add("seed", "%d", t.seed)
	add("time", "%s, %d processors", time.Since(t.begun).Round(time.Second), runtime.NumCPU())
	add("kills", "%d", total)
	for _, s := range shares {
		add("– "+string(s.kind), "%d", t.kills[s.kind])
	}
	for _, what := range []string{"create", "exec", "archive", "destroy"} {
		outcomes, n := make([]string, 0), 0
		for o, k := range t.seen[what] {
			outcomes, n = append(outcomes, o), n+k
		}
		sort.Strings(outcomes)
		add(what+", calls that clients saw end", "%d", n)
		for _, o := range outcomes {
			add("– "+o, "%d", t.seen[what][o])
		}
	}
	add("untrue or missing outcomes", "%d", len(t.violations))
	add("leftovers", "%d", len(t.left))
	for _, what := range []string{execdToSentries, execdToAll, execdToReady, sentryToEmpty, stoppedToOutcome} {
		if all := slices.Sorted(slices.Values(t.durations[what])); len(all) > 0 {
			at := func(q int) time.Duration { return all[min(len(all)-1, len(all)*q/100)].Round(100 * time.Microsecond) }
			add(what, "p50 %v, p99 %v, most %v (%d times)", at(50), at(99), at(100), len(all))
		}
	}
	return rows
}

func (t *tally) table() string {
	var b strings.Builder
	for _, r := range t.rows() {
		fmt.Fprintf(&b, "%-60s %s\n", r[0], r[1])
	}
	return b.String()
}

func (t *tally) markdown() string {
	var b strings.Builder
	b.WriteString("# Chaos\n\nWritten by `make chaos` (`tests/chaos`): clients create, use and destroy sandboxes while processes of\n" +
		"the execution service, its sandboxes and its clients are killed with SIGKILL at random moments.\n\n| | |\n|---|---|\n")
	for _, r := range t.rows() {
		fmt.Fprintf(&b, "| %s | %s |\n", r[0], r[1])
	}
	return b.String()
}
