package storetest

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
	"github.com/agentdock/agentdock/internal/tenant"
)

var alwaysCases = []testCase{
	{clause: "G1", name: "everything_at_once", run: allAtOnce},
	{clause: "G1", name: "two_processes", needs: needsShared, run: twoProcesses},
	{clause: "G2", name: "outage", needs: needsOutage, run: outage},
	{clause: "G2", name: "caller_gives_up", run: callerGivesUp},
	{clause: "G3", name: "killed_at_any_moment", needs: needsChild, run: killed},
}

// churn runs jobs of one tenant through every kind of end, until ctx ends.
func churn(ctx context.Context, s store.Store, tenantID string, name func() string, note func(error)) {
	for i := 0; ctx.Err() == nil; i++ {
		n := store.NewJob{ID: name(), TenantID: tenantID, Spec: spec(), RequestDigest: [32]byte{1}}
		n.Spec.Labels = map[string]string{"a": "b"}
		if _, _, err := s.CreateJob(ctx, n); err != nil {
			note(err)
			continue
		}
		got, ok, err := s.Claim(ctx, worker, time.Minute)
		if err != nil || !ok {
			note(err)
			continue
		}
		l, attempt := got.Lease, got.Job.Attempt
		note(s.Place(ctx, l, "node"))
		note(s.StartStep(ctx, l, run.Step{}))
		at := int64(0)
		for k := range 3 {
			data := fmt.Appendf(nil, "line %d\n", k)
			_, err := s.AppendLog(ctx, l, []run.LogEntry{{Attempt: attempt, Stream: "stdout", Offset: at, Data: data}})
			note(err)
			at += int64(len(data))
		}
		note(s.AddArtifact(ctx, l, run.Artifact{Path: "a", Bytes: int64(i%7 + 1), Key: "k"}))
		switch rand.IntN(5) {
		case 0:
			note(s.Requeue(ctx, l, true))
		case 1:
			_, err := s.CancelJob(ctx, got.Job.TenantID, l.JobID)
			note(err)
			note(s.Requeue(ctx, l, true))
		case 2:
			note(s.Finish(ctx, l, failed()))
			note(s.SignJob(ctx, l.JobID, []byte("receipt")))
		case 3:
			note(s.Finish(ctx, l, succeeded()))
			note(s.DeleteJob(ctx, l.JobID))
		default: // the worker is lost
			_, err := s.Renew(ctx, l, 0)
			note(err)
		}
	}
}

// consistent checks every job of the record against what it must be.
func (c *C) consistent() {
	c.Helper()
	owners, err := c.Tenants(c.ctx)
	c.ok(err)
	n := 0
	for _, t := range owners {
		for _, j := range c.pages(store.JobQuery{TenantID: t.ID, Limit: 500}, func() {}) {
			n++
			j = c.is(j, j.State)
			if j.State == run.Running && len(j.Steps) == 0 || j.State == run.Queued && len(j.Steps) > 0 {
				c.Errorf("job %s is %s with %d steps", j.ID, j.State, len(j.Steps))
			}
			log := c.log(j)
			for attempt := range j.Attempt + 1 {
				if text := c.text(log, attempt, 0); !strings.HasPrefix("line 0\nline 1\nline 2\n", text) {
					c.Errorf("the log of job %s, attempt %d, is %q", j.ID, attempt, text)
				}
			}
		}
	}
	c.Logf("%d jobs are on record", n)
	if n == 0 {
		c.Error("nothing was put on record")
	}
	c.whole()
}

// allAtOnce: what many do at once fails only as it would alone.
func allAtOnce(c *C) {
	ctx, cancel := context.WithTimeout(c.ctx, 2*time.Second)
	defer cancel()
	owners := []string{c.tenant(tenant.Quota{}), c.tenant(tenant.Quota{})}
	together(8, func(i int) {
		churn(ctx, c.Store, owners[i%2], func() string { return c.name("job") }, func(err error) {
			if err != nil && ctx.Err() == nil && !fault.Is(err, fault.Gone) && !fault.Is(err, fault.Conflict) {
				c.Errorf("%v", err)
			}
		})
	})
	c.consistent()
}

func twoProcesses(c *C) {
	other := c.open()
	defer other.Close()
	job := c.create(c.tenant(tenant.Quota{}))
	seen, err := other.Job(c.ctx, job.TenantID, job.ID)
	c.ok(err)
	if d := cmp.Diff(job, seen); d != "" {
		c.Errorf("another process sees another job: %s", d)
	}
	for range rounds {
		c.create(job.TenantID)
	}
	taken := [2]map[string]bool{{}, {}}
	together(2, func(i int) {
		s := []store.Store{c.Store, other}[i]
		for range rounds / 2 {
			got, ok, err := s.Claim(c.ctx, worker, long)
			if err != nil || !ok {
				c.Errorf("claimed %v, %v", ok, err)
				return
			}
			taken[i][got.Job.ID] = true
		}
	})
	for id := range taken[0] {
		if taken[1][id] {
			c.Errorf("both have job %s", id)
		}
	}
}

