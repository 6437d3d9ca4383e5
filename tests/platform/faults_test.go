package platform

import (
	"fmt"
	"time"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/testenv"
)

// kind is a kind of fault, caused while jobs run.
type kind struct {
	name  string
	shape shape
	// before, if set, is done before the jobs are submitted.
	before func(w *world)
	// cause returns when the fault is over: what was killed runs again.
	cause func(w *world, of *row, jobs []*submitted)
	// expect says what is wrong with how a job ended, or "".
	expect func(v verdict) string
}

// kinds are tried in this order, which puts next to each other what has
// nothing in common.
func kinds(long bool) []kind {
	away, queued := 4*time.Second, 100
	if long {
		away, queued = time.Minute, 10_000
	}
	all := []kind{
		{name: "none", cause: nothing, expect: undisturbed},
		{name: "API killed", cause: apiKilled, expect: undisturbed},
		{name: "a worker killed", cause: workerKilled, expect: succeeded},
		{name: "both workers killed at once", cause: workersKilled, expect: succeeded},
		{name: "execution service killed", cause: execdKilled, expect: lostOrSucceeded},
		{name: "PostgreSQL restarted", cause: postgresRestarted, expect: succeeded},
		{name: "PostgreSQL crashed", cause: postgresCrashed, expect: succeeded},
		{name: "Redis flushed, and full of duplicates", cause: redisFlushed, expect: undisturbed},
		{name: "Redis killed, absent for " + away.String(), cause: redisAway(away), expect: undisturbed},
		{name: "object store absent for " + (away / 2).String(), cause: storeAway(away / 2), expect: complete},
		{name: "a worker stopped for three leases", cause: workerPaused, expect: succeeded},
		{name: "both workers woken at once for every job", before: stopWorkers, cause: wakeWorkers, expect: undisturbed},
		{name: "the record's clock steps an hour ahead", cause: clockAhead, expect: succeeded},
		{name: "the record's clock steps an hour back, and a worker dies", cause: clockBack, expect: succeeded},
		{name: "cancelled in every state", shape: shape{jobs: 12}, cause: cancelled, expect: cancelledOrSucceeded},
		{name: "logs read at one byte a second", shape: talkative, cause: slowReaders, expect: undisturbed},
		{name: fmt.Sprintf("%d jobs of one tenant queued", queued), cause: backlog(queued), expect: undisturbed},
		{name: "everything killed at once", cause: everythingKilled, expect: lostOrSucceeded},
	}
	if testenv.CanSetClocks {
		all = append(all, kind{name: "the clocks of API, workers and execution service step", cause: clocksStep, expect: undisturbed})
	}
	for i := range all {
		s := &all[i].shape
		if jobs := s.jobs; s.lines == 0 {
			*s = usual
			if jobs > 0 {
				s.jobs = jobs
			}
		}
	}
	return all
}

// What is expected. No fault of a part makes a program fail, and what no
// sandbox was lost for is not run again.

func succeeded(v verdict) string {
	if v.job.State != api.JobStateSucceeded || v.job.Lost != 0 {
		return fmt.Sprintf("it is %s, and %d attempts were lost: %+v", v.job.State, v.job.Lost, v.job.Outcome)
	}
	return ""
}

// complete adds that all of its files were kept.
func complete(v verdict) string {
	if v.artifacts != "" {
		return v.artifacts
	}
	return succeeded(v)
}

// undisturbed adds that nobody but one worker had the job, once.
func undisturbed(v verdict) string {
	if v.job.Attempt != 1 || v.fence != 1 {
		return fmt.Sprintf("it had %d attempts and %d claims, though nothing happened to its worker", v.job.Attempt, v.fence)
	}
	return complete(v)
}

func lostOrSucceeded(v verdict) string {
	if v.job.State == api.JobStateFailed && v.job.Outcome.Kind == string(run.InfrastructureLost) {
		return ""
	}
	return succeeded(v)
}

func cancelledOrSucceeded(v verdict) string {
	if v.job.State == api.JobStateCancelled && v.job.Outcome.Kind == string(run.Cancelled) {
		return ""
	}
	return succeeded(v)
}

// edges are the states between which something is hit.
var edges = []api.JobState{api.JobStateQueued, api.JobStateStarting, api.JobStateRunning, api.JobStateSucceeded}

// reached says whether a job has been in a state or is beyond it.
func reached(now, edge api.JobState) bool {
	order := map[api.JobState]int{
		api.JobStateQueued: 0, api.JobStateStarting: 1, api.JobStateRunning: 2,
		api.JobStateSucceeded: 3, api.JobStateFailed: 3, api.JobStateCancelled: 3,
	}
	return order[now] >= order[edge]
}

// atEdge waits until one of the jobs, drawn by lot, comes to a state, and then
// for a moment that is drawn too. The states take turns.
func (w *world) atEdge(of *row, jobs []*submitted) {
	w.Helper()
	edge := edges[w.edge%len(edges)]
	w.edge++
	one := jobs[w.rng.IntN(len(jobs))]
	w.eventually("job "+one.id+" does not get "+string(edge), func() bool { return reached(w.job(one.id).State, edge) })
	w.some(300 * time.Millisecond)
	of.hit(string(edge))
	w.mark("at edge " + string(edge))
}
