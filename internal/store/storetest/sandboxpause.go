package storetest

import (
	"time"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
	"github.com/agentdock/agentdock/internal/tenant"
)

func sandboxPaused(c *C) {
	owner := c.tenant(tenant.Quota{Sandboxes: 2})
	b := c.box(owner)
	_, err := c.StartSandbox(c.ctx, b.ID, run.Resolved{})
	c.ok(err)
	paused, err := c.PauseSandbox(c.ctx, b.ID)
	c.ok(err)
	if now := c.boxIs(b, run.SandboxPaused); !now.ExpiresAt.Equal(b.Deadline) || !paused.ExpiresAt.Equal(b.Deadline) || paused.State != run.SandboxPaused {
		c.Errorf("paused it is %s and ends at %s, want its deadline, %s", paused.State, now.ExpiresAt, b.Deadline)
	}
	other := c.box(owner)
	_, err = c.CreateSandbox(c.ctx, c.newSandbox(owner)) // it holds its place
	c.fails(err, fault.Exhausted)
	for state, want := range map[run.SandboxState]string{run.SandboxPaused: b.ID, run.SandboxCreating: other.ID, run.SandboxRunning: ""} {
		page, err := c.Sandboxes(c.ctx, store.SandboxQuery{TenantID: owner, States: []run.SandboxState{state}})
		c.ok(err)
		got := ""
		for _, box := range page.Sandboxes {
			got += box.ID
		}
		if got != want {
			c.Errorf("%s are %q, want %q", state, got, want)
		}
	}
	for _, atLeast := range []bool{false, true} {
		c.fails(second(c.ExtendSandbox(c.ctx, owner, b.ID, time.Minute, atLeast)), fault.Conflict)
	}
	before := c.boxIs(b, run.SandboxPaused)
	if !before.ExpiresAt.Equal(b.Deadline) {
		c.Errorf("extended while it is paused it ends at %s, want its deadline, %s", before.ExpiresAt, b.Deadline)
	}
	resumed, err := c.ResumeSandbox(c.ctx, b.ID, long/2)
	c.ok(err)
	if now := c.boxIs(b, run.SandboxRunning); !now.ExpiresAt.Equal(resumed.ExpiresAt) || !now.ExpiresAt.Before(before.ExpiresAt) || now.ExpiresAt.Before(b.CreatedAt.Add(long/2)) {
		c.Errorf("resumed it ends at %s, made at %s", now.ExpiresAt, b.CreatedAt)
	}
	_, err = c.PauseSandbox(c.ctx, b.ID)
	c.ok(err)
	if now, err := c.ResumeSandbox(c.ctx, b.ID, 100*long); err != nil || !now.ExpiresAt.Equal(b.Deadline) {
		c.Errorf("resumed for longer than its deadline allows it ends at %s, want %s; %v", now.ExpiresAt, b.Deadline, err)
	}

	// Over before it ends on record.
	short := c.box(c.tenant(tenant.Quota{}), func(n *store.NewSandbox) { n.TTL = time.Millisecond })
	_, err = c.StartSandbox(c.ctx, short.ID, run.Resolved{})
	c.ok(err)
	for {
		if _, err = c.PauseSandbox(c.ctx, short.ID); fault.Is(err, fault.Gone) {
			break
		}
		c.ok(err)
		_, err = c.ResumeSandbox(c.ctx, short.ID, time.Millisecond)
		if fault.Is(err, fault.Gone) {
			break
		}
		c.ok(err)
	}
}
