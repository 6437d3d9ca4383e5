package platform

import (
	"fmt"
	"runtime"
	"strings"
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
	b.WriteString("# Faults of the platform\n\nWritten by `make chaos` (`tests/platform`): an API, two workers, an execution service with real sandboxes,\n" +
		"PostgreSQL, Redis and an S3 server, each in processes of its own, while one of them fails. Each job runs two\n" +
		"commands that say in their log and in an artifact how often they ran. Logs are followed by a caller from the\n" +
		"start, and compared with the record in the end.\n\n")
	fmt.Fprintf(&b, "Seed %d, %s, %d processors.\n\n", t.seed, time.Since(t.begun).Round(time.Second), runtime.NumCPU())
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
	return b.String()
}

func (r *row) write(b *strings.Builder) {
	fmt.Fprintf(b, "| %s | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %s |\n", r.fault, r.times, r.jobs, r.succeeded, r.failed, r.cancelled,
		r.again, r.lost, r.twice, r.holes, r.left, r.longest.Round(100*time.Millisecond))
}
