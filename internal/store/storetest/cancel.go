package storetest

import (
	"context"
	"slices"
	"sync"

	"github.com/google/go-cmp/cmp"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
	"github.com/agentdock/agentdock/internal/tenant"
)

var cancelCases = []testCase{
	{clause: "J5", name: "queued_job_ends_at_once", run: cancelQueued},
	{clause: "J5", name: "active_job_is_marked", run: cancelActive},
	{clause: "J5", name: "terminal_job_is_left_alone", run: cancelTerminal},
	{clause: "J5", name: "races_claim", run: cancelRacesClaim},
	{clause: "J5", name: "races_finish", run: cancelRacesFinish},
	{clause: "J5", name: "races_requeue", run: cancelRacesRequeue},
}

func cancelQueued(c *C) {
	job := c.create(c.tenant(tenant.Quota{}))
	got, err := c.CancelJob(c.ctx, job.TenantID, job.ID)
	c.ok(err)
	now := c.is(job, run.StateCancelled)
	if d := cmp.Diff(now, got); d != "" {
		c.Errorf("CancelJob and Job do not agree: %s", d)
	}
	if now.Outcome.Kind != run.Cancelled || now.Outcome.Evidence == "" || now.CancelRequested || now.Attempt != 0 {
		c.Errorf("it ended as %+v, attempt %d", now.Outcome, now.Attempt)
	}
	c.nothing()
}

func cancelActive(c *C) {
	for _, got := range []store.Claimed{c.started(), c.running()} {
		for range 2 {
			now, err := c.CancelJob(c.ctx, got.Job.TenantID, got.Job.ID)
			c.ok(err)
			if !now.CancelRequested || now.State.Terminal() {
				c.Errorf("it is %s, marked %v", now.State, now.CancelRequested)
			}
		}
		if asked, err := c.Renew(c.ctx, got.Lease, long); err != nil || !asked {
			c.Errorf("the worker is told %v, %v", asked, err)
		}
		c.ok(c.Finish(c.ctx, got.Lease, cancelled()))
		if now := c.is(got.Job, run.StateCancelled); now.CancelRequested {
			c.Error("the end has come and is asked for still")
		}
	}
}

func cancelTerminal(c *C) {
	owner := c.tenant(tenant.Quota{})
	before := c.done(owner)
	got, err := c.CancelJob(c.ctx, owner, before.ID)
	c.ok(err)
	for _, now := range []run.Job{got, c.job(before)} {
		if d := cmp.Diff(before, now); d != "" {
			c.Errorf("a terminal job has moved: %s", d)
		}
	}
}

// rounds is how often a race is run.
const rounds = 25

func cancelRacesClaim(c *C) {
	owner := c.tenant(tenant.Quota{})
	for range rounds {
		job := c.create(owner)
		var got store.Claimed
		var claimed bool
		together(2, func(i int) {
			var err error
			if i == 0 {
				_, err = c.CancelJob(c.ctx, owner, job.ID)
			} else {
				got, claimed, err = c.Claim(c.ctx, worker, long)
			}
			if err != nil {
				c.Errorf("%d: %v", i, err)
			}
		})
		if !claimed {
			c.is(job, run.StateCancelled)
			continue
		}
		if asked, err := c.Renew(c.ctx, got.Lease, long); err != nil || !asked {
			c.Fatalf("the job is claimed, and the cancel is lost: %v, %v", asked, err)
		}
		c.ok(c.Finish(c.ctx, got.Lease, cancelled()))
	}
}

func cancelRacesFinish(c *C) {
	owner := c.tenant(tenant.Quota{})
	for range rounds {
		job := c.create(owner)
		got := c.claim()
		c.ok(c.StartStep(c.ctx, got.Lease, run.Step{}))
		var said run.Job
		together(2, func(i int) {
			var err error
			if i == 0 {
				said, err = c.CancelJob(c.ctx, owner, job.ID)
			} else {
				err = c.Finish(c.ctx, got.Lease, succeeded())
			}
			if err != nil {
				c.Errorf("%d: %v", i, err)
			}
		})
		c.is(job, run.Succeeded)
		if said.State != run.Succeeded && !said.CancelRequested {
			c.Errorf("the cancel returned a job that is %s and not marked", said.State)
		}
	}
}

func cancelRacesRequeue(c *C) {
	owner := c.tenant(tenant.Quota{})
	for range rounds {
		job := c.create(owner)
		got := c.claim()
		together(2, func(i int) {
			var err error
			if i == 0 {
				_, err = c.CancelJob(c.ctx, owner, job.ID)
			} else {
				err = c.Requeue(c.ctx, got.Lease, false)
			}
			if err != nil {
				c.Errorf("%d: %v", i, err)
			}
		})
		c.is(job, run.StateCancelled)
	}
	c.nothing()
}

