package platform

import (
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/internal/queue"
)

func nothing(*world, *row, []*submitted) {}

func apiKilled(w *world, of *row, jobs []*submitted) {
	for range edges {
		w.atEdge(of, jobs)
		w.API.Kill()
		w.some(time.Second)
		w.API.Start()
		w.ready()
	}
}

func workerKilled(w *world, of *row, jobs []*submitted) {
	for range 2 {
		w.atEdge(of, jobs)
		p := w.workers[w.rng.IntN(2)]
		p.Kill()
		w.some(time.Second)
		p.Start()
	}
}

func workersKilled(w *world, of *row, jobs []*submitted) {
	w.atEdge(of, jobs)
	for _, p := range w.workers {
		p.Kill()
	}
	w.some(time.Second)
	for _, p := range w.workers {
		p.Start()
	}
}

func execdKilled(w *world, of *row, jobs []*submitted) {
	w.atEdge(of, jobs)
	w.Execd.Kill()
	w.some(time.Second)
	w.Execd.Start()
}

func postgresRestarted(w *world, of *row, jobs []*submitted) {
	w.atEdge(of, jobs)
	w.Postgres.Stop()
	w.some(2 * time.Second)
	w.Postgres.Start()
}

func postgresCrashed(w *world, of *row, jobs []*submitted) {
	w.atEdge(of, jobs)
	w.Postgres.Crash()
	w.some(2 * time.Second)
	w.Postgres.Start()
}

// hints gives a connection to Redis, as whoever can write there.
func (w *world) hints() *goredis.Client {
	w.Helper()
	opt, err := goredis.ParseURL(w.Redis.URL)
	w.ok(err)
	return goredis.NewClient(opt)
}

// redisFlushed takes all hints away, and gives others: of every job, again and
// again, and of jobs that do not exist.
func redisFlushed(w *world, _ *row, jobs []*submitted) {
	c := w.hints()
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

// stopWorkers lets hints heap up before two workers that have room.
func stopWorkers(w *world) {
	for _, p := range w.workers {
		p.Signal(unix.SIGSTOP)
	}
}

// wakeWorkers lets both find the same hints and the same jobs at one time.
func wakeWorkers(w *world, _ *row, jobs []*submitted) {
	c := w.hints()
	defer c.Close()
	for range 20 {
		for _, s := range jobs {
			w.ok(c.LPush(w.ctx, queue.Key, s.id).Err())
		}
	}
	for _, p := range w.workers {
		p.Signal(unix.SIGCONT)
	}
}

func redisAway(away time.Duration) func(*world, *row, []*submitted) {
	return func(w *world, of *row, jobs []*submitted) {
		w.atEdge(of, jobs)
		w.Redis.Kill()
		time.Sleep(away)
		w.Redis.Start()
	}
}

// storeAway takes the object store away when artifacts are about to be put
// there.
func storeAway(away time.Duration) func(*world, *row, []*submitted) {
	return func(w *world, _ *row, jobs []*submitted) {
		w.eventually("no job runs", func() bool { return reached(w.job(jobs[0].id).State, api.JobStateRunning) })
		w.S3.Stop()
		time.Sleep(away)
		w.S3.Start()
	}
}

func workerPaused(w *world, of *row, jobs []*submitted) {
	w.atEdge(of, jobs)
	p := w.workers[w.rng.IntN(2)]
	p.Signal(unix.SIGSTOP)
	time.Sleep(3 * lease)
	p.Signal(unix.SIGCONT)
}

// cancelled asks for the end of jobs when they are queued, starting, running,
// and at about the moment when they end by themselves.
func cancelled(w *world, of *row, jobs []*submitted) {
	last := len(jobs) - 3 // these wait: there is no room for all
	for _, s := range jobs[last:] {
		w.cancelAt(of, s, api.JobStateQueued, 0)
	}
	var all sync.WaitGroup
	for i, s := range jobs[:last] {
		edge, moment := edges[1+i%3], time.Duration(w.rng.Int64N(int64(400*time.Millisecond)))
		all.Go(func() { w.cancelAt(of, s, edge, moment) })
	}
	all.Wait()
}

// cancelAt waits until a job comes to a state, and cancels it. The end is when
// its last command should have ended, and a moment later.
func (w *world) cancelAt(of *row, s *submitted, edge api.JobState, moment time.Duration) {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		job, err := w.client.Job(w.ctx, s.id)
		if err != nil {
			w.Errorf("job %s: %v", s.id, err)
			return
		}
		ending := len(job.Steps) == jobSteps && time.Since(job.Steps[1].StartedAt) > s.shape.runs()+moment
		if !reached(job.State, edge) && (edge != api.JobStateSucceeded || !ending) {
			continue
		}
		if _, err := w.client.CancelJob(w.ctx, s.id); err != nil {
			w.Errorf("job %s: %v", s.id, err)
		}
		was := string(job.State)
		if ending {
			was = "about to end"
		}
		of.hit(was)
		return
	}
	w.Errorf("job %s does not get %s", s.id, edge)
}

// runs is about how long one command takes.
func (s shape) runs() time.Duration { return time.Duration(s.lines) * s.pause }

func everythingKilled(w *world, of *row, jobs []*submitted) {
	w.atEdge(of, jobs)
	w.API.Kill()
	w.workers[0].Kill()
	w.workers[1].Kill()
	w.Execd.Kill()
	w.Redis.Kill()
	w.S3.Stop()
	w.Postgres.Crash()
	w.Postgres.Start()
	w.S3.Start()
	w.Redis.Start()
	w.Execd.Start()
	w.workers[0].Start()
	w.workers[1].Start()
	w.API.Start()
	w.ready()
}
