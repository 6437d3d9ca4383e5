package storetest

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
	"github.com/agentdock/agentdock/internal/tenant"
)

// C is one case: a record of its own, with short words for what cases do.
type C struct {
	*testing.T
	store.Store
	h     Harness
	ctx   context.Context
	place string
	names atomic.Int64
}

func newCase(t *testing.T, h Harness) *C {
	ctx, cancel := context.WithTimeout(context.Background(), 3*h.Patience)
	c := &C{T: t, h: h, ctx: ctx, place: h.Place(t)}
	c.Store = c.open()
	t.Cleanup(func() {
		cancel()
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return c
}

func (c *C) open() store.Store {
	c.Helper()
	s, err := c.h.Open(c.place)
	if err != nil {
		c.Fatal(err)
	}
	return s
}

// whole checks what must hold after every case.
func (c *C) whole() {
	c.Helper()
	if c.h.Drift == nil || c.Failed() {
		return
	}
	drift, err := c.h.Drift(c.Store)
	if err != nil || len(drift) > 0 {
		c.Errorf("the counters have drifted: %q, %v", drift, err)
	}
}

// name makes a name that the case has not used.
func (c *C) name(kind string) string { return fmt.Sprintf("%s-%03d", kind, c.names.Add(1)) }

// ok fails the case on an error.
func (c *C) ok(err error) {
	c.Helper()
	if err != nil {
		c.Fatalf("%v\n%s", err, debug.Stack())
	}
}

// fails checks that an error carries a code.
func (c *C) fails(err error, code fault.Code) {
	c.Helper()
	if !fault.Is(err, code) {
		c.Errorf("want an error with the code %s, got %v", code, err)
	}
}

// tenant makes a tenant with a quota.
func (c *C) tenant(q tenant.Quota) string {
	c.Helper()
	id := c.name("tenant")
	c.ok(c.CreateTenant(c.ctx, tenant.Tenant{ID: id, Name: id, Quota: q}))
	return id
}

// spec is a job of 1000 thousandths of a processor and 1 MiB.
func spec() run.JobSpec {
	return run.JobSpec{
		Source:   run.Source{Kind: run.SourceNone},
		Commands: []run.Command{{Argv: []string{"true", "\x01 ünï"}}, {Argv: []string{"false"}, Stdin: []byte("a\x00\xff"), EndAtLimit: []run.Limit{run.LimitDisk}, Timeout: time.Second}},
		Image:    "default",
		Env:      map[string]string{"A": "1"},
		Limits:   run.Limits{MilliCPU: 1000, MemoryBytes: run.MiB},
		Timeout:  time.Minute,
	}
}

// create puts a job on record.
func (c *C) create(tenantID string, change ...func(*run.JobSpec)) run.Job {
	c.Helper()
	n := c.newJob(tenantID)
	for _, f := range change {
		f(&n.Spec)
	}
	job, created, err := c.CreateJob(c.ctx, n)
	c.ok(err)
	if !created {
		c.Fatalf("job %s is said to have been made before", n.ID)
	}
	return job
}

func (c *C) newJob(tenantID string) store.NewJob {
	return store.NewJob{ID: c.name("job"), TenantID: tenantID, Spec: spec(), RequestDigest: [32]byte{1}}
}

const (
	worker = "worker"
	long   = time.Hour
)

// claim takes the next job, which must be there.
func (c *C) claim() store.Claimed {
	c.Helper()
	got, ok, err := c.Claim(c.ctx, worker, long)
	c.ok(err)
	if !ok {
		c.Fatal("there is no job to claim")
	}
	return got
}

// nothing checks that there is no job to claim.
func (c *C) nothing() {
	c.Helper()
	if got, ok, err := c.Claim(c.ctx, worker, long); err != nil || ok {
		c.Errorf("claimed %s, %v; want nothing", got.Job.ID, err)
	}
}

// started makes a tenant with a job that a worker has.
func (c *C) started() store.Claimed {
	c.Helper()
	c.create(c.tenant(tenant.Quota{}))
	return c.claim()
}

// running is started, with a command that may run.
func (c *C) running() store.Claimed {
	c.Helper()
	got := c.started()
	c.ok(c.StartStep(c.ctx, got.Lease, run.Step{Index: 0}))
	return got
}

// expire makes a lease end now.
func (c *C) expire(l store.Lease) {
	c.Helper()
	_, err := c.Renew(c.ctx, l, 0)
	c.ok(err)
}

// finish ends a running job well.
func (c *C) finish(l store.Lease) {
	c.Helper()
	c.ok(c.Finish(c.ctx, l, succeeded()))
}

// done runs a job of a tenant to its good end.
func (c *C) done(tenantID string, change ...func(*run.JobSpec)) run.Job {
	c.Helper()
	job := c.create(tenantID, change...)
	got := c.claim()
	if got.Job.ID != job.ID {
		c.Fatalf("claimed %s, want %s", got.Job.ID, job.ID)
	}
	c.ok(c.StartStep(c.ctx, got.Lease, run.Step{Index: 0}))
	c.finish(got.Lease)
	return c.job(job)
}

func succeeded() store.End {
	return store.End{State: run.Succeeded, Outcome: run.ExitedWith(0, "wait status"), Usage: run.Usage{PeakMemoryBytes: 7}}
}

func failed() store.End {
	return store.End{State: run.Failed, Outcome: run.Outcome{Kind: run.CheckoutFailed, Evidence: "no archive"}}
}

func cancelled() store.End {
	return store.End{State: run.StateCancelled, Outcome: run.Outcome{Kind: run.Cancelled, Evidence: "asked to"}}
}

// job reads a job as it is now.
func (c *C) job(j run.Job) run.Job {
	c.Helper()
	now, err := c.Job(c.ctx, j.TenantID, j.ID)
	c.ok(err)
	return now
}

// is checks the state of a job, and that it has an outcome exactly if terminal.
func (c *C) is(j run.Job, want run.State) run.Job {
	c.Helper()
	now := c.job(j)
	if now.State != want {
		c.Errorf("job %s is %s, want %s", j.ID, now.State, want)
	}
	if now.State.Terminal() != (now.Outcome != nil) || now.State.Terminal() == now.FinishedAt.IsZero() {
		c.Errorf("job %s is %s, and its outcome is %v, at %v", j.ID, now.State, now.Outcome, now.FinishedAt)
	}
	return now
}

// log reads a job's whole log, page by page.
func (c *C) log(j run.Job) []run.LogEntry {
	c.Helper()
	var list []run.LogEntry
	var after int64
	for {
		page, err := c.Log(c.ctx, j.TenantID, j.ID, after, 64<<10)
		c.ok(err)
		if len(page) == 0 {
			return list
		}
		list = append(list, page...)
		after = page[len(page)-1].Seq
	}
}

// text is what the entries of a step say, and checks their numbers and places.
func (c *C) text(entries []run.LogEntry, attempt, step int) string {
	c.Helper()
	var b strings.Builder
	for i, e := range entries {
		if e.Seq != entries[0].Seq+int64(i) {
			c.Errorf("entry %d has the number %d after %d", i, e.Seq, entries[0].Seq)
		}
		if e.Attempt != attempt || e.Step != step {
			continue
		}
		if e.Offset != int64(b.Len()) {
			c.Errorf("entry %d is at %d, want %d", e.Seq, e.Offset, b.Len())
		}
		b.Write(e.Data)
	}
	return b.String()
}

// together runs a function n times at once and waits for all.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	begin := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-begin
			f(i)
		})
	}
	close(begin)
	wg.Wait()
}

// eventually waits until something holds.
func (c *C) eventually(what string, holds func() bool) {
	c.Helper()
	deadline := time.Now().Add(c.h.Patience)
	for !holds() {
		if time.Now().After(deadline) {
			c.Fatalf("%s did not happen in %v", what, c.h.Patience)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
