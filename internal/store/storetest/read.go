package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
	"github.com/agentdock/agentdock/internal/tenant"
)

var readCases = []testCase{
	{clause: "J3", name: "other_tenants_see_nothing", run: readOther},
}

// readOther asks for everything a job has, as its tenant, as another one, and
// as nobody: all but the first get the answer that a job gets that never was.
func readOther(c *C) {
	owner, other := c.tenant(tenant.Quota{}), c.tenant(tenant.Quota{})
	c.create(owner, func(s *run.JobSpec) { s.Labels = map[string]string{"a": "b"} })
	got := c.claim()
	c.ok(c.StartStep(c.ctx, got.Lease, run.Step{}))
	_, err := c.AppendLog(c.ctx, got.Lease, []run.LogEntry{{Attempt: 1, Stream: "stdout", Data: []byte("x")}})
	c.ok(err)
	c.ok(c.AddArtifact(c.ctx, got.Lease, run.Artifact{Path: "a", Bytes: 1, Key: "k"}))
	questions := map[string]func(tenantID, id string) error{
		"Job":       func(t, id string) error { _, err := c.Job(c.ctx, t, id); return err },
		"CancelJob": func(t, id string) error { _, err := c.CancelJob(c.ctx, t, id); return err },
		"Log":       func(t, id string) error { _, err := c.Log(c.ctx, t, id, 0, 100); return err },
		"Artifacts": func(t, id string) error { _, err := c.Artifacts(c.ctx, t, id); return err },
		"Receipt":   func(t, id string) error { _, err := c.Receipt(c.ctx, t, id); return err },
	}
	ask := func() {
		for name, ask := range questions {
			missing := ask(other, "no-such-job")
			c.fails(missing, fault.NotFound)
			for _, t := range []string{other, "", "nobody"} {
				if err := ask(t, got.Job.ID); !fault.Is(err, fault.NotFound) || err.Error() != missing.Error() {
					c.Errorf("%s says %v to tenant %q, and %v of a job that does not exist", name, err, t, missing)
				}
			}
		}
	}
	ask()
	if j := c.job(got.Job); j.CancelRequested {
		c.Error("another tenant's cancel marked the job")
	}
	c.finish(got.Lease)
	c.ok(c.SignJob(c.ctx, got.Job.ID, []byte("receipt")))
	ask()
	for name, ask := range questions {
		if err := ask(owner, got.Job.ID); err != nil {
			c.Errorf("%s says %v to the job's tenant", name, err)
		}
	}
	for _, q := range []store.JobQuery{{TenantID: other}, {TenantID: other, Labels: map[string]string{"a": "b"}}, {TenantID: ""}} {
		if page, err := c.Jobs(c.ctx, q); err != nil || len(page.Jobs) != 0 {
			c.Errorf("tenant %q is shown %d jobs, %v", q.TenantID, len(page.Jobs), err)
		}
	}
}

var listCases = []testCase{
	{clause: "J4", name: "pages_while_jobs_are_added", run: listPages},
	{clause: "J4", name: "filters", run: listFilters},
	{clause: "J4", name: "filters_go_with_pages", run: listFilteredPages},
	{clause: "J4", name: "no_steps_in_a_list", run: listNoSteps},
	{clause: "J4", name: "cursor_of_nobody", run: listBadCursor},
}

// pages reads all pages of a list, and does something between them.
func (c *C) pages(q store.JobQuery, between func()) []run.Job {
	c.Helper()
	var all []run.Job
	for {
		page, err := c.Jobs(c.ctx, q)
		c.ok(err)
		if len(page.Jobs) > q.Limit {
			c.Errorf("a page of %d has %d jobs", q.Limit, len(page.Jobs))
		}
		all = append(all, page.Jobs...)
		if page.Next == "" {
			return all
		}
		if len(page.Jobs) == 0 {
			c.Fatal("a page that is not the last is empty")
		}
		q.Cursor = page.Next
		between()
	}
}

func ids(jobs []run.Job) []string {
	list := []string{}
	for _, j := range jobs {
		list = append(list, j.ID)
	}
	return list
}

func listPages(c *C) {
	owner := c.tenant(tenant.Quota{})
	var want []string
	for range 23 {
		want = append(want, c.create(owner).ID)
	}
	slices.Reverse(want)
	all := c.pages(store.JobQuery{TenantID: owner, Limit: 4}, func() {
		c.create(owner)
		got := c.claim() // the jobs move while they are read
		c.ok(c.StartStep(c.ctx, got.Lease, run.Step{}))
	})
	if d := cmp.Diff(want, ids(all)); d != "" {
		c.Errorf("the pages are not the jobs there were, newest first: %s", d)
	}
	// A page that is just full is the last.
	if page, err := c.Jobs(c.ctx, store.JobQuery{TenantID: owner, Limit: 28}); err != nil || len(page.Jobs) != 28 || page.Next != "" {
		c.Errorf("%d jobs, next %q, %v", len(page.Jobs), page.Next, err)
	}
}