// bounded is how long a call may take while the database is away.
const bounded = 20 * time.Second

func outage(c *C) {
	got := c.running()
	changed, stop, err := c.Watch(c.ctx, got.Job.ID)
	c.ok(err)
	defer stop()
	back := c.h.Outage(c.T, c.place)
	for name, try := range map[string]func() error{
		"CreateJob": func() error { _, _, err := c.CreateJob(c.ctx, c.newJob(got.Job.TenantID)); return err },
		"Claim":     func() error { _, _, err := c.Claim(c.ctx, worker, long); return err },
		"Renew":     func() error { _, err := c.Renew(c.ctx, got.Lease, long); return err },
		"Finish":    func() error { return c.Finish(c.ctx, got.Lease, succeeded()) },
		"Ping":      func() error { return c.Ping(c.ctx) },
	} {
		began := time.Now()
		if err := try(); !fault.Is(err, fault.Unavailable) {
			c.Errorf("%s without a database says %v", name, err)
		}
		if took := time.Since(began); took > bounded {
			c.Errorf("%s took %v to say that there is no database", name, took)
		}
	}
	back()
	c.eventually("the database's return", func() bool { return c.Ping(c.ctx) == nil })
	select {
	case <-changed:
	default:
	}
	// The same store, the same lease: nobody had to do anything.
	c.eventually("a call that works", func() bool { _, err := c.Renew(c.ctx, got.Lease, long); return err == nil })
	c.eventually("a hint after the outage", func() bool {
		c.ok(c.Place(c.ctx, got.Lease, "node"))
		select {
		case <-changed:
			return true
		case <-time.After(50 * time.Millisecond):
			return false
		}
	})
	c.finish(got.Lease)
	c.is(got.Job, run.Succeeded)
}

// callerGivesUp: a call ends with its context, and the next one works.
func callerGivesUp(c *C) {
	owner := c.tenant(tenant.Quota{})
	for i := range rounds {
		ctx, cancel := context.WithTimeout(c.ctx, time.Duration(i*50)*time.Microsecond)
		n := c.newJob(owner)
		_, _, err := c.CreateJob(ctx, n)
		cancel()
		if err != nil {
			c.fails(err, fault.Unavailable)
		}
		job, _, err := c.CreateJob(c.ctx, n) // whether it happened or not
		c.ok(err)
		c.is(job, run.Queued)
	}
	stats, err := c.Stats(c.ctx)
	c.ok(err)
	if stats.ByState[run.Queued] != rounds {
		c.Errorf("%d jobs are queued, want %d", stats.ByState[run.Queued], rounds)
	}
}

// childPlace tells a child process where the record is.
const childPlace = "AGENTDOCK_STORETEST_PLACE"

// ChildMain works on a record until it is killed, if this process was started
// for that by the suite. Call it from the test that Harness.Child names.
func ChildMain(open func(place string) (store.Store, error)) (isChild bool, _ error) {
	place := os.Getenv(childPlace)
	if place == "" {
		return false, nil
	}
	s, err := open(place)
	if err != nil {
		return true, err
	}
	done := 0
	for w := range 4 {
		go churn(context.Background(), s, "killed", func() string {
			return fmt.Sprintf("job-%d-%d-%d", os.Getpid(), w, rand.Uint64())
		}, func(error) {})
	}
	for { // whoever reads this learns that work is under way
		stats, err := s.Stats(context.Background())
		if err != nil {
			return true, err
		}
		n := 0
		for _, of := range stats.ByState {
			n += int(of)
		}
		if n > done {
			done = n
			fmt.Println("jobs", n)
		}
		time.Sleep(time.Millisecond)
	}
}

// killed kills processes in the middle of their work, again and again.
func killed(c *C) {
	c.ok(c.CreateTenant(c.ctx, tenant.Tenant{ID: "killed"}))
	c.ok(c.Close())
	for range 5 {
		cmd := exec.CommandContext(c.ctx, os.Args[0], c.h.Child...)
		cmd.Env = append(os.Environ(), childPlace+"="+c.place)
		out, err := cmd.StdoutPipe()
		c.ok(err)
		c.ok(cmd.Start())
		lines := bufio.NewScanner(out)
		for seen := 0; seen < 2+rand.IntN(20) && lines.Scan(); {
			if strings.HasPrefix(lines.Text(), "jobs ") {
				seen++
			}
		}
		c.ok(cmd.Process.Kill())
		if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			c.Fatalf("the child ended by itself: %v", err)
		}
		c.Store = c.open()
		c.consistent()
		c.ok(c.Close())
	}
	c.Store = c.open()
}
