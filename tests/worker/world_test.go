// Package worker_test runs the worker as it is in production: in a process of
// its own, with a record in a file, against a real execution service and the
// default image.
package worker_test

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/blob"
	"github.com/agentdock/agentdock/internal/blob/dir"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execrpc"
	"github.com/agentdock/agentdock/internal/image"
	"github.com/agentdock/agentdock/internal/receipt"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
	"github.com/agentdock/agentdock/internal/store/sqlite"
	"github.com/agentdock/agentdock/internal/tenant"
	"github.com/agentdock/agentdock/internal/testenv"
	"github.com/agentdock/agentdock/internal/worker"
)

// patience is how long what must happen may take on a machine that is busy.
const patience = 2 * time.Minute

// The process that is killed is this test binary, told by these where its
// record and its execution service are.
const (
	envDir    = "WORKER_TEST_DIR"
	envSocket = "WORKER_TEST_SOCKET"
)

// TestMain is the worker's process when it was started as one.
func TestMain(m *testing.M) {
	if place := os.Getenv(envDir); place != "" {
		if err := work(place, os.Getenv(envSocket)); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// work is a worker until SIGTERM.
func work(place, socket string) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	record, err := sqlite.Open(ctx, filepath.Join(place, "record"))
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := record.Close(); err == nil {
			err = closeErr
		}
	}()
	w, err := newWorker(place, socket, record, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

func newWorker(place, socket string, record store.Store, log *slog.Logger) (*worker.Worker, error) {
	blobs, err := dir.New(filepath.Join(place, "blobs"))
	if err != nil {
		return nil, err
	}
	key, err := receipt.LoadOrCreateKey(filepath.Join(place, "key.pem"))
	if err != nil {
		return nil, err
	}
	signer, err := receipt.NewSigner(key)
	if err != nil {
		return nil, err
	}
	return worker.New(
		worker.Config{Name: "w", Lease: 3 * time.Second, Poll: 50 * time.Millisecond, Sweep: time.Second, Patience: time.Minute, Drain: time.Second},
		worker.Deps{
			Store: record, Blobs: blobs, Signer: signer, Log: log,
			Nodes: []worker.Node{{Name: "real", Dial: func(ctx context.Context) (worker.Connection, error) { return execrpc.DialUnix(ctx, socket) }}},
		})
}

// world is a place for a record, and an execution service.
type world struct {
	*testing.T
	place string
	execd *testenv.Execd
}

func newWorld(t *testing.T) *world {
	t.Helper()
	testenv.RequireRoot(t)
	w := &world{T: t, place: t.TempDir()}
	w.execd = testenv.StartExecd(t, imagesWithDefault(t))
	w.withRecord(func(s *sqlite.Store) {
		w.ok(s.CreateTenant(t.Context(), tenant.Tenant{ID: "t", Name: "t", Quota: tenant.DefaultQuota()}))
	})
	return w
}

// imagesWithDefault is a store that has the default image.
func imagesWithDefault(t *testing.T) string {
	t.Helper()
	images := cmp.Or(os.Getenv(image.DirEnv), image.DefaultDir)
	s, err := image.Open(images)
	if err == nil {
		_, err = s.Resolve("default")
	}
	if err != nil {
		const missing = "there is no default image; make it with: agentdock image build"
		if os.Getenv("AGENTDOCK_TEST_REQUIRE_REAL") == "1" {
			t.Fatalf("%s (%v)", missing, err)
		}
		t.Skipf("%s (%v)", missing, err)
	}
	return images
}

func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// withRecord opens the record, which only one process can have at a time.
func (w *world) withRecord(do func(s *sqlite.Store)) {
	w.Helper()
	s, err := sqlite.Open(w.Context(), filepath.Join(w.place, "record"))
	w.ok(err)
	defer func() { w.ok(s.Close()) }()
	do(s)
}

func (w *world) submit(s *sqlite.Store, id string, spec run.JobSpec) {
	w.Helper()
	spec.Image, spec.Limits = "default", spec.Limits.Or(run.DefaultLimits())
	if spec.Timeout == 0 {
		spec.Timeout = 5 * time.Minute
	}
	_, _, err := s.CreateJob(w.Context(), store.NewJob{ID: id, TenantID: "t", Spec: spec})
	w.ok(err)
}

// process is a worker's process.
type process struct {
	cmd  *exec.Cmd
	gone chan struct{} // closed when it is, and then err is set
	err  error
}

func (w *world) startProcess() *process {
	w.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envDir+"="+w.place, envSocket+"="+w.execd.Socket)
	cmd.Stdout, cmd.Stderr = w.Output(), w.Output()
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	w.ok(cmd.Start())
	p := &process{cmd: cmd, gone: make(chan struct{})}
	go func() {
		defer close(p.gone)
		p.err = cmd.Wait()
	}()
	w.Cleanup(func() { _ = cmd.Process.Kill() })
	return p
}

// kill ends the process at once and waits until it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.gone
}