func listFilters(c *C) {
	owner := c.tenant(tenant.Quota{})
	label := func(kv ...string) func(*run.JobSpec) {
		return func(s *run.JobSpec) {
			s.Labels = map[string]string{}
			for i := 0; i < len(kv); i += 2 {
				s.Labels[kv[i]] = kv[i+1]
			}
		}
	}
	ended := c.done(owner, label("app", "web", "env", "prod"))
	active := c.create(owner, label("app", "web"))
	c.claim()
	queued := c.create(owner, label("app", "api", "env", "prod"))
	cancelledJob := c.create(owner, label("app", "web", "env", "test"))
	c.ok2(c.CancelJob(c.ctx, owner, cancelledJob.ID))
	for name, tc := range map[string]struct {
		q    store.JobQuery
		want []run.Job
	}{
		"all":               {store.JobQuery{}, []run.Job{cancelledJob, queued, active, ended}},
		"a state":           {store.JobQuery{States: []run.State{run.Queued}}, []run.Job{queued}},
		"states":            {store.JobQuery{States: []run.State{run.Succeeded, run.Starting, run.Starting}}, []run.Job{active, ended}},
		"no such":           {store.JobQuery{States: []run.State{run.Failed}}, nil},
		"a label":           {store.JobQuery{Labels: map[string]string{"app": "web"}}, []run.Job{cancelledJob, active, ended}},
		"labels":            {store.JobQuery{Labels: map[string]string{"app": "web", "env": "prod"}}, []run.Job{ended}},
		"label and state":   {store.JobQuery{Labels: map[string]string{"env": "prod"}, States: []run.State{run.Queued, run.Succeeded}}, []run.Job{queued, ended}},
		"value of another":  {store.JobQuery{Labels: map[string]string{"app": "prod"}}, nil},
		"after, inclusive":  {store.JobQuery{CreatedAfter: queued.CreatedAt}, []run.Job{cancelledJob, queued}},
		"before, exclusive": {store.JobQuery{CreatedBefore: queued.CreatedAt}, []run.Job{active, ended}},
		"between": {store.JobQuery{CreatedAfter: active.CreatedAt, CreatedBefore: cancelledJob.CreatedAt,
			Labels: map[string]string{"env": "prod"}}, []run.Job{queued}},
	} {
		tc.q.TenantID = owner
		page, err := c.Jobs(c.ctx, tc.q)
		if d := cmp.Diff(ids(tc.want), ids(page.Jobs)); err != nil || d != "" {
			c.Errorf("%s: %v %s", name, err, d)
		}
	}
	_, err := c.Jobs(c.ctx, store.JobQuery{TenantID: owner, States: []run.State{"'; --"}})
	c.fails(err, fault.Invalid)
}

func listFilteredPages(c *C) {
	owner := c.tenant(tenant.Quota{})
	var want []string
	for i := range 20 {
		j := c.create(owner, func(s *run.JobSpec) { s.Labels = map[string]string{"third": fmt.Sprint(i % 3)} })
		if i%2 == 0 {
			c.ok2(c.CancelJob(c.ctx, owner, j.ID))
		}
		if i%3 == 0 {
			want = append(want, j.ID)
		}
	}
	slices.Reverse(want)
	all := c.pages(store.JobQuery{TenantID: owner, Limit: 2, Labels: map[string]string{"third": "0"},
		States: []run.State{run.Queued, run.StateCancelled}, CreatedBefore: time.Now().Add(long)}, func() {})
	if d := cmp.Diff(want, ids(all)); d != "" {
		c.Error(d)
	}
}

func listNoSteps(c *C) {
	got := c.running()
	page, err := c.Jobs(c.ctx, store.JobQuery{TenantID: got.Job.TenantID})
	c.ok(err)
	want := c.job(got.Job)
	if len(want.Steps) != 1 {
		c.Errorf("the job has %d steps", len(want.Steps))
	}
	want.Steps = nil
	if d := cmp.Diff([]run.Job{want}, page.Jobs); d != "" {
		c.Error(d)
	}
}

func listBadCursor(c *C) {
	owner := c.tenant(tenant.Quota{})
	for _, cursor := range []string{"x", "!!", "MTIz", "Li4u", "OTk5OTk5OTk5OTk5OTk5OTk5OTk5OS5h"} {
		_, err := c.Jobs(c.ctx, store.JobQuery{TenantID: owner, Cursor: cursor})
		c.fails(err, fault.Invalid)
	}
}
