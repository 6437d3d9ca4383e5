package storetest

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/google/go-cmp/cmp"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
	"github.com/agentdock/agentdock/internal/tenant"
)

var sandboxCases = []testCase{
	{clause: "S1", name: "is_what_was_put", run: sandboxKept},
	{clause: "S1", name: "quota_of_sandboxes", run: sandboxQuota},
	{clause: "S1", name: "quota_with_jobs", run: sandboxQuotaWithJobs},
	{clause: "S1", name: "quota_is_not_passed_together", run: sandboxQuotaRaced},
	{clause: "S1", name: "refused", run: sandboxRefused},
	{clause: "S2", name: "of_its_tenant_only", run: sandboxOther},
	{clause: "S3", name: "pages", run: sandboxPages},
	{clause: "S3", name: "filters", run: sandboxFilters},
	{clause: "S4", name: "moves", run: sandboxMoves},
	{clause: "S4", name: "first_outcome_stays", run: sandboxFirstOutcome},
	{clause: "S5", name: "extend", run: sandboxExtend},
	{clause: "S5", name: "time_is_over", run: sandboxDue},
	{clause: "S5", name: "extension_races_the_end", run: sandboxExtendRaced},
	{clause: "S5", name: "never_started", run: sandboxStuck},
	{clause: "S6", name: "holds_quota_to_the_end", run: sandboxHolds},
	{clause: "S7", name: "only_ended_ones_are_deleted", run: sandboxDeleted},
	{clause: "S8", name: "same_key_same_sandbox", run: sandboxKey},
	{clause: "S8", name: "same_key_other_request", run: sandboxKeyConflict},
	{clause: "S8", name: "keys_of_tenants_are_apart", run: sandboxKeysApart},
	{clause: "S8", name: "same_key_at_once", run: sandboxKeyRaced},
	{clause: "S8", name: "key_of_what_never_ran_is_free", run: sandboxKeyFree},
	{clause: "S9", name: "time_of_a_paused_one", run: sandboxPaused},
}

func (c *C) newSandbox(tenantID string) store.NewSandbox {
	return store.NewSandbox{
		ID: c.name("box"), TenantID: tenantID, AccessToken: "secret", TTL: long, MaxLifetime: 2 * long,
		Spec: run.SandboxSpec{
			Image: "default", EnvNames: []string{"A"}, Limits: run.Limits{MilliCPU: 1000, MemoryBytes: run.MiB},
			Labels: map[string]string{"who": "ünï", "n": "1"},
		},
	}
}

// box puts a sandbox on record.
func (c *C) box(tenantID string, change ...func(*store.NewSandbox)) run.Sandbox {
	c.Helper()
	n := c.newSandbox(tenantID)
	for _, f := range change {
		f(&n)
	}
	made, err := c.CreateSandbox(c.ctx, n)
	c.ok(err)
	return made
}

// boxIs checks the state of a sandbox, and what must go with it.
func (c *C) boxIs(b run.Sandbox, want run.SandboxState) run.Sandbox {
	c.Helper()
	now, err := c.Sandbox(c.ctx, b.TenantID, b.ID)
	c.ok(err)
	if now.State != want {
		c.Errorf("sandbox %s is %s, want %s", b.ID, now.State, want)
	}
	if now.State.Alive() != (now.Outcome == nil) || now.State.Alive() == (now.AccessToken == "") || (now.State == run.SandboxEnded) == now.EndedAt.IsZero() {
		c.Errorf("sandbox %s is %s, with the outcome %v, the token %q, ended at %v", b.ID, now.State, now.Outcome, now.AccessToken, now.EndedAt)
	}
	return now
}

var wasKilled = run.Outcome{Kind: run.Cancelled, Evidence: "asked to"}

