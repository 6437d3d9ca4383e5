package worker

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/fake"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
)

func TestJobsGoWhereThereIsRoom(t *testing.T) {
	w := newWorld(t, fake.Config{})
	other, otherNode := serve(t, "there", fake.Config{})
	away := Node{Name: "away", Dial: func(context.Context) (Connection, error) { return nil, errors.New("no route") }}
	deps := w.deps()
	deps.Nodes = []Node{away, w.node, otherNode}
	cfg := config()
	cfg.Concurrency = 8
	w.start(cfg, deps)
	var ids []string
	for range 8 {
		ids = append(ids, w.submit(run.JobSpec{Commands: commands("sleep 100")}))
	}
	at := map[string]int{}
	for _, id := range ids {
		at[w.running(id, 0).Node]++
	}
	if at["here"] != 4 || at["there"] != 4 {
		t.Errorf("jobs are at %v, want them shared evenly, and none where nobody answers", at)
	}
	// One of the services dies: its jobs are lost, the others go on.
	other.Close()
	for _, id := range ids {
		if w.job(id).Node == "there" {
			if job := w.end(id); job.State != run.Failed || job.Outcome.Kind != run.InfrastructureLost {
				t.Errorf("%s, %s: %s", job.State, job.Outcome.Kind, job.Outcome.Evidence)
			}
			continue
		}
		if _, err := w.store.CancelJob(t.Context(), "t1", id); err != nil {
			t.Error(err)
		}
		w.end(id)
	}
}

// A service that can never have a job is not waited for, and one that can is asked
// whatever the other one says.
func TestServicesThatCanNeverTakeAJob(t *testing.T) {
	const big = "can never fit here"
	never := func(string) error { return fault.New(fault.Unsupported, big) }
	w := newWorld(t, fake.Config{FailCreate: never})
	_, stranger := serve(t, "stranger", fake.Config{Images: []string{"other"}})
	small, roomy := w.deps(), w.deps()
	small.Nodes = append(small.Nodes, stranger)
	stop := w.start(config(), small)
	job := w.ended(w.submit(run.JobSpec{Commands: commands("true")}), run.Failed, run.PolicyDenied)
	if e := job.Outcome.Evidence; job.Attempt != 1 || !strings.Contains(e, "here refused the sandbox: "+big) || !strings.Contains(e, "stranger has no image") {
		t.Errorf("attempt %d: %s", job.Attempt, e)
	}
	stop()

	there, thereNode := serve(t, "there", fake.Config{})
	roomy.Nodes = append(roomy.Nodes, stranger, thereNode)
	// What is there already makes it the last to be asked.
	for _, id := range []string{"a", "b"} {
		_, err := there.Create(t.Context(), execenv.Spec{ID: id, Image: "default", Limits: run.DefaultLimits()})
		w.ok(err)
	}
	w.start(config(), roomy)
	if job := w.ended(w.submit(run.JobSpec{Commands: commands("true")}), run.Succeeded, run.Exited); job.Node != "there" || job.Attempt != 1 {
		t.Errorf("the job ran at %q in attempt %d", job.Node, job.Attempt)
	}
}

// shared is an environment that shares the host's kernel.
type shared struct{ Connection }

func (c shared) Capabilities() execenv.Capabilities {
	caps := c.Connection.Capabilities()
	caps.Isolation = execenv.IsolationContainer
	return caps
}

func TestServicesWithoutAKernelGetNoWork(t *testing.T) {
	w := newWorld(t, fake.Config{})
	deps := w.deps()
	var asked atomic.Int64
	deps.Nodes = []Node{{Name: "docker", Dial: func(ctx context.Context) (Connection, error) {
		asked.Add(1)
		conn, err := w.node.Dial(ctx)
		if err != nil {
			return nil, err
		}
		return shared{conn}, nil
	}}}
	cfg := config()
	cfg.Development = false
	stop := w.start(cfg, deps)
	id := w.submit(run.JobSpec{Commands: commands("ran it")})
	w.eventually("a second look at the service", func() bool { return asked.Load() > 3 })
	if job := w.job(id); job.State != run.Queued || w.ran.of("it") != 0 {
		t.Errorf("a job was taken although nothing may run it: %+v", job)
	}
	stop()
	cfg.Development = true
	w.start(cfg, deps)
	w.ended(id, run.Succeeded, run.Exited)
}