var moveCases = []testCase{
	{clause: "J6", name: "moves_that_are_not_in_the_table", run: movesRefused},
	{clause: "J6", name: "terminal_job_never_moves", run: movesTerminal},
	{clause: "J6", name: "terminal_job_never_moves_under_attack", run: movesRaced},
}

// movesRefused tries every move by Finish from the states a worker can have.
func movesRefused(c *C) {
	for _, from := range []run.State{run.Starting, run.Running} {
		for _, to := range run.States() {
			got := c.started()
			if from == run.Running {
				c.ok(c.StartStep(c.ctx, got.Lease, run.Step{}))
			}
			before := c.job(got.Job)
			end := failed()
			end.State = to
			err := c.Finish(c.ctx, got.Lease, end)
			if from.CanMove(to) && to.Terminal() {
				c.ok(err)
				c.is(got.Job, to)
				continue
			}
			c.fails(err, fault.Conflict)
			if d := cmp.Diff(before, c.job(got.Job)); d != "" {
				c.Errorf("%s to %s was refused and changed the job: %s", from, to, d)
			}
			c.ok(c.Finish(c.ctx, got.Lease, failed()))
		}
	}
}

func movesTerminal(c *C) {
	for _, end := range []store.End{succeeded(), failed(), cancelled()} {
		got := c.running()
		c.ok(c.Finish(c.ctx, got.Lease, end))
		before := c.is(got.Job, end.State)
		for name, try := range leaseMethods(got.Lease) {
			if err := try(c.ctx, c); !fault.Is(err, fault.Gone) {
				c.Errorf("%s of a job that is %s says %v", name, end.State, err)
			}
		}
		c.ok2(c.CancelJob(c.ctx, got.Job.TenantID, got.Job.ID))
		c.nothing()
		if d := cmp.Diff(before, c.job(got.Job)); d != "" {
			c.Errorf("it has moved: %s", d)
		}
	}
}

// movesRaced lets everything happen to one job at once. Whatever the first
// terminal state is that anybody sees is the last.
func movesRaced(c *C) {
	owner := c.tenant(tenant.Quota{})
	for range rounds / 5 {
		job := c.create(owner)
		got := c.claim()
		c.ok(c.StartStep(c.ctx, got.Lease, run.Step{}))
		var mu sync.Mutex
		var seen []run.State
		ends := []store.End{succeeded(), failed(), cancelled()}
		together(9, func(i int) {
			switch i % 3 {
			case 0:
				_, _ = c.CancelJob(c.ctx, owner, job.ID)
			case 1:
				_ = c.Finish(c.ctx, got.Lease, ends[i/3])
			}
			now, err := c.Job(c.ctx, owner, job.ID)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				c.Errorf("Job: %v", err)
			} else if now.State.Terminal() {
				seen = append(seen, now.State)
			}
		})
		seen = append(seen, c.job(job).State)
		if len(slices.Compact(seen)) != 1 || !seen[0].Terminal() {
			c.Errorf("the job was seen as %v", seen)
		}
	}
}

// leaseMethods calls every method that takes a lease.
func leaseMethods(l store.Lease) map[string]func(context.Context, store.Leases) error {
	return map[string]func(context.Context, store.Leases) error{
		"Renew":     func(ctx context.Context, s store.Leases) error { _, err := s.Renew(ctx, l, long); return err },
		"Place":     func(ctx context.Context, s store.Leases) error { return s.Place(ctx, l, "elsewhere") },
		"Resolve":   func(ctx context.Context, s store.Leases) error { return s.Resolve(ctx, l, run.Resolved{Commit: "x"}) },
		"StartStep": func(ctx context.Context, s store.Leases) error { return s.StartStep(ctx, l, run.Step{Index: 7}) },
		"EndStep": func(ctx context.Context, s store.Leases) error {
			outcome := run.ExitedWith(9, "none")
			return s.EndStep(ctx, l, run.Step{Index: 0, Outcome: &outcome})
		},
		"AppendLog": func(ctx context.Context, s store.Leases) error {
			_, err := s.AppendLog(ctx, l, []run.LogEntry{{Attempt: 1, Stream: "stdout", Data: []byte("late")}})
			return err
		},
		"LogEnd": func(ctx context.Context, s store.Leases) error { _, err := s.LogEnd(ctx, l, 0); return err },
		"AddArtifact": func(ctx context.Context, s store.Leases) error {
			return s.AddArtifact(ctx, l, run.Artifact{Path: "late"})
		},
		"Finish":  func(ctx context.Context, s store.Leases) error { return s.Finish(ctx, l, failed()) },
		"Requeue": func(ctx context.Context, s store.Leases) error { return s.Requeue(ctx, l, true) },
	}
}
