package storetest

import (
	"slices"
	"time"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
	"github.com/agentdock/agentdock/internal/tenant"
)

func sandboxMoves(c *C) {
	owner := c.tenant(tenant.Quota{})
	moves := map[run.SandboxState]func(id string) error{
		run.SandboxRunning: func(id string) error {
			if box, err := c.Sandbox(c.ctx, owner, id); err == nil && box.State == run.SandboxPaused {
				return second(c.ResumeSandbox(c.ctx, id, long))
			}
			return second(c.StartSandbox(c.ctx, id, run.Resolved{}))
		},
		run.SandboxPaused: func(id string) error { return second(c.PauseSandbox(c.ctx, id)) },
		run.SandboxEnding: func(id string) error { return second(c.EndSandbox(c.ctx, id, wasKilled)) },
		run.SandboxEnded:  func(id string) error { return c.RemovedSandbox(c.ctx, id) },
	}
	for _, from := range run.SandboxStates() {
		for to, move := range moves {
			b := c.box(owner)
			for _, step := range run.SandboxStates()[1:] {
				if slices.Index(run.SandboxStates(), step) <= slices.Index(run.SandboxStates(), from) {
					c.ok(moves[step](b.ID))
				}
			}
			err := move(b.ID)
			switch {
			case from.CanMove(to):
				c.ok(err)
				c.boxIs(b, to)
			case to == run.SandboxEnding || from == run.SandboxEnded && to == run.SandboxEnded: // may be repeated
				c.ok(err)
				c.boxIs(b, from)
			default:
				if !fault.Is(err, fault.Conflict) && !(fault.Is(err, fault.Gone) && !from.Alive()) {
					c.Errorf("from %s to %s: %v", from, to, err)
				}
				c.boxIs(b, from)
			}
		}
	}
	for what, move := range moves {
		if err := move("no-such-id"); !fault.Is(err, fault.NotFound) {
			c.Errorf("one that does not exist becomes %s: %v", what, err)
		}
	}
	b := c.box(owner)
	c.fails(second(c.ResumeSandbox(c.ctx, b.ID, long)), fault.Conflict)
	c.ok(moves[run.SandboxRunning](b.ID))
	c.fails(second(c.ResumeSandbox(c.ctx, b.ID, long)), fault.Conflict)
	c.fails(c.PlaceSandbox(c.ctx, b.ID, "elsewhere"), fault.Conflict)
}

func sandboxFirstOutcome(c *C) {
	b := c.box(c.tenant(tenant.Quota{}))
	ends := []run.Outcome{wasKilled, {Kind: run.WallClock, Evidence: "late"}}
	for _, o := range ends {
		got, err := c.EndSandbox(c.ctx, b.ID, o)
		c.ok(err)
		if got.Outcome == nil || got.Outcome.Kind != run.Cancelled {
			c.Errorf("ended as %v, want the first outcome", got.Outcome)
		}
	}
	c.fails(second(c.ExtendSandbox(c.ctx, b.TenantID, b.ID, long, false)), fault.Gone)
	c.fails(second(c.StartSandbox(c.ctx, b.ID, run.Resolved{})), fault.Gone)
	c.boxIs(b, run.SandboxEnding)
}

func sandboxExtend(c *C) {
	b := c.box(c.tenant(tenant.Quota{}))
	near := func(s run.Sandbox, err error, from time.Duration) {
		c.Helper()
		c.ok(err)
		if d := s.ExpiresAt.Sub(b.CreatedAt.Add(from)); d < 0 || d > c.h.Patience {
			c.Errorf("ends %v after what was asked", d)
		}
	}
	got, err := c.ExtendSandbox(c.ctx, b.TenantID, b.ID, long+long/2, false)
	near(got, err, long+long/2)
	got, err = c.ExtendSandbox(c.ctx, b.TenantID, b.ID, time.Minute, true) // never shorter
	near(got, err, long+long/2)
	got, err = c.ExtendSandbox(c.ctx, b.TenantID, b.ID, 10*time.Minute, false)
	near(got, err, 10*time.Minute)
	got, err = c.ExtendSandbox(c.ctx, b.TenantID, b.ID, 100*long, false)
	c.ok(err)
	if got.ExpiresAt != b.Deadline {
		c.Errorf("ends at %v, past the deadline %v", got.ExpiresAt, b.Deadline)
	}
}

func (c *C) due() int {
	c.Helper()
	n, err := c.EndDueSandboxes(c.ctx, 0, long)
	c.ok(err)
	return n
}

func sandboxDue(c *C) {
	owner := c.tenant(tenant.Quota{})
	over := c.box(owner, func(n *store.NewSandbox) { n.TTL = 0 })
	stays := c.box(owner)
	c.fails(second(c.ExtendSandbox(c.ctx, owner, over.ID, long, false)), fault.Gone)
	if n, err := c.EndDueSandboxes(c.ctx, long, long); err != nil || n != 0 {
		c.Errorf("%d ended within the grace, %v", n, err)
	}
	if n := c.due(); n != 1 {
		c.Errorf("%d ended, want 1", n)
	}
	if got := c.boxIs(over, run.SandboxEnding); got.Outcome.Kind != run.WallClock || !got.Outcome.Touched(run.LimitWallClock) {
		c.Errorf("ended as %v", got.Outcome)
	}
	c.boxIs(stays, run.SandboxCreating)
	if n := c.due(); n != 0 {
		c.Errorf("%d ended again", n)
	}
}