// TestServiceThatBecomesWeaker: what a service is is asked for each job anew.
func TestServiceThatBecomesWeaker(t *testing.T) {
	w := newWorld(t, fake.Config{})
	var weak atomic.Bool
	deps := w.deps()
	deps.Nodes = []Node{{Name: "n", Dial: func(ctx context.Context) (Connection, error) {
		conn, err := w.node.Dial(ctx)
		if err != nil {
			return nil, err
		}
		if weak.Load() {
			return shared{conn}, nil
		}
		return ownKernel{conn}, nil
	}}}
	cfg := config()
	cfg.Development = false
	w.start(cfg, deps)
	w.ended(w.submit(run.JobSpec{Commands: commands("ran before")}), run.Succeeded, run.Exited)
	weak.Store(true)
	id := w.submit(run.JobSpec{Commands: commands("ran after")})
	time.Sleep(100 * time.Millisecond) // nothing says that nothing happens
	if w.ran.of("after") != 0 {
		t.Error("untrusted work was sent to a service that no longer isolates by a kernel")
	}
	weak.Store(false)
	w.ended(id, run.Succeeded, run.Exited)
}

// TestAWorkerInDevelopmentAtAnAPIThatIsNot: the job says that it needs a kernel of
// its own, waits and tells why, and is lost by nobody.
func TestAWorkerInDevelopmentAtAnAPIThatIsNot(t *testing.T) {
	w := newWorld(t, fake.Config{})
	var kernel atomic.Bool
	deps := w.deps()
	deps.Nodes = []Node{{Name: "n", Dial: func(ctx context.Context) (Connection, error) {
		conn, err := w.node.Dial(ctx)
		if err != nil || !kernel.Load() {
			return conn, err
		}
		return ownKernel{conn}, nil
	}}}
	w.start(config(), deps)
	id := w.submit(run.JobSpec{Commands: commands("ran it"), KernelOnly: true})
	w.until(id, "to tell why it waits", func(j run.Job) bool {
		return strings.Contains(j.Resolved.Waiting, "set AUTH_MODE and SANDBOX_RUNTIME alike")
	})
	if w.ran.of("it") != 0 {
		t.Error("it ran in a sandbox without a kernel of its own")
	}
	w.ended(w.submit(run.JobSpec{Commands: commands("ran another")}), run.Succeeded, run.Exited)
	kernel.Store(true)
	w.ended(id, run.Succeeded, run.Exited)
}

