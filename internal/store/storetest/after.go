package storetest

import (
	"bytes"
	"fmt"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
	"github.com/agentdock/agentdock/internal/tenant"
)

var afterCases = []testCase{
	{clause: "R1", name: "unsigned_until_signed", run: signOnce},
	{clause: "R2", name: "expired_and_deleted", run: deleteExpired},
	{clause: "R2", name: "only_terminal_jobs", run: deleteLiving},
	{clause: "R3", name: "active_attempts", run: activeAttempts},
	{clause: "R3", name: "many_attempts", run: manyAttempts},
	{clause: "R4", name: "every_job_once", run: statsCount},
}

func signOnce(c *C) {
	owner := c.tenant(tenant.Quota{})
	first, second := c.done(owner), c.done(owner)
	living := c.create(owner)
	list, err := c.Unsigned(c.ctx, 10)
	c.ok(err)
	if d := cmp.Diff([]run.Job{first, second}, list); d != "" {
		c.Errorf("unsigned, oldest first, with steps: %s", d)
	}
	if list, err := c.Unsigned(c.ctx, 1); err != nil || len(list) != 1 || list[0].ID != first.ID {
		c.Errorf("the oldest is %v, %v", ids(list), err)
	}
	_, err = c.Receipt(c.ctx, owner, first.ID)
	c.fails(err, fault.NotFound)
	receipt := []byte("\x00receipt\xff")
	c.ok(c.SignJob(c.ctx, first.ID, receipt))
	c.ok(c.SignJob(c.ctx, first.ID, []byte("another")))
	if got, err := c.Receipt(c.ctx, owner, first.ID); err != nil || !bytes.Equal(got, receipt) {
		c.Errorf("the receipt is %q, %v", got, err)
	}
	if list, err := c.Unsigned(c.ctx, 10); err != nil || len(list) != 1 || list[0].ID != second.ID {
		c.Errorf("unsigned: %v, %v", ids(list), err)
	}
	c.fails(c.SignJob(c.ctx, living.ID, receipt), fault.Conflict)
	c.fails(c.SignJob(c.ctx, "no-such-id", receipt), fault.NotFound)
	got := c.claim()
	c.fails(c.SignJob(c.ctx, got.Job.ID, receipt), fault.Conflict)
}

func deleteExpired(c *C) {
	owner := c.tenant(tenant.Quota{ArtifactBytes: 10})
	n := c.newJob(owner)
	n.IdempotencyKey, n.Spec.Labels = "key", map[string]string{"a": "b"}
	_, _, err := c.CreateJob(c.ctx, n)
	c.ok(err)
	got := c.claim()
	c.ok(c.StartStep(c.ctx, got.Lease, run.Step{}))
	_, err = c.AppendLog(c.ctx, got.Lease, []run.LogEntry{entry(0, 0, "x")})
	c.ok(err)
	c.ok(c.AddArtifact(c.ctx, got.Lease, run.Artifact{Path: "a", Bytes: 10, Key: "k"}))
	c.finish(got.Lease)
	c.ok(c.SignJob(c.ctx, n.ID, []byte("receipt")))
	second := c.done(owner)
	ended := c.job(got.Job).FinishedAt
	if list, err := c.Expired(c.ctx, ended, 10); err != nil || len(list) != 0 {
		c.Errorf("expired before the first end: %v, %v", ids(list), err)
	}
	list, err := c.Expired(c.ctx, time.Now().Add(long), 10)
	c.ok(err)
	if d := cmp.Diff([]string{n.ID, second.ID}, ids(list)); d != "" {
		c.Error(d)
	}
	for range 2 {
		c.ok(c.DeleteJob(c.ctx, n.ID))
	}
	_, err = c.Job(c.ctx, owner, n.ID)
	c.fails(err, fault.NotFound)
	_, err = c.Log(c.ctx, owner, n.ID, 0, 10)
	c.fails(err, fault.NotFound)
	for _, q := range []store.JobQuery{{TenantID: owner}, {TenantID: owner, Labels: map[string]string{"a": "b"}}} {
		page, err := c.Jobs(c.ctx, q)
		c.ok(err)
		for _, j := range page.Jobs {
			if j.ID == n.ID {
				c.Error("the deleted job is in a list")
			}
		}
	}
	// The same again is a new job, with nothing of the old one, and room for it.
	job, created, err := c.CreateJob(c.ctx, n)
	c.ok(err)
	if !created || len(c.log(job)) != 0 {
		c.Errorf("made %v, with a log of %d entries", created, len(c.log(job)))
	}
	c.ok(c.AddArtifact(c.ctx, c.claim().Lease, run.Artifact{Path: "a", Bytes: 10, Key: "k"}))
}

