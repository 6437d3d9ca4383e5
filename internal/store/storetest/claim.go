package storetest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
	"github.com/agentdock/agentdock/internal/tenant"
)

var claimCases = []testCase{
	{clause: "L1", name: "queued_job_becomes_starting", run: claimQueued},
	{clause: "L1", name: "expired_lease_comes_first", run: claimExpired},
	{clause: "L1", name: "each_job_once", run: claimEachOnce},
	{clause: "L1", name: "expired_job_raced", run: claimExpiredRaced},
	{clause: "L6", name: "attempts", run: claimAttempts},
}

func claimQueued(c *C) {
	c.nothing()
	owner := c.tenant(tenant.DefaultQuota())
	job := c.create(owner)
	got := c.claim()
	want := c.is(job, run.Starting)
	if d := cmp.Diff(want, got.Job); d != "" {
		c.Errorf("Claim and Job do not agree: %s", d)
	}
	if got.Adopted || got.Lease.JobID != job.ID || got.Lease.Worker != worker || got.Job.StartedAt.IsZero() {
		c.Errorf("claimed %+v, adopted %v, started at %v", got.Lease, got.Adopted, got.Job.StartedAt)
	}
	t, err := c.Tenant(c.ctx, owner)
	c.ok(err)
	if d := cmp.Diff(t, got.Tenant); d != "" {
		c.Errorf("the tenant that comes with the job: %s", d)
	}
	c.nothing()
}

func claimExpired(c *C) {
	old := c.running()
	c.create(old.Job.TenantID)
	c.ok(c.Place(c.ctx, old.Lease, "node"))
	c.expire(old.Lease)
	got := c.claim()
	if got.Job.ID != old.Job.ID || !got.Adopted || got.Job.State != run.Running || got.Job.Node != "node" || len(got.Job.Steps) != 1 {
		c.Errorf("claimed %+v, adopted %v", got.Job, got.Adopted)
	}
	if next := c.claim(); next.Adopted || next.Job.ID == got.Job.ID {
		c.Errorf("claimed %s, adopted %v", next.Job.ID, next.Adopted)
	}
	c.nothing()
}

// claimEachOnce lets 16 workers take 200 jobs of 5 tenants.
func claimEachOnce(c *C) {
	const jobs, workers, tenants = 200, 16, 5
	var owners []string
	for range tenants {
		owners = append(owners, c.tenant(tenant.Quota{}))
	}
	together(tenants, func(i int) {
		for range jobs / tenants {
			if _, _, err := c.CreateJob(c.ctx, c.newJob(owners[i])); err != nil {
				c.Errorf("create: %v", err)
			}
		}
	})
	var mu sync.Mutex
	times := map[string]int{}
	var left atomic.Int32
	left.Store(jobs)
	together(workers, func(i int) {
		for left.Load() > 0 && c.ctx.Err() == nil {
			got, ok, err := c.Claim(c.ctx, fmt.Sprintf("worker-%d", i), long)
			if err != nil {
				c.Errorf("claim: %v", err)
				return
			}
			if ok {
				left.Add(-1)
				mu.Lock()
				times[got.Job.ID]++
				mu.Unlock()
			}
		}
	})
	if len(times) != jobs {
		c.Errorf("%d jobs were claimed, want %d", len(times), jobs)
	}
	for id, n := range times {
		if n != 1 {
			c.Errorf("job %s was claimed %d times", id, n)
		}
	}
	c.nothing()
}

func claimExpiredRaced(c *C) {
	old := c.started()
	for range rounds / 5 {
		c.expire(old.Lease)
		var won atomic.Int32
		var mu sync.Mutex
		together(8, func(int) {
			got, ok, err := c.Claim(c.ctx, worker, long)
			if err != nil {
				c.Errorf("claim: %v", err)
			}
			if ok {
				won.Add(1)
				mu.Lock()
				old = got
				mu.Unlock()
			}
		})
		if won.Load() != 1 {
			c.Fatalf("%d workers hold the job at once", won.Load())
		}
	}
}

