package storetest

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
	"github.com/agentdock/agentdock/internal/tenant"
)

var uploadCases = []testCase{
	{clause: "U1", name: "of_its_tenant_only", run: uploadKept},
	{clause: "U1", name: "stale_uploads", run: uploadStale},
	{clause: "U1", name: "create_races_stale", run: uploadRaced},
	{clause: "U2", name: "upload_quota", run: uploadQuota},
	{clause: "U2", name: "upload_quota_raced", run: uploadQuotaRaced},
	{clause: "U2", name: "unused_room_is_given_back", run: uploadRoom},
}

func uploadKept(c *C) {
	owner, other := c.tenant(tenant.Quota{}), c.tenant(tenant.Quota{})
	u := store.Upload{ID: "u", TenantID: owner, Key: "uploads/u", Bytes: 9, CreatedAt: someDay}
	c.ok(c.CreateUpload(c.ctx, u))
	c.fails(c.CreateUpload(c.ctx, store.Upload{ID: "u", TenantID: other}), fault.Conflict)
	got, err := c.Upload(c.ctx, owner, "u")
	c.ok(err)
	if got != u {
		c.Errorf("on record: %+v", got)
	}
	u.Complete, u.Bytes, u.SHA256 = true, 7, "abc"
	for range 2 {
		c.ok(c.CompleteUpload(c.ctx, "u", 7, "abc"))
	}
	if got, err = c.Upload(c.ctx, owner, "u"); err != nil || got != u {
		c.Errorf("on record: %+v, %v", got, err)
	}
	_, err = c.Upload(c.ctx, other, "u")
	c.fails(err, fault.NotFound)
	c.fails(c.CompleteUpload(c.ctx, "no-such-id", 1, ""), fault.NotFound)
	for range 2 {
		c.ok(c.DeleteUpload(c.ctx, "u"))
	}
	_, err = c.Upload(c.ctx, owner, "u")
	c.fails(err, fault.NotFound)
}

func fromUpload(id string) func(*run.JobSpec) {
	return func(s *run.JobSpec) { s.Source = run.Source{Kind: run.SourceArchive, Upload: id} }
}

func uploadStale(c *C) {
	owner := c.tenant(tenant.Quota{})
	old := time.Now().Add(-48 * time.Hour)
	for i, id := range []string{"unfinished", "unused", "used", "new"} {
		at := old.Add(time.Duration(i) * time.Minute)
		if id == "new" {
			at = time.Now()
		}
		c.ok(c.CreateUpload(c.ctx, store.Upload{ID: id, TenantID: owner, Key: id, Bytes: 1, CreatedAt: at}))
		if id != "unfinished" {
			c.ok(c.CompleteUpload(c.ctx, id, 1, "s"))
		}
	}
	job := c.create(owner, fromUpload("used"))
	stale := func(before time.Time) []string {
		list, err := c.StaleUploads(c.ctx, before, 10)
		c.ok(err)
		names := []string{}
		for _, u := range list {
			names = append(names, u.ID)
			if u.Complete {
				c.Errorf("%s is stale and complete", u.ID)
			}
		}
		return names
	}
	for range 2 { // it may be asked again, until they are deleted
		if d := cmp.Diff([]string{"unfinished", "unused"}, stale(time.Now().Add(-time.Hour))); d != "" {
			c.Error(d)
		}
	}
	if list, err := c.StaleUploads(c.ctx, time.Now(), 1); err != nil || len(list) != 1 || list[0].ID != "unfinished" {
		c.Errorf("the oldest is %v, %v", list, err)
	}
	n := c.newJob(owner)
	fromUpload("unused")(&n.Spec)
	_, _, err := c.CreateJob(c.ctx, n)
	c.fails(err, fault.NotFound)
	later := time.Now().Add(long)
	if d := cmp.Diff([]string{"unfinished", "unused", "new"}, stale(later)); d != "" {
		c.Error(d)
	}
	c.ok2(c.CancelJob(c.ctx, owner, job.ID))
	if d := cmp.Diff([]string{"unfinished", "unused", "used", "new"}, stale(later)); d != "" {
		c.Error(d)
	}
}

// uploadRaced: a job is created from an upload while that is found stale.
func uploadRaced(c *C) {
	owner := c.tenant(tenant.Quota{})
	for i := range rounds {
		id := fmt.Sprintf("u%d", i)
		old := time.Now().Add(-48 * time.Hour)
		c.ok(c.CreateUpload(c.ctx, store.Upload{ID: id, TenantID: owner, Key: id, Bytes: 1, CreatedAt: old}))
		c.ok(c.CompleteUpload(c.ctx, id, 1, "s"))
		var created, stale bool
		together(2, func(i int) {
			if i == 0 {
				n := c.newJob(owner)
				fromUpload(id)(&n.Spec)
				var err error
				if _, created, err = c.CreateJob(c.ctx, n); err != nil {
					c.expect(err, fault.NotFound)
				}
				return
			}
			list, err := c.StaleUploads(c.ctx, old.Add(long), 10)
			c.expect(err, "")
			stale = len(list) > 0
		})
		if created == stale {
			c.Errorf("the upload has a new job: %v; it is stale: %v", created, stale)
		}
		c.ok(c.DeleteUpload(c.ctx, id))
	}
}