// sandboxExtendRaced ends and extends sandboxes at the moment their time is
// over: each is either extended and alive, or ended, and never both.
func sandboxExtendRaced(c *C) {
	owner := c.tenant(tenant.Quota{})
	for range 20 {
		b := c.box(owner, func(n *store.NewSandbox) { n.TTL = 3 * time.Millisecond })
		time.Sleep(2 * time.Millisecond) // so that both meet the end, more or less
		var extended error
		together(2, func(i int) {
			if i == 0 {
				_, extended = c.ExtendSandbox(c.ctx, owner, b.ID, long, false)
				return
			}
			for range 5 {
				if _, err := c.EndDueSandboxes(c.ctx, 0, long); err != nil {
					c.Error(err)
				}
			}
		})
		c.due()
		want := run.SandboxCreating
		if extended != nil {
			want = run.SandboxEnding
			c.fails(extended, fault.Gone)
			c.eventually("the end of a sandbox that was not extended", func() bool {
				c.due()
				s, err := c.Sandbox(c.ctx, owner, b.ID)
				return err == nil && s.State == run.SandboxEnding
			})
		}
		c.boxIs(b, want)
	}
}

func sandboxStuck(c *C) {
	owner := c.tenant(tenant.Quota{})
	stuck, runs := c.box(owner), c.box(owner)
	c.ok(second(c.StartSandbox(c.ctx, runs.ID, run.Resolved{})))
	n, err := c.EndDueSandboxes(c.ctx, 0, 0)
	if err != nil || n != 1 {
		c.Errorf("%d ended, %v; want 1", n, err)
	}
	if got := c.boxIs(stuck, run.SandboxEnding); got.Outcome.Kind != run.InfrastructureLost {
		c.Errorf("ended as %v", got.Outcome)
	}
	c.boxIs(runs, run.SandboxRunning)
}

func sandboxHolds(c *C) {
	owner := c.tenant(tenant.Quota{Sandboxes: 1})
	b := c.box(owner)
	holds := func() {
		c.Helper()
		in, err := c.SandboxesIn(c.ctx, []string{b.ID, "no-such-id"})
		c.ok(err)
		if len(in) != 1 || !in[b.ID] {
			c.Errorf("needed are %v, want %s", in, b.ID)
		}
		open, err := c.OpenSandboxes(c.ctx, "", 10)
		c.ok(err)
		if len(open) != 1 || open[0].ID != b.ID {
			c.Errorf("open are %v, want %s", open, b.ID)
		}
		c.fails(second(c.CreateSandbox(c.ctx, c.newSandbox(owner))), fault.Exhausted)
	}
	holds()
	_, err := c.EndSandbox(c.ctx, b.ID, wasKilled)
	c.ok(err)
	holds()
	for range 2 {
		c.ok(c.RemovedSandbox(c.ctx, b.ID))
	}
	open, err := c.OpenSandboxes(c.ctx, "", 10)
	if err != nil || len(open) != 0 {
		c.Errorf("open are %v, %v", open, err)
	}
	next := c.box(owner)
	if open, err = c.OpenSandboxes(c.ctx, next.ID, 10); err != nil || len(open) != 0 {
		c.Errorf("after the last come %v, %v", open, err)
	}
}

func sandboxDeleted(c *C) {
	owner := c.tenant(tenant.Quota{})
	var boxes []run.Sandbox
	for i := range run.SandboxStates() {
		b := c.box(owner)
		boxes = append(boxes, b)
		if i >= 1 {
			c.ok(second(c.StartSandbox(c.ctx, b.ID, run.Resolved{})))
		}
		if i >= 2 {
			c.ok(second(c.PauseSandbox(c.ctx, b.ID)))
		}
		if i >= 3 {
			c.ok(second(c.EndSandbox(c.ctx, b.ID, wasKilled)))
		}
		if i >= 4 {
			c.ok(c.RemovedSandbox(c.ctx, b.ID))
		}
	}
	if n, err := c.DeleteSandboxes(c.ctx, someDay); err != nil || n != 0 {
		c.Errorf("%d deleted that ended later, %v", n, err)
	}
	if n, err := c.DeleteSandboxes(c.ctx, time.Now().Add(long)); err != nil || n != 1 {
		c.Errorf("%d deleted, %v; want 1", n, err)
	}
	for i, b := range boxes[:4] {
		c.boxIs(b, run.SandboxStates()[i])
	}
	_, err := c.Sandbox(c.ctx, owner, boxes[4].ID)
	c.fails(err, fault.NotFound)
}