func sandboxKept(c *C) {
	owner := c.tenant(tenant.Quota{})
	n := c.newSandbox(owner)
	made, err := c.CreateSandbox(c.ctx, n)
	c.ok(err)
	got := c.boxIs(made, run.SandboxCreating)
	want := run.Sandbox{
		ID: n.ID, TenantID: owner, Spec: n.Spec, State: run.SandboxCreating, AccessToken: "secret",
		CreatedAt: made.CreatedAt, ExpiresAt: made.CreatedAt.Add(long), Deadline: made.CreatedAt.Add(2 * long),
	}
	if d := cmp.Diff(want, got) + cmp.Diff(want, made); d != "" {
		c.Error(d)
	}
	of, t, err := c.SandboxOf(c.ctx, n.ID)
	c.ok(err)
	if d := cmp.Diff(want, of); d != "" || t.ID != owner {
		c.Errorf("of tenant %q: %s", t.ID, d)
	}
	for range 2 {
		c.ok(c.PlaceSandbox(c.ctx, n.ID, "node"))
	}
	want.Node, want.State, want.Resolved = "node", run.SandboxRunning, run.Resolved{ImageDigest: "sha256:1", Isolation: "kernel"}
	started, err := c.StartSandbox(c.ctx, n.ID, want.Resolved)
	c.ok(err)
	if d := cmp.Diff(want, started) + cmp.Diff(want, c.boxIs(made, run.SandboxRunning)); d != "" {
		c.Error(d)
	}
}

func sandboxQuota(c *C) {
	owner := c.tenant(tenant.Quota{Sandboxes: 2})
	first := c.box(owner)
	c.box(owner)
	_, err := c.CreateSandbox(c.ctx, c.newSandbox(owner))
	c.fails(err, fault.Exhausted)
	c.box(c.tenant(tenant.Quota{Sandboxes: 1})) // another's is another's
	_, err = c.EndSandbox(c.ctx, first.ID, wasKilled)
	c.ok(err)
	c.ok(c.RemovedSandbox(c.ctx, first.ID))
	c.box(owner)
}

// sandboxQuotaWithJobs: processors and memory are one account for both.
func sandboxQuotaWithJobs(c *C) {
	owner := c.tenant(tenant.Quota{MilliCPU: 2000})
	c.create(owner)
	c.box(owner)
	c.claim()
	_, err := c.CreateSandbox(c.ctx, c.newSandbox(owner))
	c.fails(err, fault.Exhausted)
	c.create(owner)
	c.nothing()
	owner = c.tenant(tenant.Quota{MemoryBytes: 2 * run.MiB})
	c.box(owner)
	c.box(owner)
	_, err = c.CreateSandbox(c.ctx, c.newSandbox(owner))
	c.fails(err, fault.Exhausted)
}

func sandboxQuotaRaced(c *C) {
	owner := c.tenant(tenant.Quota{Sandboxes: 3})
	var made, refused atomic.Int32
	var wants []store.NewSandbox
	for range 12 {
		wants = append(wants, c.newSandbox(owner))
	}
	together(len(wants), func(i int) {
		switch _, err := c.CreateSandbox(c.ctx, wants[i]); {
		case err == nil:
			made.Add(1)
		case fault.Is(err, fault.Exhausted):
			refused.Add(1)
		default:
			c.Error(err)
		}
	})
	if made.Load() != 3 || refused.Load() != 9 {
		c.Errorf("%d made and %d refused, of a quota of 3 and 12 calls", made.Load(), refused.Load())
	}
}

func sandboxRefused(c *C) {
	owner := c.tenant(tenant.Quota{MilliCPU: 999})
	_, err := c.CreateSandbox(c.ctx, c.newSandbox(owner))
	c.fails(err, fault.Invalid)
	owner = c.tenant(tenant.Quota{MemoryBytes: 1})
	_, err = c.CreateSandbox(c.ctx, c.newSandbox(owner))
	c.fails(err, fault.Invalid)
	owner = c.tenant(tenant.Quota{})
	n := c.newSandbox(owner)
	n.ID = c.box(owner).ID
	_, err = c.CreateSandbox(c.ctx, n)
	c.fails(err, fault.Conflict)
	c.ok(c.UpdateTenant(c.ctx, tenant.Tenant{ID: owner, Disabled: true}))
	_, err = c.CreateSandbox(c.ctx, c.newSandbox(owner))
	c.fails(err, fault.Denied)
	_, err = c.CreateSandbox(c.ctx, c.newSandbox("nobody"))
	c.fails(err, fault.NotFound)
}

