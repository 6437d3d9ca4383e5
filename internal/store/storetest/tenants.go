package storetest

import (
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/store"
	"github.com/agentdock/agentdock/internal/tenant"
)

var tenantCases = []testCase{
	{clause: "T1", name: "tenants_are_what_was_put", run: tenantKept},
	{clause: "T1", name: "keys_are_what_was_put", run: keyKept},
	{clause: "T1", name: "keys_that_open_nothing_are_found", run: keyUnusable},
	{clause: "T1", name: "key_of_another_tenant", run: keyOther},
	{clause: "T2", name: "changed_quota_holds", run: quotaChanged},
}

var someDay = time.Date(2026, 3, 4, 5, 6, 7, 891000000, time.UTC)

func tenantKept(c *C) {
	t := tenant.Tenant{ID: "acme", Name: "Acme ünï", Quota: tenant.DefaultQuota(), CreatedAt: someDay}
	t.Grants.Shell = true
	c.ok(c.CreateTenant(c.ctx, t))
	check := func() {
		c.Helper()
		got, err := c.Tenant(c.ctx, "acme")
		c.ok(err)
		list, err := c.Tenants(c.ctx)
		c.ok(err)
		if d := cmp.Diff(t, got) + cmp.Diff([]tenant.Tenant{t}, list); d != "" {
			c.Error(d)
		}
	}
	check()
	c.fails(c.CreateTenant(c.ctx, tenant.Tenant{ID: "acme", Name: "Other"}), fault.Conflict)
	check()
	t = tenant.Tenant{ID: "acme", Name: "New", Disabled: true, Quota: tenant.Quota{Running: 1}, CreatedAt: someDay}
	changed := t
	changed.CreatedAt = someDay.Add(long)
	c.ok(c.UpdateTenant(c.ctx, changed))
	check()
	c.fails(c.UpdateTenant(c.ctx, tenant.Tenant{ID: "nobody"}), fault.NotFound)
	_, err := c.Tenant(c.ctx, "nobody")
	c.fails(err, fault.NotFound)
}

func keyOf(tenantID, id string) tenant.Key {
	k := tenant.Key{ID: id, TenantID: tenantID, Name: "n", Prefix: "ad_x", Scopes: tenant.Scopes(), CreatedAt: someDay}
	copy(k.Hash[:], "hash of "+id)
	return k
}

func keyKept(c *C) {
	owner := c.tenant(tenant.Quota{})
	k := keyOf(owner, "key")
	k.ExpiresAt = someDay.Add(long)
	c.ok(c.CreateKey(c.ctx, k))
	check := func() {
		c.Helper()
		got, t, err := c.KeyByHash(c.ctx, k.Hash)
		c.ok(err)
		list, err := c.Keys(c.ctx, owner)
		c.ok(err)
		if d := cmp.Diff(k, got) + cmp.Diff([]tenant.Key{k}, list); d != "" || t.ID != owner {
			c.Errorf("of tenant %q: %s", t.ID, d)
		}
	}
	check()
	c.ok(c.TouchKey(c.ctx, k.ID, someDay.Add(time.Minute)))
	c.ok(c.TouchKey(c.ctx, k.ID, someDay)) // comes late
	got, _, err := c.KeyByHash(c.ctx, k.Hash)
	c.ok(err)
	if d := got.LastUsedAt.Sub(someDay); d <= 0 || d > time.Minute {
		c.Errorf("used at %v", got.LastUsedAt)
	}
	k.LastUsedAt = got.LastUsedAt
	check()
	same := keyOf(owner, "other id")
	same.Hash = k.Hash
	c.fails(c.CreateKey(c.ctx, same), fault.Conflict)
	c.fails(c.CreateKey(c.ctx, keyOf("nobody", "id")), fault.NotFound)
	_, _, err = c.KeyByHash(c.ctx, [32]byte{9})
	c.fails(err, fault.NotFound)
}

func keyUnusable(c *C) {
	owner := c.tenant(tenant.Quota{})
	expired, revoked := keyOf(owner, "expired"), keyOf(owner, "revoked")
	expired.ExpiresAt = time.Unix(1, 0).UTC()
	c.ok(c.CreateKey(c.ctx, expired))
	c.ok(c.CreateKey(c.ctx, revoked))
	var first time.Time
	for range 2 {
		c.ok(c.RevokeKey(c.ctx, owner, "revoked"))
		k, _, err := c.KeyByHash(c.ctx, revoked.Hash)
		c.ok(err)
		if k.RevokedAt.IsZero() || !first.IsZero() && k.RevokedAt != first || k.Usable(time.Now()) {
			c.Errorf("revoked at %v, then at %v", first, k.RevokedAt)
		}
		first = k.RevokedAt
	}
	c.ok(c.UpdateTenant(c.ctx, tenant.Tenant{ID: owner, Disabled: true}))
	k, t, err := c.KeyByHash(c.ctx, expired.Hash)
	if err != nil || k.Usable(time.Now()) || !t.Disabled {
		c.Errorf("found %+v of %+v, %v", k, t, err)
	}
}

