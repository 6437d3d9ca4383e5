package storetest

import (
	"fmt"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
	"github.com/agentdock/agentdock/internal/tenant"
)

var createCases = []testCase{
	{clause: "J1", name: "job_is_on_record_as_asked_for", run: createKeeps},
	{clause: "J1", name: "key_makes_one_job", run: createKey},
	{clause: "J1", name: "key_with_another_request", run: createKeyConflict},
	{clause: "J1", name: "keys_of_tenants_are_apart", run: createKeysApart},
	{clause: "J1", name: "key_raced", run: createKeyRaced},
	{clause: "J1", name: "create_can_be_repeated", run: createTwice},
	{clause: "J1", name: "upload_must_be_there", run: createNeedsUpload},
	{clause: "J1", name: "unknown_tenant", run: createUnknownTenant},
	{clause: "J1", name: "text_that_cannot_be_kept", run: createHostileText},
	{clause: "J2", name: "queue_quota", run: createQuota},
	{clause: "J2", name: "queue_quota_raced", run: createQuotaRaced},
	{clause: "J2", name: "job_larger_than_the_quota", run: createTooLarge},
	{clause: "J2", name: "disabled_tenant", run: createDisabled},
}

func createKeeps(c *C) {
	n := c.newJob(c.tenant(tenant.DefaultQuota()))
	n.Spec.Labels = map[string]string{"team": "a", "ü": ""}
	n.Spec.Artifacts = []string{"**/*.xml"}
	n.Spec.Source = run.Source{Kind: run.SourceRepository, Repository: "https://example.org/r", Ref: "main"}
	n.Spec.Env["ZERO"] = "a\x00b" // JSON can carry it, so it arrives here
	n.TraceParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	began := time.Now()
	job, created, err := c.CreateJob(c.ctx, n)
	c.ok(err)
	if !created || job.State != run.Queued || job.Attempt != 0 || job.Outcome != nil || job.Steps != nil {
		c.Errorf("made %v: %+v", created, job)
	}
	if d := cmp.Diff(n.Spec, job.Spec); d != "" {
		c.Errorf("the specification changed: %s", d)
	}
	if d := job.CreatedAt.Sub(began); d < -time.Minute || d > time.Minute {
		c.Errorf("created at %v, and it is %v", job.CreatedAt, began)
	}
	if d := cmp.Diff(job, c.job(job)); d != "" {
		c.Errorf("CreateJob and Job do not agree: %s", d)
	}
	if got := c.claim(); job.TraceParent != n.TraceParent || got.Job.TraceParent != n.TraceParent {
		c.Errorf("the trace is %q, and for whoever claims the job %q", job.TraceParent, got.Job.TraceParent)
	}
}

func createKey(c *C) {
	n := c.newJob(c.tenant(tenant.Quota{Queued: 1}))
	n.IdempotencyKey = "key"
	first, created, err := c.CreateJob(c.ctx, n)
	c.ok(err)
	if !created {
		c.Error("the first is not new")
	}
	// The queue is full, and the second is not a second job.
	n.ID = c.name("job")
	again, created, err := c.CreateJob(c.ctx, n)
	c.ok(err)
	if created || again.ID != first.ID {
		c.Errorf("made %v: %s, want %s", created, again.ID, first.ID)
	}
	// It is still that job when it has ended.
	c.ok2(c.CancelJob(c.ctx, n.TenantID, first.ID))
	again, created, err = c.CreateJob(c.ctx, n)
	c.ok(err)
	if created || again.ID != first.ID || again.State != run.StateCancelled {
		c.Errorf("made %v: %s, %s", created, again.ID, again.State)
	}
}

// ok2 is ok for calls that return a job too.
func (c *C) ok2(_ run.Job, err error) {
	c.Helper()
	c.ok(err)
}

func createKeyConflict(c *C) {
	n := c.newJob(c.tenant(tenant.Quota{}))
	n.IdempotencyKey = "key"
	_, _, err := c.CreateJob(c.ctx, n)
	c.ok(err)
	n.ID, n.RequestDigest = c.name("job"), [32]byte{2}
	_, _, err = c.CreateJob(c.ctx, n)
	c.fails(err, fault.Conflict)
	page, err := c.Jobs(c.ctx, store.JobQuery{TenantID: n.TenantID})
	c.ok(err)
	if len(page.Jobs) != 1 {
		c.Errorf("there are %d jobs", len(page.Jobs))
	}
}

func createKeysApart(c *C) {
	for range 2 {
		n := c.newJob(c.tenant(tenant.Quota{}))
		n.IdempotencyKey = "key"
		if job, created, err := c.CreateJob(c.ctx, n); err != nil || !created || job.ID != n.ID {
			c.Errorf("made %v: %s, %v", created, job.ID, err)
		}
	}
}

func createKeyRaced(c *C) {
	n := c.newJob(c.tenant(tenant.Quota{}))
	n.IdempotencyKey = "key"
	var mu sync.Mutex
	ids, made := map[string]bool{}, 0
	together(16, func(i int) {
		n := n
		n.ID = fmt.Sprintf("%s-%d", n.ID, i)
		job, created, err := c.CreateJob(c.ctx, n)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			c.Errorf("create: %v", err)
		}
		ids[job.ID] = true
		if created {
			made++
		}
	})
	if len(ids) != 1 || made != 1 {
		c.Errorf("%d were made, and the answers are %v", made, ids)
	}
}