// TestAWorkerOfRefusedServicesIsNotReady: a service that is away comes back, and one
// that must not be used does not.
func TestAWorkerOfRefusedServicesIsNotReady(t *testing.T) {
	w := newWorld(t, fake.Config{})
	away := Node{Name: "away", Dial: func(context.Context) (Connection, error) { return nil, errors.New("nobody is there") }}
	for name, tc := range map[string]struct {
		nodes       []Node
		development bool
		refused     bool
	}{
		"away":                 {[]Node{away}, false, false},
		"containers":           {[]Node{w.node}, false, true},
		"away and containers":  {[]Node{away, w.node}, false, true},
		"meant for containers": {[]Node{w.node}, true, false},
	} {
		cfg, deps := config(), w.deps()
		cfg.Development, deps.Nodes = tc.development, tc.nodes
		worker, err := New(cfg, deps)
		w.ok(err)
		if err := worker.Refused(t.Context()); (err != nil) != tc.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type ownKernel struct{ Connection }

func (k ownKernel) Capabilities() execenv.Capabilities {
	caps := k.Connection.Capabilities()
	caps.Isolation = execenv.IsolationKernel
	return caps
}

func TestDrainLetsJobsEnd(t *testing.T) {
	w := newWorld(t, fake.Config{})
	stop := w.start(config(), w.deps())
	id := w.submit(run.JobSpec{Commands: commands("sleep 0.3", "ran last")})
	w.running(id, 0)
	late := w.submit(run.JobSpec{Commands: commands("true")})
	w.end(late)
	stop()
	if job := w.job(id); job.State != run.Succeeded {
		t.Errorf("the worker ended and left %+v", job)
	}
	after := w.submit(run.JobSpec{Commands: commands("true")})
	if job := w.job(after); job.State != run.Queued {
		t.Errorf("a worker that has ended took a job: %+v", job)
	}
	w.whole(id)
}

func TestDrainLeavesTheRestToOthers(t *testing.T) {
	release := make(chan struct{})
	w := newWorld(t, fake.Config{Programs: map[string]fake.Program{"held": func(p *fake.Proc) int {
		_, _ = p.Stdout.Write([]byte("begun\n"))
		select {
		case <-release:
		case <-p.Done():
		}
		_, _ = p.Stdout.Write([]byte("done\n"))
		return 0
	}}})
	cfg := config()
	cfg.Drain, cfg.Lease = 50*time.Millisecond, time.Hour // its lease does not run out by itself
	stop := w.start(cfg, w.deps())
	id := w.submit(run.JobSpec{Commands: commands("held", "ran next")})
	w.running(id, 0)
	stop()
	if job := w.job(id); job.State != run.Running {
		t.Fatalf("the job must go on without its worker: %+v", job)
	}
	w.start(config(), w.deps())
	close(release)
	job := w.ended(id, run.Succeeded, run.Exited)
	if job.Attempt != 1 || w.output(id) != "begun\ndone\nran next\n" || w.ran.of("next") != 1 {
		t.Errorf("%+v\n%s", job, w.output(id))
	}
}

func TestSoleWorkerRecordsWhatItEnds(t *testing.T) {
	w := newWorld(t, fake.Config{})
	cfg := config()
	cfg.Drain, cfg.Sole = 50*time.Millisecond, true
	stop := w.start(cfg, w.deps())
	once := w.submit(run.JobSpec{Commands: commands("sleep 100")})
	twice := w.submit(run.JobSpec{Commands: commands("sleep 100"), MaxAttempts: 2})
	w.running(once, 0)
	w.running(twice, 0)
	stop()
	if job := w.ended(once, run.Failed, run.InfrastructureLost); job.Lost != 1 {
		t.Errorf("%+v", job)
	}
	if job := w.job(twice); job.State != run.Queued || job.Lost != 1 {
		t.Errorf("%+v", job)
	}
}

func TestAttemptsThatAreLost(t *testing.T) {
	w := newWorld(t, fake.Config{})
	w.start(config(), w.deps())
	spec := run.JobSpec{Commands: commands("ran first", "sleep 100"), MaxAttempts: 2}
	id := w.submit(spec)
	for attempt := 1; attempt <= 2; attempt++ {
		w.until(id, "in its next attempt", func(j run.Job) bool { return j.Attempt == attempt && len(j.Steps) == 2 })
		w.env.Lose(sandboxID(id, attempt))
	}
	job := w.ended(id, run.Failed, run.InfrastructureLost)
	if job.Attempt != 2 || w.ran.of("first") != 2 || job.Lost != 2 || len(job.Steps) != 2 {
		t.Errorf("%+v", job)
	}
}

func TestJobsThatNeverStartDoNotGoRound(t *testing.T) {
	w := newWorld(t, fake.Config{FailCreate: func(string) error { return errors.New("broken") }, FailDestroy: nil})
	cfg := config()
	cfg.MaxStarts, cfg.Patience = 3, 10*time.Millisecond
	w.start(cfg, w.deps())
	job := w.ended(w.submit(run.JobSpec{Commands: commands("true")}), run.Failed, run.InfrastructureLost)
	if job.Attempt != 4 || !strings.Contains(job.Outcome.Evidence, "3 times") {
		t.Errorf("%+v, %s", job, job.Outcome.Evidence)
	}
}

func TestJobsThatKillWorkersDoNotGoRound(t *testing.T) {
	w := newWorld(t, fake.Config{})
	id := w.submit(run.JobSpec{Commands: commands("true")})
	for range 3 {
		if _, ok, err := w.store.Claim(t.Context(), "dies", time.Millisecond); err != nil || !ok {
			t.Fatal(ok, err)
		}
		time.Sleep(2 * time.Millisecond)
	}
	cfg := config()
	cfg.MaxClaims = 3
	w.start(cfg, w.deps())
	job := w.ended(id, run.Failed, run.InfrastructureLost)
	if !strings.Contains(job.Outcome.Evidence, "3 workers") {
		t.Errorf("%s", job.Outcome.Evidence)
	}
}

// defective panics when it is asked to make a sandbox.
type defective struct{ Connection }

func (defective) Create(context.Context, execenv.Spec) (execenv.Sandbox, error) { panic("a defect") }

func TestOurOwnDefectEndsOneJobOnly(t *testing.T) {
	w := newWorld(t, fake.Config{})
	var armed atomic.Bool
	armed.Store(true)
	deps := w.deps()
	deps.Nodes = []Node{{Name: "n", Dial: func(ctx context.Context) (Connection, error) {
		conn, err := w.node.Dial(ctx)
		if err == nil && armed.Load() {
			conn = defective{conn}
		}
		return conn, err
	}}}
	w.start(config(), deps)
	w.ended(w.submit(run.JobSpec{Commands: commands("true")}), run.Failed, run.InfrastructureLost)
	armed.Store(false)
	w.ended(w.submit(run.JobSpec{Commands: commands("true")}), run.Succeeded, run.Exited)
}

func TestSweepRemovesOrphansAndNothingElse(t *testing.T) {
	w := newWorld(t, fake.Config{})
	create := func(id string, labels map[string]string) {
		_, err := w.env.Create(t.Context(), execenv.Spec{ID: id, Image: "default", Limits: run.DefaultLimits(), Labels: labels})
		w.ok(err)
	}
	job := func(id, attempt string) map[string]string {
		return map[string]string{labelSandbox: "true", labelJob: id, labelAttempt: attempt}
	}
	create("gone-1", job("gone", "1"))
	create("not-a-job", nil)
	create("a-run", map[string]string{labelSandbox: "true", labelJob: "a-run"})
	create("liar", job("gone", "2")) // its name is not what its labels say
	active := w.submit(run.JobSpec{Commands: commands("true")})
	if _, ok, err := w.store.Claim(t.Context(), "another", time.Hour); err != nil || !ok {
		t.Fatal(ok, err)
	}
	create(active+"-1", job(active, "1"))
	create(active+"-2", job(active, "2"))
	w.start(config(), w.deps())
	w.eventually("a sweep", func() bool {
		list, err := w.env.List(t.Context())
		w.ok(err)
		return len(list) == 4
	})
	for _, id := range []string{"not-a-job", "a-run", "liar", active + "-1"} {
		if _, err := w.env.Attach(t.Context(), id); err != nil {
			t.Errorf("%s is gone: %v", id, err)
		}
	}
}

func TestOldJobsAndUploadsGo(t *testing.T) {
	w := newWorld(t, fake.Config{})
	stop := w.start(config(), w.deps())
	id := w.submit(run.JobSpec{Commands: commands("leave kept"), Artifacts: []string{"kept"}})
	w.ended(id, run.Succeeded, run.Exited)
	artifacts, err := w.store.Artifacts(t.Context(), "t1", id)
	w.ok(err)
	data := archive(t)
	w.upload("old", data, digestOf(data))
	stop()

	cfg := config()
	cfg.Retention, cfg.UploadRetention = time.Millisecond, time.Millisecond
	w.start(cfg, w.deps())
	w.eventually("the removal of old jobs", func() bool {
		_, err := w.store.Job(t.Context(), "t1", id)
		return fault.Is(err, fault.NotFound)
	})
	if w.hasBlob(artifacts[0].Key) {
		t.Error("the job is gone, and its artifact is not")
	}
	w.eventually("the removal of old uploads", func() bool {
		_, err := w.store.Upload(t.Context(), "t1", "old")
		return fault.Is(err, fault.NotFound)
	})
	if w.hasBlob("uploads/t1/old") {
		t.Error("the upload is gone, and its bytes are not")
	}
}

func TestPartsThatDoNotFitAreRefused(t *testing.T) {
	w := newWorld(t, fake.Config{})
	for name, change := range map[string]func(*Deps){
		"no store":  func(d *Deps) { d.Store = nil },
		"no node":   func(d *Deps) { d.Nodes = nil },
		"two alike": func(d *Deps) { d.Nodes = []Node{w.node, w.node} },
		"no name":   func(d *Deps) { d.Nodes = []Node{{Dial: w.node.Dial}} },
	} {
		deps := w.deps()
		change(&deps)
		if _, err := New(config(), deps); err == nil {
			t.Errorf("%s: a worker was made", name)
		}
	}
}

var _ Record = (store.Store)(nil)
