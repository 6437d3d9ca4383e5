package storetest

import (
	"sync/atomic"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
	"github.com/agentdock/agentdock/internal/tenant"
)

var leaseCases = []testCase{
	{clause: "L2", name: "fence_rises", run: leaseFence},
	{clause: "L2", name: "old_lease_changes_nothing", run: leaseOld},
	{clause: "L2", name: "lease_of_a_queued_job", run: leaseQueued},
	{clause: "L2", name: "lease_of_no_job", run: leaseUnknown},
	{clause: "L2", name: "expired_lease_works_until_taken", run: leaseExpired},
	{clause: "L2", name: "renew_races_claim", run: leaseRenewRaced},
	{clause: "L5", name: "worker_with_a_wrong_clock", run: leaseClock},
	{clause: "L5", name: "clock_steps_back", needs: needsClockBack, run: leaseClockBack},
}

func leaseFence(c *C) {
	got := c.started()
	for range 3 {
		before := got.Lease.Fence
		c.expire(got.Lease)
		if got = c.claim(); got.Lease.Fence <= before {
			c.Errorf("the fence is %d after %d", got.Lease.Fence, before)
		}
	}
	before := got.Lease.Fence
	c.ok(c.Requeue(c.ctx, got.Lease, false))
	if got = c.claim(); got.Lease.Fence <= before {
		c.Errorf("the fence is %d after %d", got.Lease.Fence, before)
	}
}

// gone checks that a lease allows nothing, and changes nothing.
func (c *C) gone(l store.Lease, job run.Job) {
	c.Helper()
	before, log := c.job(job), c.log(job)
	artifacts, err := c.Artifacts(c.ctx, job.TenantID, job.ID)
	c.ok(err)
	for name, try := range leaseMethods(l) {
		if err := try(c.ctx, c); !fault.Is(err, fault.Gone) {
			c.Errorf("%s with an old lease says %v", name, err)
		}
	}
	now, err := c.Artifacts(c.ctx, job.TenantID, job.ID)
	c.ok(err)
	if d := cmp.Diff(before, c.job(job)) + cmp.Diff(log, c.log(job)) + cmp.Diff(artifacts, now); d != "" {
		c.Errorf("an old lease changed the job: %s", d)
	}
}

func leaseOld(c *C) {
	old := c.running()
	c.expire(old.Lease)
	got := c.claim()
	c.gone(old.Lease, got.Job)
	forged := got.Lease
	forged.Fence += 5
	c.gone(forged, got.Job)
	c.finish(got.Lease)
	c.gone(got.Lease, got.Job)
}

func leaseQueued(c *C) {
	got := c.running()
	c.ok(c.Requeue(c.ctx, got.Lease, true))
	c.gone(got.Lease, got.Job)
	fresh := c.create(got.Job.TenantID)
	c.gone(store.Lease{JobID: fresh.ID, Fence: 0}, fresh)
}

func leaseUnknown(c *C) {
	for _, id := range []string{"", "no-such-id", "a\x00b"} {
		for name, try := range leaseMethods(store.Lease{JobID: id, Fence: 1}) {
			if err := try(c.ctx, c); !fault.Is(err, fault.Gone) {
				c.Errorf("%s of job %q says %v", name, id, err)
			}
		}
	}
}

func leaseExpired(c *C) {
	got := c.started()
	c.expire(got.Lease)
	c.ok(c.StartStep(c.ctx, got.Lease, run.Step{}))
	_, err := c.Renew(c.ctx, got.Lease, long)
	c.ok(err)
	c.nothing()
	c.expire(got.Lease)
	c.finish(got.Lease)
	c.nothing()
}

// leaseRenewRaced: either the old worker keeps the job or the new one has it.
func leaseRenewRaced(c *C) {
	got := c.started()
	for range rounds {
		c.expire(got.Lease)
		var next store.Claimed
		var claimed bool
		var renewed atomic.Bool
		together(2, func(i int) {
			var err error
			if i == 0 {
				_, err = c.Renew(c.ctx, got.Lease, long)
				renewed.Store(err == nil)
				if fault.Is(err, fault.Gone) {
					err = nil
				}
			} else {
				next, claimed, err = c.Claim(c.ctx, worker, long)
			}
			if err != nil {
				c.Errorf("%d: %v", i, err)
			}
		})
		if claimed {
			// A renewal may have come first, if the lease had run out by then.
			_, err := c.Renew(c.ctx, got.Lease, long)
			c.fails(err, fault.Gone)
			got = next
		} else if !renewed.Load() {
			c.Fatal("nobody has the job")
		}
	}
}

// leaseClock: times that a worker sends are kept as said and decide nothing.
func leaseClock(c *C) {
	for _, wrong := range []time.Time{time.Unix(1, 0).UTC(), time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)} {
		got := c.started()
		c.ok(c.StartStep(c.ctx, got.Lease, run.Step{StartedAt: wrong}))
		_, err := c.AppendLog(c.ctx, got.Lease, []run.LogEntry{{Attempt: 1, Stream: "stdout", Data: []byte("x"), At: wrong}})
		c.ok(err)
		c.nothing()
		_, err = c.Renew(c.ctx, got.Lease, time.Millisecond)
		c.ok(err)
		var next store.Claimed
		c.eventually("the end of the lease", func() (ok bool) {
			next, ok, err = c.Claim(c.ctx, worker, long)
			c.ok(err)
			return ok
		})
		c.finish(next.Lease)
		now := c.is(got.Job, run.Succeeded)
		if !now.Steps[0].StartedAt.Equal(wrong) {
			c.Errorf("the step started at %v, want %v", now.Steps[0].StartedAt, wrong)
		}
		for _, at := range []time.Time{now.CreatedAt, now.StartedAt, now.FinishedAt} {
			if d := time.Since(at); d < -time.Hour || d > time.Hour {
				c.Errorf("the record has the time %v", at)
			}
		}
	}
}