func createTwice(c *C) {
	n := c.newJob(c.tenant(tenant.Quota{}))
	first, _, err := c.CreateJob(c.ctx, n)
	c.ok(err)
	again, created, err := c.CreateJob(c.ctx, n)
	if err != nil || created || again.ID != first.ID {
		c.Errorf("made %v: %s, %v", created, again.ID, err)
	}
	n.TenantID = c.tenant(tenant.Quota{})
	_, _, err = c.CreateJob(c.ctx, n)
	c.fails(err, fault.Conflict)
}

func createNeedsUpload(c *C) {
	owner, other := c.tenant(tenant.Quota{}), c.tenant(tenant.Quota{})
	n := c.newJob(owner)
	n.Spec.Source = run.Source{Kind: run.SourceArchive, Upload: "upload"}
	_, _, err := c.CreateJob(c.ctx, n)
	c.fails(err, fault.NotFound)
	c.ok(c.CreateUpload(c.ctx, store.Upload{ID: "upload", TenantID: owner, Key: "uploads/upload", Bytes: 3}))
	_, _, err = c.CreateJob(c.ctx, n)
	c.fails(err, fault.NotFound)
	c.ok(c.CompleteUpload(c.ctx, "upload", 3, "abc"))
	theirs := n
	theirs.TenantID = other
	_, _, err = c.CreateJob(c.ctx, theirs)
	c.fails(err, fault.NotFound)
	_, _, err = c.CreateJob(c.ctx, n)
	c.ok(err)
}

func createUnknownTenant(c *C) {
	_, _, err := c.CreateJob(c.ctx, c.newJob("nobody"))
	c.fails(err, fault.NotFound)
}

// createHostileText: databases differ in what text they keep; all refuse the
// same, and nothing is cut or replaced.
func createHostileText(c *C) {
	owner := c.tenant(tenant.Quota{})
	for _, text := range []string{"a\x00b", "\xff\xfe"} {
		n := c.newJob(owner)
		n.IdempotencyKey = text
		_, _, err := c.CreateJob(c.ctx, n)
		c.fails(err, fault.Invalid)
		n = c.newJob(owner)
		n.Spec.Labels = map[string]string{"a": text}
		_, _, err = c.CreateJob(c.ctx, n)
		c.fails(err, fault.Invalid)
		n = c.newJob(owner)
		n.TraceParent = text
		_, _, err = c.CreateJob(c.ctx, n)
		c.fails(err, fault.Invalid)
		_, err = c.Job(c.ctx, owner, text)
		c.fails(err, fault.NotFound)
		_, err = c.CancelJob(c.ctx, text, "x")
		c.fails(err, fault.NotFound)
	}
	for _, text := range []string{"'; DROP TABLE jobs; --", "$1", "%_\\", "👍\u202e", "\x01\x7f"} {
		n := c.newJob(owner)
		n.IdempotencyKey = text
		n.Spec.Labels = map[string]string{text: text}
		job, _, err := c.CreateJob(c.ctx, n)
		c.ok(err)
		page, err := c.Jobs(c.ctx, store.JobQuery{TenantID: owner, Labels: n.Spec.Labels})
		c.ok(err)
		if len(page.Jobs) != 1 || page.Jobs[0].ID != job.ID || page.Jobs[0].Spec.Labels[text] != text {
			c.Errorf("found %d jobs by the label %q", len(page.Jobs), text)
		}
	}
}

func createQuota(c *C) {
	owner := c.tenant(tenant.Quota{Queued: 2})
	first := c.create(owner)
	c.create(owner)
	_, _, err := c.CreateJob(c.ctx, c.newJob(owner))
	c.fails(err, fault.Exhausted)
	// Another tenant has room; and so has this one when a job has left the queue.
	c.create(c.tenant(tenant.Quota{Queued: 1}))
	c.ok2(c.CancelJob(c.ctx, owner, first.ID))
	c.create(owner)
	c.claim()
	c.claim()
	c.create(owner)
}

func createQuotaRaced(c *C) {
	owner := c.tenant(tenant.Quota{Queued: 5})
	var mu sync.Mutex
	made := 0
	together(24, func(int) {
		_, created, err := c.CreateJob(c.ctx, c.newJob(owner))
		mu.Lock()
		defer mu.Unlock()
		if created {
			made++
		} else if !fault.Is(err, fault.Exhausted) {
			c.Errorf("want Exhausted, got %v", err)
		}
	})
	if made != 5 {
		c.Errorf("%d jobs were made, want 5", made)
	}
}

func createTooLarge(c *C) {
	owner := c.tenant(tenant.Quota{MilliCPU: 2000, MemoryBytes: 2 * run.MiB})
	for _, change := range []func(*run.Limits){
		func(l *run.Limits) { l.MilliCPU = 2001 },
		func(l *run.Limits) { l.MemoryBytes = 2*run.MiB + 1 },
	} {
		n := c.newJob(owner)
		change(&n.Spec.Limits)
		_, _, err := c.CreateJob(c.ctx, n)
		c.fails(err, fault.Invalid)
	}
	c.create(owner, func(s *run.JobSpec) { s.Limits.MilliCPU, s.Limits.MemoryBytes = 2000, 2*run.MiB })
}

func createDisabled(c *C) {
	owner := c.tenant(tenant.Quota{})
	c.ok(c.UpdateTenant(c.ctx, tenant.Tenant{ID: owner, Disabled: true}))
	_, _, err := c.CreateJob(c.ctx, c.newJob(owner))
	c.fails(err, fault.Denied)
}