// uploadQuota: what is set aside counts, complete or not, until it is deleted.
func uploadQuota(c *C) {
	owner, other := c.tenant(tenant.Quota{UploadBytes: 100}), c.tenant(tenant.Quota{UploadBytes: 100})
	upload := func(owner, id string, bytes int64) error {
		return c.CreateUpload(c.ctx, store.Upload{ID: id, TenantID: owner, Key: id, Bytes: bytes})
	}
	c.fails(upload(owner, "never", 101), fault.Invalid)
	c.ok(upload(owner, "a", 60))
	c.fails(upload(owner, "b", 41), fault.Exhausted)
	c.ok(c.CompleteUpload(c.ctx, "a", 60, "s"))
	c.fails(upload(owner, "b", 41), fault.Exhausted)
	c.ok(upload(other, "c", 100))
	c.ok(upload(owner, "b", 40))
	_, err := c.GrowUpload(c.ctx, "b", 41, 50)
	c.fails(err, fault.Exhausted)
	c.ok(c.DeleteUpload(c.ctx, "a"))
	c.ok(upload(owner, "d", 60))
	c.ok(c.UpdateTenant(c.ctx, tenant.Tenant{ID: owner, Quota: tenant.Quota{UploadBytes: 50}}))
	c.fails(upload(owner, "e", 1), fault.Exhausted)
	c.ok(c.UpdateTenant(c.ctx, tenant.Tenant{ID: owner}))
	c.ok(upload(owner, "e", 1<<40))
	if _, err := c.Upload(c.ctx, owner, "never"); !fault.Is(err, fault.NotFound) {
		c.Errorf("what was refused is on record: %v", err)
	}
}

// uploadRoom: an upload of unknown size takes room as it comes.
func uploadRoom(c *C) {
	owner := c.tenant(tenant.Quota{UploadBytes: 100})
	c.ok(c.CreateUpload(c.ctx, store.Upload{ID: "u", TenantID: owner, Key: "u"}))
	for _, step := range []struct{ least, most, want int64 }{
		{1, 70, 70}, {1, 70, 70}, {5, 20, 70}, {71, 200, 100},
	} {
		if aside, err := c.GrowUpload(c.ctx, "u", step.least, step.most); err != nil || aside != step.want {
			c.Errorf("at least %d and at most %d: %d are set aside, want %d; %v", step.least, step.most, aside, step.want, err)
		}
	}
	_, err := c.GrowUpload(c.ctx, "u", 101, 200)
	c.fails(err, fault.Exhausted)
	c.fails(c.CompleteUpload(c.ctx, "u", 101, "s"), fault.Invalid)
	for range 2 {
		c.ok(c.CompleteUpload(c.ctx, "u", 30, "s"))
	}
	_, err = c.GrowUpload(c.ctx, "u", 40, 40)
	c.fails(err, fault.Conflict)
	_, err = c.GrowUpload(c.ctx, "no-such-id", 1, 1)
	c.fails(err, fault.NotFound)
	c.ok(c.CreateUpload(c.ctx, store.Upload{ID: "v", TenantID: owner, Key: "v", Bytes: 70}))
	for range 2 {
		c.ok(c.DeleteUpload(c.ctx, "v"))
	}
	c.ok(c.CreateUpload(c.ctx, store.Upload{ID: "w", TenantID: owner, Key: "w", Bytes: 70}))
}

// uploadQuotaRaced: many uploads at once do not pass the quota together, whether
// they take their room at once or bit by bit.
func uploadQuotaRaced(c *C) {
	const quota, each = 10, 3
	owner := c.tenant(tenant.Quota{UploadBytes: quota})
	var kept atomic.Int64
	together(8, func(i int) {
		u := store.Upload{ID: fmt.Sprintf("u%d", i), TenantID: owner, Key: "k"}
		if i%2 == 0 {
			u.Bytes = each
		}
		err := c.CreateUpload(c.ctx, u)
		if err == nil && u.Bytes == 0 {
			_, err = c.GrowUpload(c.ctx, u.ID, each, each)
		}
		if err != nil {
			c.expect(err, fault.Exhausted)
			return
		}
		c.expect(c.CompleteUpload(c.ctx, u.ID, each, "s"), "")
		kept.Add(each)
	})
	if got := kept.Load(); got != quota/each*each {
		c.Errorf("%d bytes are kept of a quota of %d", got, quota)
	}
}