// leaseClockBack: what a dead worker had is not kept from others for as long as
// the step, and what a living one has is not taken from it.
func leaseClockBack(c *C) {
	living := c.started()
	c.create(c.tenant(tenant.Quota{}))
	dead, ok, err := c.Claim(c.ctx, worker, 100*time.Millisecond)
	c.ok(err)
	if !ok {
		c.Fatal("there is no job to claim")
	}
	c.h.ClockBack(c.T, c.place, 24*time.Hour)
	var got store.Claimed
	c.eventually("the end of the dead worker's lease", func() bool {
		got, ok, err = c.Claim(c.ctx, worker, long)
		c.ok(err)
		return ok
	})
	if got.Job.ID != dead.Job.ID || !got.Adopted {
		c.Errorf("claimed %s, adopted %v, want %s", got.Job.ID, got.Adopted, dead.Job.ID)
	}
	c.nothing()
	_, err = c.Renew(c.ctx, living.Lease, long)
	c.ok(err)
	c.nothing()
	c.fails(c.StartStep(c.ctx, dead.Lease, run.Step{}), fault.Gone)
	c.ok(c.StartStep(c.ctx, living.Lease, run.Step{}))
	c.finish(living.Lease)
}

var stepCases = []testCase{
	{clause: "L7", name: "start_makes_it_running", run: stepStart},
	{clause: "L7", name: "same_step_again", run: stepAgain},
	{clause: "L7", name: "first_end_stays", run: stepEnd},
	{clause: "L7", name: "place_and_resolve_are_on_record", run: stepPlace},
}

func stepStart(c *C) {
	got := c.started()
	at := time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)
	c.ok(c.StartStep(c.ctx, got.Lease, run.Step{Index: 0, StartedAt: at}))
	now := c.is(got.Job, run.Running)
	if d := cmp.Diff([]run.Step{{Index: 0, StartedAt: at}}, now.Steps); d != "" {
		c.Error(d)
	}
}

func stepAgain(c *C) {
	got := c.started()
	outcome := run.ExitedWith(3, "wait status")
	ended := run.Step{Index: 0, Outcome: &outcome, StdoutBytes: 5, StderrBytes: 6, Truncated: true, Duration: time.Second}
	c.ok(c.StartStep(c.ctx, got.Lease, run.Step{Index: 0}))
	c.ok(c.EndStep(c.ctx, got.Lease, ended))
	c.ok(c.StartStep(c.ctx, got.Lease, run.Step{Index: 1}))
	before := c.job(got.Job)
	c.ok(c.StartStep(c.ctx, got.Lease, run.Step{Index: 0, StdoutBytes: 99}))
	c.ok(c.StartStep(c.ctx, got.Lease, run.Step{Index: 1, StdoutBytes: 99}))
	if d := cmp.Diff(before, c.job(got.Job)); d != "" {
		c.Errorf("the same step changed something: %s", d)
	}
	if d := cmp.Diff([]run.Step{ended, {Index: 1}}, before.Steps); d != "" {
		c.Error(d)
	}
}

func stepEnd(c *C) {
	got := c.running()
	one, other := run.ExitedWith(1, "first"), run.ExitedWith(2, "second")
	c.ok(c.EndStep(c.ctx, got.Lease, run.Step{Index: 0, Outcome: &one}))
	c.ok(c.EndStep(c.ctx, got.Lease, run.Step{Index: 0, Outcome: &other}))
	if now := c.job(got.Job); *now.Steps[0].Outcome.ExitCode != 1 {
		c.Errorf("the step ended as %v", now.Steps[0].Outcome)
	}
	c.fails(c.EndStep(c.ctx, got.Lease, run.Step{Index: 4, Outcome: &one}), fault.Conflict)
}

func stepPlace(c *C) {
	got := c.started()
	resolved := run.Resolved{Commit: "c", ArchiveDigest: "sha256:1", ImageDigest: "sha256:2", Isolation: "i", Environment: "e"}
	c.ok(c.Place(c.ctx, got.Lease, "node-1"))
	c.ok(c.Resolve(c.ctx, got.Lease, resolved))
	now := c.is(got.Job, run.Starting)
	if now.Node != "node-1" || now.Resolved != resolved {
		c.Errorf("on record: %q, %+v", now.Node, now.Resolved)
	}
	c.giveUp(got.Lease)
	if now := c.job(got.Job); now.Node != "node-1" || now.Resolved != resolved {
		c.Errorf("on record after the end: %q, %+v", now.Node, now.Resolved)
	}
}

// giveUp ends a job of which no command has started.
func (c *C) giveUp(l store.Lease) {
	c.Helper()
	c.ok(c.Finish(c.ctx, l, failed()))
}
