package worker

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/blob"
	"github.com/agentdock/agentdock/internal/blob/dir"
	"github.com/agentdock/agentdock/internal/execenv/fake"
	"github.com/agentdock/agentdock/internal/execrpc"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/receipt"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
	"github.com/agentdock/agentdock/internal/store/sqlite"
	"github.com/agentdock/agentdock/internal/tenant"
)

// world is a record in SQLite, a directory of blobs, and an execution service
// in memory behind the wire.
type world struct {
	*testing.T
	env    *fake.Environment
	node   Node
	store  *sqlite.Store
	blobs  blob.Store
	signer *receipt.Signer
	log    *slog.Logger
	// ran counts how often each command that says "ran NAME" was run.
	ran counts
}

type counts struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *counts) add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[name]++
}

func (c *counts) of(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[name]
}

func newWorld(t *testing.T, cfg fake.Config) *world {
	t.Helper()
	w := &world{T: t, log: slog.New(slog.DiscardHandler)}
	if testing.Verbose() {
		w.log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	programs := map[string]fake.Program{
		"ran": func(p *fake.Proc) int {
			w.ran.add(p.Args[1])
			fmt.Fprintln(p.Stdout, "ran", p.Args[1])
			return 0
		},
		"leave": func(p *fake.Proc) int {
			w.ran.add(p.Args[1])
			if err := p.WriteFile(p.Args[1], []byte("left by "+p.Args[1])); err != nil {
				return 1
			}
			return 0
		},
	}
	for name, p := range cfg.Programs {
		programs[name] = p
	}
	cfg.Programs = programs
	w.env, w.node = serve(t, "here", cfg)

	path := t.TempDir()
	empty, err := emptyRecord()
	w.ok(err)
	w.ok(os.WriteFile(filepath.Join(path, "record"), empty, 0o600))
	if w.store, err = sqlite.Open(t.Context(), filepath.Join(path, "record")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.store.Close(); err != nil {
			t.Error(err)
		}
	})
	if w.blobs, err = dir.New(filepath.Join(path, "blobs")); err != nil {
		t.Fatal(err)
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if w.signer, err = receipt.NewSigner(key); err != nil {
		t.Fatal(err)
	}
	return w
}

// emptyRecord is a record with a tenant and nothing else. To make one takes
// longer than most cases.
var emptyRecord = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "record")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "record")
	s, err := sqlite.Open(context.Background(), file)
	if err != nil {
		return nil, err
	}
	err = s.CreateTenant(context.Background(), tenant.Tenant{ID: "t1", Name: "one", Quota: tenant.DefaultQuota()})
	if err := errors.Join(err, s.Close()); err != nil {
		return nil, err
	}
	return os.ReadFile(file)
})

// serve serves an environment in memory on a unix socket.
func serve(t *testing.T, name string, cfg fake.Config) (*fake.Environment, Node) {
	t.Helper()
	env := fake.New(cfg)
	socket := filepath.Join(shortDir(t), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	server := execrpc.NewHTTPServer(execrpc.NewServer(env, quiet), nil, quiet)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close(); env.Close() })
	return env, Node{Name: name, Dial: func(ctx context.Context) (Connection, error) { return execrpc.DialUnix(ctx, socket) }}
}

// shortDir is short because the path of a socket has a limit.
func shortDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "w")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// config is quick, and development because the environment is no kernel. The
// lease is long: tests that want it to run out say so (tap.expire).
func config() Config {
	return Config{
		Name: "test", Concurrency: 4, Lease: time.Minute, Poll: 20 * time.Millisecond, Drain: 10 * time.Second,
		Patience: 5 * time.Second, Sweep: 50 * time.Millisecond, Development: true,
	}
}

func (w *world) deps() Deps {
	return Deps{Store: w.store, Blobs: w.blobs, Nodes: []Node{w.node}, Signer: w.signer, Log: w.log}
}

// start runs a worker until stop is called, or the test ends.
func (w *world) start(cfg Config, deps Deps) (stop func()) {
	w.Helper()
	worker, err := New(cfg, deps)
	w.ok(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := worker.Run(ctx); err != nil {
			w.Error(err)
		}
	}()
	stop = func() {
		cancel()
		<-done
	}
	w.Cleanup(stop)
	return stop
}

var jobs sync.Mutex
var jobNumber int

