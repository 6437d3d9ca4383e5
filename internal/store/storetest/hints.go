package storetest

import (
	"context"
	"sync"
	"time"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
	"github.com/agentdock/agentdock/internal/tenant"
)

var hintCases = []testCase{
	{clause: "H1", name: "every_change_is_told", run: hintEvery},
	{clause: "H1", name: "holds_one_value", run: hintOne},
	{clause: "H1", name: "other_process", needs: needsShared, run: hintOther},
	{clause: "H1", name: "stopped_and_closed", run: hintStop},
}

// told waits for a hint.
func (c *C) told(changed <-chan struct{}, what string) {
	c.Helper()
	select {
	case <-changed:
	case <-time.After(c.h.Patience):
		c.Errorf("nobody told of %s", what)
	}
}

func hintEvery(c *C) {
	owner := c.tenant(tenant.Quota{})
	job := c.create(owner)
	changed, stop, err := c.Watch(c.ctx, job.ID)
	c.ok(err)
	defer stop()
	var got store.Claimed
	outcome := run.ExitedWith(0, "x")
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"Claim", func() error { got = c.claim(); return nil }},
		{"Place", func() error { return c.Place(c.ctx, got.Lease, "node") }},
		{"Resolve", func() error { return c.Resolve(c.ctx, got.Lease, run.Resolved{}) }},
		{"StartStep", func() error { return c.StartStep(c.ctx, got.Lease, run.Step{}) }},
		{"AppendLog", func() error {
			_, err := c.AppendLog(c.ctx, got.Lease, []run.LogEntry{entry(0, 0, "x")})
			return err
		}},
		{"EndStep", func() error { return c.EndStep(c.ctx, got.Lease, run.Step{Outcome: &outcome}) }},
		{"AddArtifact", func() error { return c.AddArtifact(c.ctx, got.Lease, run.Artifact{Path: "a", Key: "k"}) }},
		{"CancelJob", func() error { _, err := c.CancelJob(c.ctx, owner, job.ID); return err }},
		{"Finish", func() error { return c.Finish(c.ctx, got.Lease, succeeded()) }},
		{"SignJob", func() error { return c.SignJob(c.ctx, job.ID, []byte("receipt")) }},
	} {
		select { // an earlier hint may have been told twice
		case <-changed:
		default:
		}
		c.ok(step.do())
		c.told(changed, step.name)
	}
}

func hintOne(c *C) {
	got := c.started()
	changed, stop, err := c.Watch(c.ctx, got.Job.ID)
	c.ok(err)
	defer stop()
	for range 20 { // nobody reads, and nobody is held up
		c.ok(c.Place(c.ctx, got.Lease, "node"))
	}
	c.told(changed, "any of 20 changes")
	if cap(changed) > 1 {
		c.Errorf("the channel holds %d", cap(changed))
	}
}

func hintOther(c *C) {
	other := c.open()
	defer other.Close()
	got := c.started()
	changed, stop, err := other.Watch(c.ctx, got.Job.ID)
	c.ok(err)
	defer stop()
	c.ok(c.StartStep(c.ctx, got.Lease, run.Step{}))
	c.told(changed, "a change by another process")
}

// hintStop: watching and stopping at once, and a stop after the end.
func hintStop(c *C) {
	got := c.started()
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(c.ctx)
	wg.Go(func() {
		for ctx.Err() == nil {
			if err := c.Place(ctx, got.Lease, "node"); err != nil && !fault.Is(err, fault.Unavailable) {
				c.Errorf("place: %v", err)
			}
		}
	})
	together(8, func(int) {
		for range rounds {
			_, stop, err := c.Watch(ctx, got.Job.ID)
			if err != nil {
				c.Errorf("watch: %v", err)
				return
			}
			stop()
			stop()
		}
	})
	cancel()
	wg.Wait()
	_, stop, err := c.Watch(c.ctx, got.Job.ID)
	c.ok(err)
	c.ok(c.Close())
	stop()
	c.Store = c.open()
}
