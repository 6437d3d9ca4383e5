package platform

import (
	"slices"
	"sync"
	"time"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/client"
)

// newcomers is how many small tenants come when one has queued very much.
const newcomers = 5

// backlog queues very many jobs of one tenant, lets other tenants come each with
// one, and measures how long those wait. Then the tenant gives up, while workers
// go on to take its jobs.
func backlog(queued int) func(*world, *row, []*submitted) {
	return func(w *world, of *row, _ []*submitted) {
		busy := w.tenant("busy")
		spec := w.small(busy)
		begun := time.Now()
		inParallel(queued, func(int) {
			if _, err := busy.CreateJob(w.ctx, spec, ""); err != nil {
				w.Errorf("%s: %v", of.fault, err)
			}
		})
		made := time.Since(begun)
		if w.Failed() {
			return
		}
		waiting := 0
		for _, job := range w.all(busy) {
			if job.State == api.JobStateQueued {
				waiting++
			}
		}
		var delays []time.Duration
		for range newcomers {
			c := w.tenant("small")
			job, err := c.CreateJob(w.ctx, w.small(c), "")
			w.ok(err)
			job, err = c.Wait(w.ctx, job.ID)
			w.ok(err)
			if job.State != api.JobStateSucceeded || job.Attempt != 1 {
				w.Errorf("%s: the job of a small tenant: %+v", of.fault, job)
			}
			delays = append(delays, job.StartedAt.Sub(job.CreatedAt))
		}
		slices.Sort(delays)
		begun = time.Now()
		jobs := w.all(busy)
		inParallel(len(jobs), func(i int) {
			if _, err := busy.CancelJob(w.ctx, jobs[i].ID); err != nil {
				w.Errorf("%s: %v", of.fault, err)
			}
		})
		gone := time.Since(begun)
		ran := w.allEnded(of, busy, queued)
		w.tally.note("%d jobs of one tenant were queued at %.0f/s; with %d still waiting, the first jobs of %d other tenants were claimed after %v to %v; "+
			"%d of the many were run meanwhile, and the rest cancelled at %.0f/s; of these, state and attempts were looked at, and no logs",
			queued, float64(queued)/made.Seconds(), waiting, newcomers, delays[0].Round(time.Millisecond), delays[len(delays)-1].Round(time.Millisecond),
			ran, float64(queued)/gone.Seconds())
		// A job of the many takes less than half a second, and six run at once.
		if longest := delays[len(delays)-1]; longest > 5*time.Second {
			w.Errorf("%s: the first job of a small tenant waited for %v", of.fault, longest)
		}
	}
}

// small is a job that ends at once, for the tenant of a client.
func (w *world) small(c *client.Client) api.JobSpec {
	w.Helper()
	spec := w.spec(shape{lines: 1})
	spec.Source.UploadID, spec.Artifacts, spec.Commands = w.sendProgram(c), nil, spec.Commands[:1]
	return spec
}

// tenant makes one whose quota does not bound, and a client of it.
func (w *world) tenant(name string) *client.Client {
	w.Helper()
	none := 0
	t, err := w.client.CreateTenant(w.ctx, api.TenantSpec{Name: name, Quota: api.QuotaChange{RequestsPerMinute: &none, Queued: &none}})
	w.ok(err)
	key, err := w.client.CreateKey(w.ctx, t.ID, api.KeySpec{Name: name, Scopes: []api.Scope{"jobs:read", "jobs:write"}})
	w.ok(err)
	return w.connect(key.Secret)
}

// all lists every job of a tenant.
func (w *world) all(c *client.Client) []api.Job {
	w.Helper()
	var jobs []api.Job
	for job, err := range c.Jobs(w.ctx, client.JobQuery{PageSize: 200}) {
		w.ok(err)
		jobs = append(jobs, job)
	}
	return jobs
}

// allEnded waits until every job of a tenant has ended, counts them, and returns
// how many ran.
func (w *world) allEnded(of *row, c *client.Client, want int) (ran int) {
	w.Helper()
	open := client.JobQuery{States: []api.JobState{"queued", "starting", "running"}, PageSize: 1}
	w.eventually("jobs that were cancelled go on", func() bool {
		page, err := c.JobPage(w.ctx, open)
		w.ok(err)
		return len(page.Jobs) == 0
	})
	ids := map[string]bool{}
	for _, job := range w.all(c) {
		ids[job.ID] = true
		switch {
		case job.State == api.JobStateSucceeded && job.Attempt == 1:
			ran++
		case job.State != api.JobStateCancelled || job.Attempt > 1:
			w.Errorf("%s: job %s of the many is %s after %d attempts: %+v", of.fault, job.ID, job.State, job.Attempt, job.Outcome)
		}
		of.saw(verdict{job: &job})
	}
	if of.lost += want - len(ids); len(ids) != want {
		w.Errorf("%s: %d jobs were made and %d are on record", of.fault, want, len(ids))
	}
	return ran
}

// inParallel does something n times, as fast as one API takes it.
func inParallel(n int, do func(i int)) {
	const callers = 8
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			for i := caller; i < n; i += callers {
				do(i)
			}
		})
	}
	wg.Wait()
}
