package worker

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/blob"
	"github.com/agentdock/agentdock/internal/execenv/fake"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
)

// The job of these tests has all that a job can have, and a worker makes some
// twenty calls for it. At each of them, in turn, something happens, just before
// it or just after it was done and before its answer was heard.
func faultJob() run.JobSpec {
	return run.JobSpec{
		Source: run.Source{Kind: run.SourceFixture}, Artifacts: []string{"kept"},
		Commands: commands("ran one", "leave kept", "ran three"),
	}
}

const faultOutput = "ran one\nran three\n"

func (w *world) tapped(t *tap) Deps {
	d := w.deps()
	d.Store, d.Blobs, d.Nodes = tappedRecord{w.store, t}, tappedBlobs{w.blobs, t}, []Node{tappedNode(w.node, t)}
	return d
}

// countable is a worker that makes the same calls each time: one that sweeps
// makes more, at any moment.
func countable() Config {
	cfg := config()
	cfg.Sweep = time.Hour
	return cfg
}

// atEveryCall runs a case for each call that a worker makes for the job, and
// for both sides of it.
func atEveryCall(t *testing.T, try func(w *world, at *tap)) {
	t.Helper()
	clean := newWorld(t, fake.Config{})
	counter := &tap{}
	stop := clean.start(countable(), clean.tapped(counter))
	clean.ended(clean.submit(faultJob()), run.Succeeded, run.Exited)
	stop()
	calls := counter.calls()
	if calls < 20 {
		t.Fatalf("a worker makes %d calls for the job; this test counts on more", calls)
	}
	t.Run("calls", func(t *testing.T) {
		for n := 1; n <= calls; n++ {
			for _, after := range []bool{false, true} {
				if testing.Short() && after == (n%2 == 0) {
					continue // one side of each call, in turn
				}
				t.Run(fmt.Sprintf("%02d_after_%v", n, after), func(t *testing.T) {
					t.Parallel()
					try(newWorld(t, fake.Config{}), &tap{at: n, after: after})
				})
			}
		}
	})
}

// once checks that no command was run twice, and those that must have been were.
func (w *world) once(must bool) {
	w.Helper()
	for _, name := range []string{"one", "kept", "three"} {
		if n := w.ran.of(name); n > 1 || must && n == 0 {
			w.Errorf("command %q was run %d times", name, n)
		}
	}
}

// complete checks a job that must not have noticed anything.
func (w *world) complete(id string) {
	w.Helper()
	w.ended(id, run.Succeeded, run.Exited)
	w.once(true)
	if got := w.output(id); got != faultOutput {
		w.Errorf("the log is %q, want %q", got, faultOutput)
	}
	artifacts, err := w.store.Artifacts(w.Context(), "t1", id)
	w.ok(err)
	if len(artifacts) != 1 || w.blob(artifacts[0].Key) != "left by kept" {
		w.Fatalf("artifacts: %+v", artifacts)
	}
	// However many workers have kept it, it is there once.
	name := artifacts[0].Key[strings.LastIndex(artifacts[0].Key, "/")+1:]
	for fence := range int64(5) {
		if key := fencePrefix(id, fence+1) + name; key != artifacts[0].Key {
			w.eventually("the end of blob "+key+", which no row names", func() bool { return !w.hasBlob(key) })
		}
	}
}

// TestObjectStoreIsAway: what a job leaves waits for the place where it is kept.
func TestObjectStoreIsAway(t *testing.T) {
	w := newWorld(t, fake.Config{})
	deps := w.deps()
	deps.Blobs = &awayFor{Store: w.blobs, puts: 6}
	w.start(config(), deps)
	id := w.submit(faultJob())
	w.complete(id)
	if note := w.job(id).Resolved.Artifacts; note != "" {
		t.Error(note)
	}
}

// TestObjectStoreIsAwayAtTheStart: a job's files are waited for too, and it is
// not started again for it, which is done once here and no more.
func TestObjectStoreIsAwayAtTheStart(t *testing.T) {
	w := newWorld(t, fake.Config{})
	files := archive(t, &tar.Header{Name: "file", Mode: 0o644, Size: 3})
	w.upload("files", files, digestOf(files))
	deps, cfg := w.deps(), config()
	deps.Blobs, cfg.MaxStarts = &awayFor{Store: w.blobs, opens: 4}, 1
	w.start(cfg, deps)
	job := w.ended(w.submit(run.JobSpec{
		Source: run.Source{Kind: run.SourceArchive, Upload: "files"}, Commands: commands("cat file"), Limits: run.DefaultLimits(),
	}), run.Succeeded, run.Exited)
	if job.Attempt != 1 {
		t.Errorf("it took %d attempts", job.Attempt)
	}
}

// awayFor is an object store that is away for so many puts, and so many opens.
type awayFor struct {
	blob.Store
	puts, opens int
}

