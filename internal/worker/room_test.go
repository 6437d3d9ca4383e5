package worker

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/execenv/fake"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// crowded is a service that has room for some jobs only.
type crowded struct {
	mu   sync.Mutex
	jobs map[string]bool
}

func (c *crowded) admit(jobs ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range jobs {
		c.jobs[id] = true
	}
}

func (c *crowded) create(sandbox string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if job, _, _ := strings.Cut(strings.TrimPrefix(sandbox, "job-"), "-"); !c.jobs["job-"+job] {
		return fault.New(fault.Exhausted, "the host is full")
	}
	return nil
}

// Jobs that wait for room hold up no other job, say why they wait, and run in
// their first attempt when there is some. Their time has not begun before.
func TestJobsThatWaitForRoomHoldUpNobody(t *testing.T) {
	c := &crowded{jobs: map[string]bool{}}
	w := newWorld(t, fake.Config{FailCreate: c.create})
	cfg := config()
	cfg.Concurrency = 1
	w.start(cfg, w.deps())
	spec := run.JobSpec{Commands: commands("true"), Timeout: time.Second}
	var waiting []string
	for range 3 {
		waiting = append(waiting, w.submit(spec))
	}
	for _, id := range waiting {
		job := w.until(id, "waiting", func(j run.Job) bool { return j.Resolved.Waiting != "" })
		if why := job.Resolved.Waiting; why != "execution service here has no room: the host is full" {
			t.Errorf("the job says that it waits because %q", why)
		}
	}
	other := w.submit(spec)
	c.admit(other)
	if job := w.end(other); job.State != run.Succeeded {
		t.Errorf("another job is %s: %s", job.State, job.Outcome.Evidence)
	}
	// One that waits hears that it is no longer wanted, whoever has the slot.
	if _, err := w.store.CancelJob(t.Context(), "t1", waiting[0]); err != nil {
		t.Fatal(err)
	}
	w.ended(waiting[0], run.StateCancelled, run.Cancelled)

	time.Sleep(time.Until(w.job(waiting[2]).StartedAt.Add(spec.Timeout + 100*time.Millisecond))) // it must not count
	c.admit(waiting...)
	for _, id := range waiting[1:] {
		if job := w.ended(id, run.Succeeded, run.Exited); job.Attempt != 1 || job.Resolved.Waiting != "" {
			t.Errorf("it ran in attempt %d and waits because %q", job.Attempt, job.Resolved.Waiting)
		}
	}
}

// Nobody waits for ever, and nobody is told that the time of a job was over which
// had not begun.
func TestRoomThatNeverComes(t *testing.T) {
	c := &crowded{}
	w := newWorld(t, fake.Config{FailCreate: c.create})
	cfg := config()
	cfg.RoomFor = 300 * time.Millisecond
	w.start(cfg, w.deps())
	job := w.ended(w.submit(run.JobSpec{Commands: commands("true"), Timeout: 50 * time.Millisecond}), run.Failed, run.InfrastructureLost)
	if e := job.Outcome.Evidence; job.Attempt != 1 || !strings.Contains(e, "had room") || !strings.Contains(e, "the host is full") {
		t.Errorf("attempt %d: %s", job.Attempt, e)
	}
}

// A worker that is told to stop does not wait for what its jobs wait for.
func TestDrainWhileJobsWaitForRoom(t *testing.T) {
	c := &crowded{jobs: map[string]bool{}}
	w := newWorld(t, fake.Config{FailCreate: c.create})
	cfg := config()
	cfg.Drain = time.Millisecond
	stop := w.start(cfg, w.deps())
	id := w.submit(run.JobSpec{Commands: commands("true")})
	w.until(id, "waiting", func(j run.Job) bool { return j.Resolved.Waiting != "" })
	stop()
	c.admit(id)
	w.start(config(), w.deps())
	w.ended(id, run.Succeeded, run.Exited)
}