// inHere runs a worker in this process while do runs.
func (w *world) inHere(s *sqlite.Store, do func()) {
	w.Helper()
	here, err := newWorker(w.place, w.execd.Socket, s, slog.New(slog.NewTextHandler(w.Output(), nil)))
	w.ok(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- here.Run(ctx) }()
	defer func() {
		cancel()
		w.ok(<-done)
	}()
	do()
}

// until waits until a job is as asked for.
func (w *world) until(s *sqlite.Store, id string, is func(run.Job) bool) run.Job {
	w.Helper()
	changed, stop, err := s.Watch(w.Context(), id)
	w.ok(err)
	defer stop()
	deadline := time.After(patience)
	for {
		job, err := s.Job(w.Context(), "t", id)
		w.ok(err)
		if is(job) {
			return job
		}
		select {
		case <-changed:
		case <-time.After(200 * time.Millisecond):
		case <-deadline:
			w.Fatalf("job %s is still %+v", id, job)
		}
	}
}

func ended(j run.Job) bool { return j.State.Terminal() }

// says waits until the log of a command, as the execution service has it, holds
// text.
func (w *world) says(sandbox, command, text string) {
	w.Helper()
	client := w.execd.Dial()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	for {
		x, err := attach(ctx, client, sandbox, command)
		if err == nil {
			var all strings.Builder
			err = x.Output(ctx, 0, func(c execenv.Chunk) error {
				all.Write(c.Data)
				if strings.Contains(all.String(), text) {
					return errSeen
				}
				return nil
			})
		}
		if err == errSeen {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			w.Fatalf("command %s of %s does not say %q: %v", command, sandbox, text, err)
		}
	}
}

var errSeen = fmt.Errorf("seen")

func attach(ctx context.Context, env execenv.Environment, sandbox, command string) (execenv.Exec, error) {
	sb, err := env.Attach(ctx, sandbox)
	if err != nil {
		return nil, err
	}
	return sb.AttachExec(ctx, command)
}

func (w *world) log(s *sqlite.Store, id string) string {
	w.Helper()
	entries, err := s.Log(w.Context(), "t", id, 0, 16<<20)
	w.ok(err)
	var all strings.Builder
	for _, e := range entries {
		all.Write(e.Data)
	}
	return all.String()
}

func (w *world) blobs() blob.Store {
	w.Helper()
	b, err := dir.New(filepath.Join(w.place, "blobs"))
	w.ok(err)
	return b
}

// nothingLeft waits for the last removal, and looks at the host.
func (w *world) nothingLeft() {
	w.Helper()
	client := w.execd.Dial()
	deadline := time.Now().Add(patience)
	for {
		list, err := client.List(w.Context())
		w.ok(err)
		left := w.execd.Leftovers()
		if len(list) == 0 && len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			w.Fatalf("left: %+v, %q", list, left)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// receipt verifies and returns it.
func (w *world) receipt(s *sqlite.Store, id string) receipt.Statement {
	w.Helper()
	key, err := receipt.LoadOrCreateKey(filepath.Join(w.place, "key.pem"))
	w.ok(err)
	signer, err := receipt.NewSigner(key)
	w.ok(err)
	deadline := time.Now().Add(patience)
	for {
		envelope, err := s.Receipt(w.Context(), "t", id)
		if err == nil {
			v, err := receipt.Verify(envelope, []ed25519.PublicKey{signer.Public()})
			w.ok(err)
			return v.Statement
		}
		if time.Now().After(deadline) {
			w.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