func claimAttempts(c *C) {
	got := c.started()
	if got.Job.Attempt != 1 {
		c.Errorf("the first attempt is %d", got.Job.Attempt)
	}
	c.ok(c.Place(c.ctx, got.Lease, "node"))
	c.expire(got.Lease)
	if got = c.claim(); got.Job.Attempt != 1 || got.Job.Node != "node" || !got.Adopted {
		c.Errorf("the attempt that is there is %d on %q, adopted %v", got.Job.Attempt, got.Job.Node, got.Adopted)
	}
	c.ok(c.Requeue(c.ctx, got.Lease, false))
	if got = c.claim(); got.Job.Attempt != 2 || got.Job.Node != "" || got.Adopted {
		c.Errorf("the next attempt is %d on %q, adopted %v", got.Job.Attempt, got.Job.Node, got.Adopted)
	}
}

var fairCases = []testCase{
	{clause: "L3", name: "backlog_delays_nobody", run: fairBacklog},
	{clause: "L3", name: "tenants_take_turns", run: fairTurns},
	{clause: "L3", name: "oldest_job_first", run: fairOldest},
	{clause: "L3", name: "tenant_without_room_is_passed_over", run: fairFull},
}

// fairBacklog: one tenant has very many queued jobs and is being served.
func fairBacklog(c *C) {
	backlog := c.h.Backlog
	if testing.Short() {
		backlog = 300
	}
	busy := c.tenant(tenant.Quota{})
	const creators = 8
	together(creators, func(int) {
		for range backlog / creators {
			if _, _, err := c.CreateJob(c.ctx, c.newJob(busy)); err != nil {
				c.Errorf("create: %v", err)
				return
			}
		}
	})
	for range 5 {
		c.claim()
	}
	first := c.create(c.tenant(tenant.Quota{}))
	if got := c.claim(); got.Job.ID != first.ID {
		c.Errorf("claimed %s of %s before the first job of another tenant", got.Job.ID, got.Job.TenantID)
	}
	second := c.create(first.TenantID)
	var served []string
	for range 2 {
		served = append(served, c.claim().Job.ID)
	}
	if served[0] == second.ID || served[1] != second.ID {
		c.Errorf("claimed %v, want one of the backlog, then %s", served, second.ID)
	}
	c.is(first, run.Starting)
}

func fairTurns(c *C) {
	var owners []string
	for range 3 {
		owners = append(owners, c.tenant(tenant.Quota{}))
	}
	for _, o := range owners { // one after the other: arrival is not turn
		for range 4 {
			c.create(o)
		}
	}
	for round := range 4 {
		served := map[string]bool{}
		for range owners {
			served[c.claim().Job.TenantID] = true
		}
		if len(served) != len(owners) {
			c.Errorf("in round %d only %v were served", round, served)
		}
	}
}

func fairOldest(c *C) {
	owner := c.tenant(tenant.Quota{})
	var want, got []string
	for range 6 {
		want = append(want, c.create(owner).ID)
	}
	// One that was queued again is as old as it was.
	back := c.claim()
	c.ok(c.Requeue(c.ctx, back.Lease, false))
	for range want {
		got = append(got, c.claim().Job.ID)
	}
	if d := cmp.Diff(want, got); d != "" {
		c.Error(d)
	}
}

func fairFull(c *C) {
	full, other := c.tenant(tenant.Quota{Running: 1}), c.tenant(tenant.Quota{})
	c.create(full)
	c.claim()
	c.create(full)
	c.create(other)
	if got := c.claim(); got.Job.TenantID != other {
		c.Errorf("claimed a job of %s", got.Job.TenantID)
	}
	c.nothing()
}