func sandboxOther(c *C) {
	owner, other := c.tenant(tenant.Quota{}), c.tenant(tenant.Quota{})
	b := c.box(owner)
	_, unknown := c.Sandbox(c.ctx, other, "no-such-id")
	for what, err := range map[string]error{
		"read":    second(c.Sandbox(c.ctx, other, b.ID)),
		"extend":  second(c.ExtendSandbox(c.ctx, other, b.ID, long, false)),
		"unknown": second(c.ExtendSandbox(c.ctx, owner, "no-such-id", long, false)),
	} {
		c.fails(err, fault.NotFound)
		if fmt.Sprint(err) != fmt.Sprint(unknown) {
			c.Errorf("%s says %q, and of what does not exist %q", what, err, unknown)
		}
	}
	page, err := c.Sandboxes(c.ctx, store.SandboxQuery{TenantID: other})
	if err != nil || len(page.Sandboxes) != 0 {
		c.Errorf("another tenant is shown %v, %v", page, err)
	}
	if now := c.boxIs(b, run.SandboxCreating); now.ExpiresAt != b.ExpiresAt {
		c.Errorf("another tenant has moved its end from %v to %v", b.ExpiresAt, now.ExpiresAt)
	}
}

func second[T any](_ T, err error) error { return err }

func sandboxPages(c *C) {
	owner := c.tenant(tenant.Quota{})
	var want, got []string
	for range 7 {
		want = append(want, c.box(owner).ID)
	}
	slices.Reverse(want)
	q := store.SandboxQuery{TenantID: owner, Limit: 3}
	for pages := 0; ; pages++ {
		page, err := c.Sandboxes(c.ctx, q)
		c.ok(err)
		for _, b := range page.Sandboxes {
			got = append(got, b.ID)
		}
		if page.Next == "" || pages > 5 {
			break
		}
		c.box(owner) // newer than where the list begins
		q.Cursor = page.Next
	}
	if d := cmp.Diff(want, got); d != "" {
		c.Error(d)
	}
	_, err := c.Sandboxes(c.ctx, store.SandboxQuery{TenantID: owner, Cursor: "?"})
	c.fails(err, fault.Invalid)
}

func sandboxFilters(c *C) {
	owner := c.tenant(tenant.Quota{})
	label := func(v string) func(*store.NewSandbox) {
		return func(n *store.NewSandbox) { n.Spec.Labels = map[string]string{"of": v, "all": "x"} }
	}
	a, b := c.box(owner, label("a")), c.box(owner, label("b"))
	_, err := c.EndSandbox(c.ctx, b.ID, wasKilled)
	c.ok(err)
	for _, q := range []struct {
		states []run.SandboxState
		labels map[string]string
		want   []string
	}{
		{want: []string{b.ID, a.ID}},
		{labels: map[string]string{"all": "x"}, want: []string{b.ID, a.ID}},
		{labels: map[string]string{"all": "x", "of": "a"}, want: []string{a.ID}},
		{labels: map[string]string{"of": "x"}},
		{states: []run.SandboxState{run.SandboxEnding, run.SandboxRunning}, want: []string{b.ID}},
		{states: []run.SandboxState{run.SandboxCreating}, labels: map[string]string{"all": "x"}, want: []string{a.ID}},
	} {
		page, err := c.Sandboxes(c.ctx, store.SandboxQuery{TenantID: owner, States: q.states, Labels: q.labels})
		c.ok(err)
		var got []string
		for _, s := range page.Sandboxes {
			got = append(got, s.ID)
		}
		if d := cmp.Diff(q.want, got); d != "" {
			c.Errorf("%v %v: %s", q.states, q.labels, d)
		}
	}
	_, err = c.Sandboxes(c.ctx, store.SandboxQuery{TenantID: owner, States: []run.SandboxState{"lost"}})
	c.fails(err, fault.Invalid)
}