func deleteLiving(c *C) {
	owner := c.tenant(tenant.Quota{})
	queued := c.create(owner)
	c.fails(c.DeleteJob(c.ctx, queued.ID), fault.Conflict)
	got := c.claim()
	c.fails(c.DeleteJob(c.ctx, queued.ID), fault.Conflict)
	c.ok(c.StartStep(c.ctx, got.Lease, run.Step{}))
	c.fails(c.DeleteJob(c.ctx, queued.ID), fault.Conflict)
	c.is(queued, run.Running)
	if list, err := c.Expired(c.ctx, time.Now().Add(long), 10); err != nil || len(list) != 0 {
		c.Errorf("expired: %v, %v", ids(list), err)
	}
}

func activeAttempts(c *C) {
	starting, running, lost, again, ended := c.started(), c.running(), c.started(), c.started(), c.running()
	queued := c.create(starting.Job.TenantID)
	c.expire(lost.Lease)
	c.finish(ended.Lease)
	c.ok(c.Requeue(c.ctx, again.Lease, false))
	for id := ""; id != again.Job.ID; {
		got := c.claim()
		id = got.Job.ID
		if id == queued.ID {
			c.ok(c.Requeue(c.ctx, got.Lease, false))
			continue
		}
	}
	want := map[store.Attempt]bool{
		{JobID: starting.Job.ID, Attempt: 1}: true,
		{JobID: running.Job.ID, Attempt: 1}:  true,
		{JobID: lost.Job.ID, Attempt: 1}:     true,
		{JobID: again.Job.ID, Attempt: 2}:    true,
	}
	ask := []store.Attempt{
		{JobID: again.Job.ID, Attempt: 1}, {JobID: ended.Job.ID, Attempt: 1}, {JobID: starting.Job.ID, Attempt: 2},
		{JobID: starting.Job.ID, Attempt: 0}, {JobID: "no-such-id", Attempt: 1}, {JobID: "a\x00", Attempt: 1},
	}
	for a := range want {
		ask = append(ask, a)
	}
	got, err := c.ActiveAttempts(c.ctx, ask)
	c.ok(err)
	for _, a := range ask {
		if got[a] != want[a] {
			c.Errorf("attempt %v is said to be active: %v", a, got[a])
		}
	}
	if got, err := c.ActiveAttempts(c.ctx, nil); err != nil || len(got) != 0 {
		c.Errorf("of none, %v are active, %v", got, err)
	}
}

func manyAttempts(c *C) {
	got := c.started()
	var ask []store.Attempt
	for i := range 3000 {
		ask = append(ask, store.Attempt{JobID: fmt.Sprint("nothing-", i), Attempt: 1})
	}
	ask = append(ask, store.Attempt{JobID: got.Job.ID, Attempt: 1})
	active, err := c.ActiveAttempts(c.ctx, ask)
	c.ok(err)
	if len(active) != 1 || !active[ask[3000]] {
		c.Errorf("active: %v", active)
	}
}

func statsCount(c *C) {
	before, err := c.Stats(c.ctx)
	c.ok(err)
	for s, n := range before.ByState {
		if n != 0 {
			c.Errorf("%d jobs are %s in an empty record", n, s)
		}
	}
	if before.OldestQueued != 0 {
		c.Errorf("a job has waited %v in an empty record", before.OldestQueued)
	}
	owner := c.tenant(tenant.Quota{})
	c.done(owner)
	c.done(owner)
	c.running()
	got := c.started()
	c.ok(c.Finish(c.ctx, got.Lease, failed()))
	c.started()
	c.started()
	c.ok2(c.CancelJob(c.ctx, owner, c.create(owner).ID))
	c.ok(c.DeleteJob(c.ctx, c.done(owner).ID))
	c.create(owner)
	c.eventually("the wait of the oldest job", func() bool {
		stats, err := c.Stats(c.ctx)
		c.ok(err)
		want := map[run.State]int64{run.Queued: 1, run.Starting: 2, run.Running: 1, run.Succeeded: 2, run.Failed: 1, run.StateCancelled: 1}
		if d := cmp.Diff(want, stats.ByState); d != "" {
			c.Fatal(d)
		}
		return stats.OldestQueued > 0 && stats.OldestQueued < c.h.Patience
	})
}
