package platform

import (
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/internal/queue"
	"github.com/agentdock/agentdock/internal/run"
)

// kind is a kind of fault, caused while jobs run.
type kind struct {
	name string
	// cause returns when the fault is over: what was killed runs again.
	cause func(w *world, jobs []*submitted)
	// expect says what is wrong with how a job ended, or "".
	expect func(v verdict) string
}

// kinds are tried in this order, which puts next to each other what has
// nothing in common.
func kinds(long bool) []kind {
	away := 4 * time.Second
	if long {
		away = time.Minute
	}
	return []kind{
		{"none", func(*world, []*submitted) {}, undisturbed},
		{"API killed", apiKilled, undisturbed},
		{"a worker killed", workerKilled, succeeded},
		{"both workers killed at once", workersKilled, succeeded},
		{"execution service killed", execdKilled, lostOrSucceeded},
		{"PostgreSQL restarted", postgresRestarted, succeeded},
		{"PostgreSQL crashed", postgresCrashed, succeeded},
		{"Redis flushed, and full of duplicates", redisFlushed, undisturbed},
		{"Redis killed, absent for " + away.String(), redisAway(away), undisturbed},
		{"object store absent for " + (away / 2).String(), storeAway(away / 2), complete},
		{"a worker stopped for three leases", workerPaused, succeeded},
		{"the record's clock steps an hour ahead", clockAhead, succeeded},
		{"the record's clock steps an hour back", clockBack, succeeded},
		{"cancelled at any moment", cancelled, cancelledOrSucceeded},
		{"everything killed at once", everythingKilled, lostOrSucceeded},
	}
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

// atEdge waits until one of the jobs is in a state that is drawn by lot, and
// then for a moment that is too.
func (w *world) atEdge(jobs []*submitted) {
	w.Helper()
	edge := []api.JobState{api.JobStateQueued, api.JobStateStarting, api.JobStateRunning, api.JobStateSucceeded}[w.rng.IntN(4)]
	order := map[api.JobState]int{
		api.JobStateQueued: 0, api.JobStateStarting: 1, api.JobStateRunning: 2, api.JobStateSucceeded: 3, api.JobStateFailed: 3, api.JobStateCancelled: 3,
	}
	one := jobs[w.rng.IntN(len(jobs))]
	w.eventually("job "+one.id+" does not get "+string(edge), func() bool { return order[w.job(one.id).State] >= order[edge] })
	w.some(300 * time.Millisecond)
}

func apiKilled(w *world, jobs []*submitted) {
	for range 3 {
		w.atEdge(jobs)
		w.api.end(unix.SIGKILL)
		w.some(time.Second)
		w.api.start()
		w.ready()
	}
}

func workerKilled(w *world, jobs []*submitted) {
	for range 2 {
		w.atEdge(jobs)
		p := w.workers[w.rng.IntN(2)]
		p.end(unix.SIGKILL)
		w.some(time.Second)
		p.start()
	}
}

func workersKilled(w *world, jobs []*submitted) {
	w.atEdge(jobs)
	for _, p := range w.workers {
		p.end(unix.SIGKILL)
	}
	w.some(time.Second)
	for _, p := range w.workers {
		p.start()
	}
}

func execdKilled(w *world, jobs []*submitted) {
	w.atEdge(jobs)
	w.execd.Kill()
	w.some(time.Second)
	w.execd.Start()
}

func postgresRestarted(w *world, jobs []*submitted) {
	w.atEdge(jobs)
	w.pg.Stop()
	w.some(2 * time.Second)
	w.pg.Start()
}

func postgresCrashed(w *world, jobs []*submitted) {
	w.atEdge(jobs)
	w.pg.Crash()
	w.some(2 * time.Second)
	w.pg.Start()
}

// redisFlushed takes all hints away, and gives others: of every job, again and
// again, and of jobs that do not exist.
func redisFlushed(w *world, jobs []*submitted) {
	opt, err := goredis.ParseURL(w.redis.URL)
	w.ok(err)
	c := goredis.NewClient(opt)
	defer c.Close()
	w.ok(c.FlushAll(w.ctx).Err())
	for range 20 {
		for _, s := range jobs {
			w.ok(c.LPush(w.ctx, queue.Key, s.id, "no job").Err())
		}
		w.some(50 * time.Millisecond)
	}
	w.ok(c.FlushAll(w.ctx).Err())
}

func redisAway(away time.Duration) func(*world, []*submitted) {
	return func(w *world, jobs []*submitted) {
		w.atEdge(jobs)
		w.redis.Kill()
		time.Sleep(away)
		w.redis.Start()
	}
}

// storeAway takes the object store away when artifacts are about to be put
// there.
func storeAway(away time.Duration) func(*world, []*submitted) {
	return func(w *world, jobs []*submitted) {
		w.eventually("no job runs", func() bool { return w.job(jobs[0].id).State == api.JobStateRunning })
		w.s3.Stop()
		time.Sleep(away)
		w.s3.Start()
	}
}

func workerPaused(w *world, jobs []*submitted) {
	w.atEdge(jobs)
	p := w.workers[w.rng.IntN(2)]
	p.signal(unix.SIGSTOP)
	time.Sleep(3 * lease)
	p.signal(unix.SIGCONT)
}

// The time of leases is the record's, whatever clocks workers have (L5).

func (w *world) stepClock(by string) {
	w.Helper()
	w.pg.AdminIn(w.dsn, "CREATE OR REPLACE FUNCTION agentdock_now() RETURNS BIGINT LANGUAGE sql STABLE PARALLEL SAFE AS "+
		"$$ SELECT (extract(epoch FROM statement_timestamp() + INTERVAL '"+by+"') * 1000000)::BIGINT $$")
}

func clockAhead(w *world, jobs []*submitted) {
	w.atEdge(jobs)
	w.stepClock("1 hour")
}

// clockBack finds leases that last for an hour; workers that live cut them.
func clockBack(w *world, jobs []*submitted) {
	w.atEdge(jobs)
	w.stepClock("0 hours")
	time.Sleep(lease)
	p := w.workers[w.rng.IntN(2)]
	p.end(unix.SIGKILL)
	p.start()
}

func cancelled(w *world, jobs []*submitted) {
	for _, s := range jobs {
		w.some(500 * time.Millisecond)
		_, err := w.client.CancelJob(w.ctx, s.id)
		w.ok(err)
	}
}

func everythingKilled(w *world, jobs []*submitted) {
	w.atEdge(jobs)
	w.api.end(unix.SIGKILL)
	w.workers[0].end(unix.SIGKILL)
	w.workers[1].end(unix.SIGKILL)
	w.execd.Kill()
	w.redis.Kill()
	w.s3.Stop()
	w.pg.Crash()
	w.pg.Start()
	w.s3.Start()
	w.redis.Start()
	w.execd.Start()
	w.workers[0].start()
	w.workers[1].start()
	w.api.start()
	w.ready()
}
