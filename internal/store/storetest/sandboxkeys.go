package storetest

import (
	"fmt"
	"sync"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
	"github.com/agentdock/agentdock/internal/tenant"
)

func keyed(n *store.NewSandbox) { n.IdempotencyKey, n.RequestDigest = "key", [32]byte{1} }

func sandboxKey(c *C) {
	owner := c.tenant(tenant.Quota{Sandboxes: 1})
	first := c.box(owner, keyed)
	want := func(state run.SandboxState) {
		c.Helper()
		// The quota is used up, and the second is not a second sandbox.
		if again := c.box(owner, keyed); again.ID != first.ID || again.State != state {
			c.Errorf("the same key gives %s, which is %s; want %s, %s", again.ID, again.State, first.ID, state)
		}
	}
	want(run.SandboxCreating)
	_, err := c.StartSandbox(c.ctx, first.ID, run.Resolved{})
	c.ok(err)
	want(run.SandboxRunning)
	_, err = c.EndSandbox(c.ctx, first.ID, wasKilled)
	c.ok(err)
	want(run.SandboxEnding)
	c.ok(c.RemovedSandbox(c.ctx, first.ID))
	want(run.SandboxEnded)
}

func sandboxKeyConflict(c *C) {
	owner := c.tenant(tenant.Quota{})
	c.box(owner, keyed)
	n := c.newSandbox(owner)
	n.IdempotencyKey, n.RequestDigest = "key", [32]byte{2}
	_, err := c.CreateSandbox(c.ctx, n)
	c.fails(err, fault.Conflict)
	page, err := c.Sandboxes(c.ctx, store.SandboxQuery{TenantID: owner})
	if err != nil || len(page.Sandboxes) != 1 {
		c.Errorf("there are %d sandboxes, %v", len(page.Sandboxes), err)
	}
}

func sandboxKeysApart(c *C) {
	one := c.box(c.tenant(tenant.Quota{}), keyed)
	if other := c.box(c.tenant(tenant.Quota{}), keyed); other.ID == one.ID {
		c.Errorf("another tenant has brought back %s", one.ID)
	}
	owner := c.tenant(tenant.Quota{})
	if a, b := c.box(owner), c.box(owner); a.ID == b.ID {
		c.Errorf("no key has brought back %s", a.ID)
	}
}

func sandboxKeyRaced(c *C) {
	n := c.newSandbox(c.tenant(tenant.Quota{Sandboxes: 1}))
	keyed(&n)
	var mu sync.Mutex
	ids := map[string]bool{}
	together(16, func(i int) {
		n := n
		n.ID = fmt.Sprintf("%s-%d", n.ID, i)
		made, err := c.CreateSandbox(c.ctx, n)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			c.Errorf("create: %v", err)
		}
		ids[made.ID] = true
	})
	if len(ids) != 1 {
		c.Errorf("one key made %v", ids)
	}
}

// sandboxKeyFree: whoever asks again after a failure wants a sandbox, and not the
// record of the failure.
func sandboxKeyFree(c *C) {
	owner := c.tenant(tenant.Quota{})
	ended := map[string]func(run.Sandbox){
		"by its maker": func(b run.Sandbox) { c.ok(second(c.EndSandbox(c.ctx, b.ID, wasKilled))) },
		"as stuck":     func(run.Sandbox) { c.ok(second(c.EndDueSandboxes(c.ctx, long, 0))) },
		"by the time":  func(run.Sandbox) { c.ok(second(c.EndDueSandboxes(c.ctx, -2*long, long))) },
	}
	for how, end := range ended {
		first := c.box(owner, keyed)
		end(first)
		c.boxIs(first, run.SandboxEnding)
		again := c.box(owner, keyed)
		if again.ID == first.ID {
			c.Errorf("one that was ended %s before it ran keeps its key", how)
		}
		end(again)
	}
}