func keyOther(c *C) {
	owner, other := c.tenant(tenant.Quota{}), c.tenant(tenant.Quota{})
	k := keyOf(owner, "key")
	c.ok(c.CreateKey(c.ctx, k))
	c.fails(c.RevokeKey(c.ctx, other, "key"), fault.NotFound)
	if list, err := c.Keys(c.ctx, other); err != nil || len(list) != 0 {
		c.Errorf("another tenant is shown %v, %v", list, err)
	}
	if got, _, err := c.KeyByHash(c.ctx, k.Hash); err != nil || !got.Usable(time.Now()) {
		c.Errorf("another tenant has revoked it: %+v, %v", got, err)
	}
}

func quotaChanged(c *C) {
	owner := c.tenant(tenant.Quota{Queued: 1})
	c.create(owner)
	_, _, err := c.CreateJob(c.ctx, c.newJob(owner))
	c.fails(err, fault.Exhausted)
	c.ok(c.UpdateTenant(c.ctx, tenant.Tenant{ID: owner, Quota: tenant.Quota{Queued: 2, Running: 1}}))
	c.create(owner)
	c.claim()
	c.nothing()
	c.ok(c.UpdateTenant(c.ctx, tenant.Tenant{ID: owner, Quota: tenant.Quota{Running: 2}}))
	c.claim()
}

// expect is for goroutines: it checks the code of an error, or that there is none.
func (c *C) expect(err error, code fault.Code) {
	c.Helper()
	if fault.CodeOf(err) != code {
		c.Errorf("want %q, got %v", code, err)
	}
}

var auditCases = []testCase{
	{clause: "A1", name: "entries_in_order", run: auditOrder},
	{clause: "A1", name: "database_refuses_changes", needs: needsTamper, run: auditTamper},
	{clause: "A1", name: "reader_misses_none", run: auditReader},
}

func auditOrder(c *C) {
	want := []store.AuditEntry{
		{At: someDay, TenantID: "a", KeyID: "k", Action: "job.create", Object: "j", Result: "ok", Remote: "[::1]:7"},
		{At: someDay, TenantID: "b", Action: "job.create", Result: "denied"},
		{At: someDay, TenantID: "a", Action: "job.cancel", Object: "hostile \x00 \xff", Result: "not_found"},
	}
	for _, e := range want {
		c.ok(c.AppendAudit(c.ctx, e))
	}
	want[2].Object = "hostile \uFFFD \uFFFD"
	all, err := c.AuditLog(c.ctx, "", 0, 10)
	c.ok(err)
	for i := range all {
		if i > 0 && all[i].Seq <= all[i-1].Seq {
			c.Errorf("the numbers are %d, %d", all[i-1].Seq, all[i].Seq)
		}
	}
	strip := func(list []store.AuditEntry) (stripped []store.AuditEntry) {
		for _, e := range list {
			e.Seq = 0
			stripped = append(stripped, e)
		}
		return stripped
	}
	if d := cmp.Diff(want, strip(all)); d != "" {
		c.Fatal(d)
	}
	of, err := c.AuditLog(c.ctx, "a", all[0].Seq, 10)
	c.ok(err)
	if d := cmp.Diff(all[2:], of); d != "" {
		c.Error(d)
	}
	if page, err := c.AuditLog(c.ctx, "", 0, 2); err != nil || len(page) != 2 {
		c.Errorf("a page of 2 has %d, %v", len(page), err)
	}
}

func auditTamper(c *C) {
	c.ok(c.AppendAudit(c.ctx, store.AuditEntry{TenantID: "a", Action: "x", Result: "ok"}))
	before, err := c.AuditLog(c.ctx, "", 0, 10)
	c.ok(err)
	tries := c.h.Tamper(c.T, c.place, c.Store)
	if len(tries) < 2 {
		c.Errorf("only %d ways were tried", len(tries))
	}
	for i, err := range tries {
		if err == nil {
			c.Errorf("try %d to change the audit log was not refused", i)
		}
	}
	after, err := c.AuditLog(c.ctx, "", 0, 10)
	c.ok(err)
	if d := cmp.Diff(before, after); d != "" {
		c.Errorf("the audit log has changed: %s", d)
	}
}

// auditReader reads on from the last number while many write.
func auditReader(c *C) {
	const writers, each = 8, 20
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range each {
				c.expect(c.AppendAudit(c.ctx, store.AuditEntry{TenantID: "a", Action: "x", Result: "ok"}), "")
			}
		})
	}
	var after int64
	read := 0
	c.eventually("the last entry", func() bool {
		page, err := c.AuditLog(c.ctx, "a", after, 7)
		c.ok(err)
		for _, e := range page {
			read, after = read+1, e.Seq
		}
		if all, err := c.AuditLog(c.ctx, "a", 0, writers*each); err != nil || len(all) < writers*each {
			return false
		}
		return len(page) == 0
	})
	wg.Wait()
	if read != writers*each {
		c.Errorf("read %d entries, want %d", read, writers*each)
	}
}