var quotaCases = []testCase{
	{clause: "L4", name: "running_processors_memory", run: quotaHolds},
	{clause: "L4", name: "quota_raced", run: quotaRaced},
	{clause: "L4", name: "every_end_gives_back", run: quotaGivenBack},
	{clause: "L4", name: "disabled_tenant", run: quotaDisabled},
	{clause: "L4", name: "job_too_large_for_a_lowered_quota", run: quotaLowered},
}

func quotaHolds(c *C) {
	for name, q := range map[string]tenant.Quota{
		"running":    {Running: 2},
		"processors": {MilliCPU: 2999},
		"memory":     {MemoryBytes: 3*run.MiB - 1},
	} {
		owner := c.tenant(q)
		for range 4 {
			c.create(owner)
		}
		first := c.claim()
		c.claim()
		if got, ok, err := c.Claim(c.ctx, worker, long); ok || err != nil {
			c.Errorf("%s: claimed %s over the quota, %v", name, got.Job.ID, err)
		}
		// A worker that is lost gives nothing back: its sandbox may live.
		c.expire(first.Lease)
		first = c.claim()
		c.nothing()
		c.ok(c.Finish(c.ctx, first.Lease, failed()))
		c.claim()
		c.nothing()
	}
}

func quotaRaced(c *C) {
	const room = 3
	for range rounds / 5 {
		owner := c.tenant(tenant.Quota{Running: room})
		for range 2 * room {
			c.create(owner)
		}
		var mu sync.Mutex
		var got []store.Claimed
		together(12, func(int) {
			g, ok, err := c.Claim(c.ctx, worker, long)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				c.Errorf("claim: %v", err)
			}
			if ok {
				got = append(got, g)
			}
		})
		if len(got) != room {
			c.Errorf("%d jobs were started, and the quota is %d", len(got), room)
		}
		c.ok(c.UpdateTenant(c.ctx, tenant.Tenant{ID: owner, Disabled: true})) // out of the way
	}
}

func quotaGivenBack(c *C) {
	owner := c.tenant(tenant.Quota{Running: 1, MilliCPU: 1000, MemoryBytes: run.MiB})
	for range 3 {
		c.done(owner)
		c.create(owner)
		got := c.claim()
		c.ok(c.Requeue(c.ctx, got.Lease, false))
		got = c.claim()
		c.ok2(c.CancelJob(c.ctx, owner, got.Job.ID))
		c.ok(c.Requeue(c.ctx, got.Lease, false)) // ends it
		c.create(owner)
		c.ok(c.Finish(c.ctx, c.claim().Lease, failed()))
	}
}

func quotaDisabled(c *C) {
	owner := c.tenant(tenant.Quota{})
	c.create(owner)
	active := c.claim()
	c.create(owner)
	c.ok(c.UpdateTenant(c.ctx, tenant.Tenant{ID: owner, Disabled: true}))
	c.nothing()
	// What runs is still looked after.
	c.expire(active.Lease)
	if got := c.claim(); !got.Adopted || !got.Tenant.Disabled {
		c.Errorf("adopted %v, disabled %v", got.Adopted, got.Tenant.Disabled)
	}
	c.ok(c.UpdateTenant(c.ctx, tenant.Tenant{ID: owner}))
	c.claim()
}

func quotaLowered(c *C) {
	owner := c.tenant(tenant.Quota{MilliCPU: 8000})
	large := c.create(owner, func(s *run.JobSpec) { s.Limits.MilliCPU = 8000 })
	small := c.create(owner)
	c.ok(c.UpdateTenant(c.ctx, tenant.Tenant{ID: owner, Quota: tenant.Quota{MilliCPU: 2000}}))
	if got := c.claim(); got.Job.ID != small.ID {
		c.Errorf("claimed %s, want %s", got.Job.ID, small.ID)
	}
	c.nothing()
	c.ok(c.UpdateTenant(c.ctx, tenant.Tenant{ID: owner, Quota: tenant.Quota{MilliCPU: 9000}}))
	if got := c.claim(); got.Job.ID != large.ID {
		c.Errorf("claimed %s, want %s", got.Job.ID, large.ID)
	}
}