func (a *awayFor) Open(ctx context.Context, key string) (io.ReadCloser, blob.Info, error) {
	if a.opens--; a.opens >= 0 {
		return nil, blob.Info{}, fault.New(fault.Unavailable, "away")
	}
	return a.Store.Open(ctx, key)
}

func (a *awayFor) Put(ctx context.Context, key string, r io.Reader, size int64) (blob.Info, error) {
	if a.puts--; a.puts >= 0 {
		return blob.Info{}, fault.New(fault.Unavailable, "away")
	}
	return a.Store.Put(ctx, key, r, size)
}

// TestWorkerDiesAtEveryCall: another worker goes on, and the job does not notice.
func TestWorkerDiesAtEveryCall(t *testing.T) {
	atEveryCall(t, func(w *world, at *tap) {
		died := make(chan struct{})
		at.do = func() error {
			at.die()
			close(died)
			return errDead
		}
		cfg := countable()
		cfg.Drain = time.Millisecond
		stop := w.start(cfg, w.tapped(at))
		id := w.submit(faultJob())
		select {
		case <-died:
		case <-time.After(30 * time.Second):
			t.Fatalf("the worker made only %d calls", at.calls())
		}
		stop()
		w.ok(at.expire(w.store))
		w.start(config(), w.deps())
		w.complete(id)
	})
}

// TestStoreIsAwayAtEveryCall: what was called may have happened or not.
func TestStoreIsAwayAtEveryCall(t *testing.T) {
	atEveryCall(t, func(w *world, at *tap) {
		at.do = func() error { return fault.New(fault.Unavailable, "away") }
		w.start(config(), w.tapped(at))
		id := w.submit(faultJob())
		w.complete(id)
	})
}

// TestCancelAtEveryCall: a job that is cancelled ends as cancelled, or had ended.
func TestCancelAtEveryCall(t *testing.T) {
	atEveryCall(t, func(w *world, at *tap) {
		id := w.submit(faultJob())
		at.do = func() error {
			// Its last calls are made when the test may be over.
			_, err := w.store.CancelJob(context.Background(), "t1", id)
			if err != nil {
				w.Error(err)
			}
			return nil
		}
		w.start(config(), w.tapped(at))
		job := w.whole(id)
		w.once(false)
		switch {
		case job.State == run.StateCancelled && job.Outcome.Kind == run.Cancelled:
		case job.State == run.Succeeded && w.ran.of("three") == 1:
		default:
			w.Errorf("%s, %s: %s", job.State, job.Outcome.Kind, job.Outcome.Evidence)
		}
	})
}

// TestSandboxesAreLostAtEveryCall: what the program did then is not known, and
// nothing else is made up.
func TestSandboxesAreLostAtEveryCall(t *testing.T) {
	atEveryCall(t, func(w *world, at *tap) {
		at.do = func() error {
			w.env.Close() // as the death of its process
			return nil
		}
		w.start(config(), w.tapped(at))
		id := w.submit(faultJob())
		job := w.whole(id)
		w.once(false)
		switch {
		case job.State == run.Failed && job.Outcome.Kind == run.InfrastructureLost && len(job.Steps) > 0:
		case job.State == run.Succeeded && w.ran.of("three") == 1:
		default:
			w.Errorf("%s, %s: %s", job.State, job.Outcome.Kind, job.Outcome.Evidence)
		}
	})
}

// TestTwoWorkersHoldOneJob: at every call, another worker takes the job while
// this one believes it is its own, as after a pause that was longer than the
// lease.
func TestTwoWorkersHoldOneJob(t *testing.T) {
	atEveryCall(t, func(w *world, at *tap) {
		paused, resume := make(chan struct{}), make(chan struct{})
		at.do = func() error {
			close(paused)
			<-resume
			return nil
		}
		deps := w.tapped(at)
		deps.Store = silent{deps.Store}
		w.start(countable(), deps) // it is its successor's to find what is left
		id := w.submit(faultJob())
		<-paused
		w.ok(at.expire(w.store))

		taken := make(chan struct{}, 16)
		deps = w.deps()
		deps.Store = announcing{w.store, taken}
		w.start(config(), deps)
		for wait := !w.job(id).State.Terminal(); wait; {
			select {
			case <-taken:
				wait = false
			case <-time.After(10 * time.Millisecond):
				wait = !w.job(id).State.Terminal()
			}
		}
		close(resume)
		w.complete(id)
	})
}

// silent gives no sign of life.
type silent struct{ Record }

func (silent) Renew(context.Context, store.Lease, time.Duration) (bool, error) { return false, nil }

// announcing says that it has got a job.
type announcing struct {
	Record
	taken chan struct{}
}

func (a announcing) Claim(ctx context.Context, worker string, ttl time.Duration) (store.Claimed, bool, error) {
	c, ok, err := a.Record.Claim(ctx, worker, ttl)
	if ok {
		nudge(a.taken)
	}
	return c, ok, err
}
