package storetest

import (
	"sync/atomic"

	"github.com/google/go-cmp/cmp"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/tenant"
)

var endCases = []testCase{
	{clause: "L9", name: "outcome_is_kept_once", run: endOnce},
	{clause: "L9", name: "two_ends_raced", run: endRaced},
	{clause: "L9", name: "log_is_on_record_before_the_end", run: endAfterLog},
	{clause: "L9", name: "lost_attempts_count", run: endLost},
	{clause: "L10", name: "requeue_keeps_the_log_only", run: requeueKeeps},
	{clause: "L10", name: "requeue_of_a_cancelled_job", run: requeueCancelled},
}

func endOnce(c *C) {
	got := c.running()
	end := succeeded()
	end.Outcome.LimitsHit = []run.Limit{run.LimitDisk}
	c.ok(c.Finish(c.ctx, got.Lease, end))
	now := c.is(got.Job, run.Succeeded)
	if d := cmp.Diff(end.Outcome, *now.Outcome) + cmp.Diff(end.Usage, now.Usage); d != "" {
		c.Error(d)
	}
	c.fails(c.Finish(c.ctx, got.Lease, failed()), fault.Gone)
	if d := cmp.Diff(now, c.job(got.Job)); d != "" {
		c.Errorf("the second end changed the job: %s", d)
	}
}

func endRaced(c *C) {
	for range rounds / 5 {
		got := c.running()
		var won atomic.Int32
		together(6, func(i int) {
			end := succeeded()
			end.Outcome = run.ExitedWith(i, "raced")
			switch err := c.Finish(c.ctx, got.Lease, end); {
			case err == nil:
				won.Add(1)
			case !fault.Is(err, fault.Gone):
				c.Errorf("finish: %v", err)
			}
		})
		if won.Load() != 1 {
			c.Errorf("%d ends were kept", won.Load())
		}
	}
}

func endAfterLog(c *C) {
	got := c.running()
	_, err := c.AppendLog(c.ctx, got.Lease, []run.LogEntry{entry(0, 0, "the tail")})
	c.ok(err)
	c.finish(got.Lease)
	if text := c.text(c.log(got.Job), 1, 0); text != "the tail" {
		c.Errorf("the log is %q", text)
	}
	_, err = c.AppendLog(c.ctx, got.Lease, []run.LogEntry{entry(0, 8, "late")})
	c.fails(err, fault.Gone)
}

// endLost: the last attempt is one like those before it.
func endLost(c *C) {
	got := c.running()
	c.ok(c.Requeue(c.ctx, got.Lease, true))
	got = c.claim()
	end := failed()
	end.Lost = true
	c.ok(c.Finish(c.ctx, got.Lease, end))
	if now := c.is(got.Job, run.Failed); now.Lost != 2 {
		c.Errorf("%d attempts were lost, of two", now.Lost)
	}
	got = c.running()
	c.finish(got.Lease)
	if now := c.job(got.Job); now.Lost != 0 {
		c.Errorf("%d attempts were lost, of none", now.Lost)
	}
	// One that is to be queued again and was to end besides.
	got = c.running()
	c.ok2(c.CancelJob(c.ctx, got.Job.TenantID, got.Job.ID))
	c.ok(c.Requeue(c.ctx, got.Lease, true))
	if now := c.is(got.Job, run.StateCancelled); now.Lost != 1 {
		c.Errorf("%d attempts were lost, of one", now.Lost)
	}
}

func requeueKeeps(c *C) {
	got := c.running()
	_, err := c.AppendLog(c.ctx, got.Lease, []run.LogEntry{entry(0, 0, "one")})
	c.ok(err)
	c.ok(c.Place(c.ctx, got.Lease, "node"))
	c.ok(c.AddArtifact(c.ctx, got.Lease, run.Artifact{Path: "a", Bytes: 5, Key: "k"}))
	c.ok(c.Requeue(c.ctx, got.Lease, true))
	now := c.is(got.Job, run.Queued)
	if len(now.Steps) != 0 || now.Node != "" || now.Lost != 1 || now.Attempt != 1 || !now.StartedAt.IsZero() {
		c.Errorf("queued again: %+v", now)
	}
	if list, err := c.Artifacts(c.ctx, now.TenantID, now.ID); err != nil || len(list) != 0 {
		c.Errorf("it has the artifacts %v, %v", list, err)
	}
	got = c.claim()
	if end, err := c.LogEnd(c.ctx, got.Lease, 0); err != nil || end != 0 {
		c.Errorf("the log of the new attempt ends at %d, %v", end, err)
	}
	c.ok(c.StartStep(c.ctx, got.Lease, run.Step{}))
	_, err = c.AppendLog(c.ctx, got.Lease, []run.LogEntry{{Attempt: 2, Stream: "stdout", Data: []byte("two")}})
	c.ok(err)
	log := c.log(got.Job)
	if one, two := c.text(log, 1, 0), c.text(log, 2, 0); one != "one" || two != "two" {
		c.Errorf("the log has %q and %q", one, two)
	}
	c.ok(c.Requeue(c.ctx, got.Lease, false))
	if now := c.job(got.Job); now.Lost != 1 {
		c.Errorf("%d attempts were lost after a command may have run", now.Lost)
	}
}