func (w *world) submit(spec run.JobSpec) string {
	w.Helper()
	jobs.Lock()
	jobNumber++
	id := fmt.Sprintf("job-%d", jobNumber)
	jobs.Unlock()
	if spec.Image == "" {
		spec.Image = "default"
	}
	if spec.Timeout == 0 {
		spec.Timeout = time.Minute
	}
	spec.Limits = spec.Limits.Or(run.DefaultLimits())
	_, _, err := w.store.CreateJob(w.Context(), store.NewJob{ID: id, TenantID: "t1", Spec: spec})
	w.ok(err)
	return id
}

func command(argv ...string) run.Command { return run.Command{Argv: argv} }

func commands(lines ...string) []run.Command {
	var all []run.Command
	for _, l := range lines {
		all = append(all, command(strings.Fields(l)...))
	}
	return all
}

func (w *world) job(id string) run.Job {
	w.Helper()
	job, err := w.store.Job(w.Context(), "t1", id)
	w.ok(err)
	return job
}

// until waits until the job is as asked for.
func (w *world) until(id, what string, is func(run.Job) bool) run.Job {
	w.Helper()
	changed, stop, err := w.store.Watch(w.Context(), id)
	w.ok(err)
	defer stop()
	deadline := time.After(time.Minute)
	for {
		job := w.job(id)
		if is(job) {
			return job
		}
		select {
		case <-changed:
		case <-time.After(50 * time.Millisecond):
		case <-deadline:
			w.Fatalf("job %s is not %s: %+v", id, what, job)
		}
	}
}

func (w *world) end(id string) run.Job {
	w.Helper()
	return w.until(id, "over", func(j run.Job) bool { return j.State.Terminal() })
}

// running waits until the command with that index is on record as started.
func (w *world) running(id string, step int) run.Job {
	w.Helper()
	return w.until(id, fmt.Sprintf("at step %d", step), func(j run.Job) bool { return len(j.Steps) > step })
}

func (w *world) output(id string) string {
	w.Helper()
	var all strings.Builder
	after := int64(0)
	for {
		entries, err := w.store.Log(w.Context(), "t1", id, after, 1<<20)
		w.ok(err)
		if len(entries) == 0 {
			return all.String()
		}
		for _, e := range entries {
			all.Write(e.Data)
			after = e.Seq
		}
	}
}

// eventually waits for what comes by itself and gives no sign.
func (w *world) eventually(what string, is func() bool) {
	w.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatalf("%s does not come about", what)
		}
	}
}

// empty waits until the environment has no sandbox.
func (w *world) empty() {
	w.Helper()
	w.eventually("an environment without sandboxes", func() bool {
		list, err := w.env.List(w.Context())
		w.ok(err)
		return len(list) == 0
	})
}

// whole checks what must hold of every job that has ended.
func (w *world) whole(id string) run.Job {
	w.Helper()
	job := w.end(id)
	for _, step := range job.Steps {
		if step.Outcome == nil {
			w.Errorf("the job has ended and its command %d has not", step.Index)
		}
	}
	w.empty()
	w.eventually("a receipt", func() bool {
		_, err := w.store.Receipt(w.Context(), "t1", id)
		return err == nil
	})
	envelope, err := w.store.Receipt(w.Context(), "t1", id)
	w.ok(err)
	verified, err := receipt.Verify(envelope, []ed25519.PublicKey{w.signer.Public()})
	w.ok(err)
	if p := verified.Statement.Predicate; p.State != job.State || p.Outcome.Kind != job.Outcome.Kind {
		w.Errorf("the receipt says %s, %s; the record %s, %s", p.State, p.Outcome.Kind, job.State, job.Outcome.Kind)
	}
	return job
}

// ended checks state and kind.
func (w *world) ended(id string, state run.State, kind run.Kind) run.Job {
	w.Helper()
	job := w.whole(id)
	if job.State != state || job.Outcome.Kind != kind {
		w.Errorf("job %s ended as %s, %s (%s); want %s, %s", id, job.State, job.Outcome.Kind, job.Outcome.Evidence, state, kind)
	}
	return job
}

func (w *world) blob(key string) string {
	w.Helper()
	r, _, err := w.blobs.Open(w.Context(), key)
	w.ok(err)
	defer r.Close()
	data, err := io.ReadAll(r)
	w.ok(err)
	return string(data)
}

func (w *world) hasBlob(key string) bool {
	w.Helper()
	r, _, err := w.blobs.Open(w.Context(), key)
	if fault.Is(err, fault.NotFound) {
		return false
	}
	w.ok(err)
	r.Close()
	return true
}
