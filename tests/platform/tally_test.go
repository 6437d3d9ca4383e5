package platform

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agentdock/agentdock/api"
)

// row is what one kind of fault did.
type row struct {
	fault string
	times int

	jobs, succeeded, failed, cancelled int
	again                              int // attempts beyond the first
	// What must be 0: jobs without an end, commands that began twice in an
	// attempt, holes in logs, and what was left.
	lost, twice, holes, left int
	longest                  time.Duration
	// hits is how often it came when a job was in a state.
	mu   sync.Mutex
	hits map[string]int
}

func (r *row) hit(state string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hits == nil {
		r.hits = map[string]int{}
	}
	r.hits[state]++
}

func (r *row) saw(v verdict) {
	r.jobs++
	switch v.job.State {
	case api.JobStateSucceeded:
		r.succeeded++
	case api.JobStateFailed:
		r.failed++
	case api.JobStateCancelled:
		r.cancelled++
	}
	r.again += max(0, v.job.Attempt-1)
}

type tally struct {
	seed  uint64
	begun time.Time
	rows  []*row
	notes []string
}

// note is something that was measured beside the counts.
func (t *tally) note(format string, args ...any) {
	t.notes = append(t.notes, fmt.Sprintf(format, args...))
}

func newTally(seed uint64) *tally { return &tally{seed: seed, begun: time.Now()} }

func (t *tally) row(fault string) *row {
	for _, r := range t.rows {
		if r.fault == fault {
			return r
		}
	}
	r := &row{fault: fault}
	t.rows = append(t.rows, r)
	return r
}

func (t *tally) markdown() string {
	var b strings.Builder
	b.WriteString("# Faults of the platform\n\nWritten by `make chaos` (`tests/platform`): the programs agentdock-api, agentdock-worker (two) and agentdock-execd\n" +
		"with real sandboxes, over PostgreSQL, Redis and an S3 server, while one of them fails. Each job runs two\n" +
		"commands that say in their log and in an artifact how often they ran. Logs are followed by a caller from the\n" +
		"start, and compared with the record in the end. The time of the longest includes the fault itself. What failed\n" +
		"is infrastructure_lost, of jobs whose sandbox went with the execution service.\n\n")
	fmt.Fprintf(&b, "Seed %d, %s, %d processors, load average %s in the end.\n\n", t.seed, time.Since(t.begun).Round(time.Second), runtime.NumCPU(), loadAverage())
	b.WriteString("| fault | times | jobs | succeeded | failed | cancelled | further attempts | without an end | run twice in an attempt | log lost | left over | longest until all ended |\n" +
		"|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	sum := row{fault: "all"}
	for _, r := range t.rows {
		r.write(&b)
		sum.times += r.times
		sum.jobs += r.jobs
		sum.succeeded += r.succeeded
		sum.failed += r.failed
		sum.cancelled += r.cancelled
		sum.again += r.again
		sum.lost += r.lost
		sum.twice += r.twice
		sum.holes += r.holes
		sum.left += r.left
		sum.longest = max(sum.longest, r.longest)
	}
	sum.write(&b)
	b.WriteString("\nHit when a job was in a state, or a moment after (the last is one that has ended):\n\n")
	for _, r := range t.rows {
		var hits []string
		for _, state := range slices.Sorted(maps.Keys(r.hits)) {
			hits = append(hits, fmt.Sprintf("%s %d", state, r.hits[state]))
		}
		if len(hits) > 0 {
			fmt.Fprintf(&b, "- %s: %s\n", r.fault, strings.Join(hits, ", "))
		}
	}
	b.WriteString("\nMeasured beside:\n\n")
	for _, n := range t.notes {
		fmt.Fprintf(&b, "- %s\n", n)
	}
	return b.String()
}

// loadAverage says what else the machine was doing.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(text), " ")
	return one
}

func (r *row) write(b *strings.Builder) {
	fmt.Fprintf(b, "| %s | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %s |\n", r.fault, r.times, r.jobs, r.succeeded, r.failed, r.cancelled,
		r.again, r.lost, r.twice, r.holes, r.left, r.longest.Round(100*time.Millisecond))
}