func requeueCancelled(c *C) {
	got := c.running()
	c.ok2(c.CancelJob(c.ctx, got.Job.TenantID, got.Job.ID))
	c.ok(c.Requeue(c.ctx, got.Lease, true))
	if now := c.is(got.Job, run.StateCancelled); now.Outcome.Kind != run.Cancelled || now.CancelRequested {
		c.Errorf("it ended as %v", now.Outcome)
	}
	c.nothing()
}

var artifactCases = []testCase{
	{clause: "L11", name: "artifact_quota", run: artifactQuota},
	{clause: "L11", name: "artifact_quota_raced", run: artifactRaced},
	{clause: "L11", name: "path_is_the_name", run: artifactName},
}

func artifactQuota(c *C) {
	owner := c.tenant(tenant.Quota{ArtifactBytes: 100})
	c.create(owner)
	first := c.claim()
	c.create(owner)
	second := c.claim()
	c.ok(c.AddArtifact(c.ctx, first.Lease, run.Artifact{Path: "a", Bytes: 60, Key: "k"}))
	c.fails(c.AddArtifact(c.ctx, second.Lease, run.Artifact{Path: "a", Bytes: 41, Key: "k"}), fault.Exhausted)
	c.ok(c.AddArtifact(c.ctx, second.Lease, run.Artifact{Path: "a", Bytes: 40, Key: "k"}))
	c.fails(c.AddArtifact(c.ctx, second.Lease, run.Artifact{Path: "b", Bytes: 1, Key: "k"}), fault.Exhausted)
	c.fails(c.AddArtifact(c.ctx, second.Lease, run.Artifact{Path: "b", Bytes: -1, Key: "k"}), fault.Invalid)
	// What is replaced is not kept twice, and an ended job keeps its own.
	c.ok(c.AddArtifact(c.ctx, first.Lease, run.Artifact{Path: "a", Bytes: 50, Key: "k"}))
	c.giveUp(first.Lease)
	c.ok(c.AddArtifact(c.ctx, second.Lease, run.Artifact{Path: "b", Bytes: 10, Key: "k"}))
	c.fails(c.AddArtifact(c.ctx, second.Lease, run.Artifact{Path: "c", Bytes: 1, Key: "k"}), fault.Exhausted)
	c.ok(c.DeleteJob(c.ctx, first.Job.ID))
	c.ok(c.AddArtifact(c.ctx, second.Lease, run.Artifact{Path: "c", Bytes: 50, Key: "k"}))
}

func artifactRaced(c *C) {
	owner := c.tenant(tenant.Quota{ArtifactBytes: 10})
	c.create(owner)
	got := c.claim()
	var kept atomic.Int64
	together(16, func(i int) {
		switch err := c.AddArtifact(c.ctx, got.Lease, run.Artifact{Path: string(rune('a' + i)), Bytes: 3, Key: "k"}); {
		case err == nil:
			kept.Add(3)
		case !fault.Is(err, fault.Exhausted):
			c.Errorf("add: %v", err)
		}
	})
	if kept.Load() != 9 {
		c.Errorf("%d bytes were kept, and the quota is 10", kept.Load())
	}
}

func artifactName(c *C) {
	got := c.running()
	want := []run.Artifact{
		{Path: "a/b", Bytes: 2, SHA256: "s2", Key: "k2"},
		{Path: "ünï code", Bytes: 0, SHA256: "s", Key: "k"},
	}
	c.ok(c.AddArtifact(c.ctx, got.Lease, run.Artifact{Path: "a/b", Bytes: 1, SHA256: "s1", Key: "k1"}))
	for range 2 {
		for _, a := range want {
			c.ok(c.AddArtifact(c.ctx, got.Lease, a))
		}
	}
	c.fails(c.AddArtifact(c.ctx, got.Lease, run.Artifact{Path: "\xff", Key: "k"}), fault.Invalid)
	list, err := c.Artifacts(c.ctx, got.Job.TenantID, got.Job.ID)
	c.ok(err)
	again, err := c.ArtifactsOf(c.ctx, got.Job.ID)
	c.ok(err)
	if d := cmp.Diff(want, list) + cmp.Diff(list, again); d != "" {
		c.Error(d)
	}
	_, err = c.ArtifactsOf(c.ctx, "no-such-id")
	c.fails(err, fault.NotFound)
}
