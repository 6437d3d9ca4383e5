package execrpc_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/outlog"
	"github.com/agentdock/agentdock/internal/execrpc"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// stub is an environment whose answers a test chooses. Hooks that are nil do
// the plain thing.
type stub struct {
	onCreate  func(ctx context.Context, spec execenv.Spec) error
	onExec    func(spec execenv.ExecSpec, e *stubExec) error
	onPut     func(ctx context.Context, dir string, r io.Reader) error
	onGet     func(ctx context.Context, req execenv.ArchiveRequest, w io.Writer) error
	onDestroy func(id string) error

	mu    sync.Mutex
	boxes map[string]*stubBox
}

type stubBox struct {
	s     *stub
	spec  execenv.Spec
	mu    sync.Mutex
	execs map[string]*stubExec
}

type stubExec struct {
	id     string
	spec   execenv.ExecSpec
	log    *outlog.Log
	end    sync.Once
	ended  chan struct{}
	result execenv.Result

	mu      sync.Mutex
	stdin   []byte
	signals []syscall.Signal
	size    execenv.WindowSize
	onStdin func(ctx context.Context, p []byte) (int, error)
}

func newStub() *stub { return &stub{boxes: map[string]*stubBox{}} }

var stubCapabilities = execenv.Capabilities{
	Name: "stub", Version: "1", Isolation: execenv.IsolationNone, TTY: true, ReadOnlyRoot: true, DiskBeyondMemory: true, Pause: true,
	Enforces: execenv.Enforces{CPU: true, Memory: true, PIDs: true, Disk: true, Inodes: true, Output: true, WallClock: true},
}

func (s *stub) Capabilities() execenv.Capabilities { return stubCapabilities }

func (s *stub) Create(ctx context.Context, spec execenv.Spec) (execenv.Sandbox, error) {
	if s.onCreate != nil {
		if err := s.onCreate(ctx, spec); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.boxes[spec.ID]
	if b == nil {
		b = &stubBox{s: s, spec: spec, execs: map[string]*stubExec{}}
		s.boxes[spec.ID] = b
	}
	if !b.spec.Equal(spec) {
		return nil, fault.New(fault.Conflict, "sandbox %s exists", spec.ID)
	}
	return b, nil
}

func (s *stub) Attach(_ context.Context, id string) (execenv.Sandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.boxes[id]; b != nil {
		return b, nil
	}
	return nil, fault.New(fault.NotFound, "no sandbox %s", id)
}

func (s *stub) List(context.Context) ([]execenv.Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var infos []execenv.Info
	for _, b := range s.boxes {
		info, _ := b.Info(context.Background())
		infos = append(infos, info)
	}
	return infos, nil
}

func (s *stub) Destroy(_ context.Context, id string) error {
	if s.onDestroy != nil {
		if err := s.onDestroy(id); err != nil {
			return err
		}
	}
	s.mu.Lock()
	b := s.boxes[id]
	delete(s.boxes, id)
	s.mu.Unlock()
	if b != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, e := range b.execs {
			e.finish(run.Outcome{Kind: run.Cancelled, Evidence: "destroyed"})
		}
	}
	return nil
}

func (b *stubBox) ID() string { return b.spec.ID }

func (b *stubBox) Info(context.Context) (execenv.Info, error) {
	return execenv.Info{ID: b.spec.ID, State: execenv.StateRunning, Image: b.spec.Image, Labels: b.spec.Labels,
		Limits: b.spec.Limits, CreatedAt: time.Unix(1000, 7).UTC()}, nil
}

func (b *stubBox) Exec(_ context.Context, spec execenv.ExecSpec) (execenv.Exec, error) {
	e := &stubExec{id: spec.ID, spec: spec, log: outlog.New(1 << 40), ended: make(chan struct{})}
	b.mu.Lock()
	b.execs[spec.ID] = e
	b.mu.Unlock()
	if b.s.onExec != nil {
		if err := b.s.onExec(spec, e); err != nil {
			return nil, err
		}
	}
	return e, nil
}

func (b *stubBox) SetNetwork(context.Context, run.Network) error { return nil }

func (b *stubBox) NetworkUse(context.Context) (run.NetworkUse, error) { return run.NetworkUse{}, nil }

func (b *stubBox) Extend(context.Context, time.Duration) error { return nil }
func (b *stubBox) Pause(context.Context, time.Duration) error  { return nil }
func (b *stubBox) Resume(context.Context, time.Duration) error { return nil }

func (b *stubBox) Execs(context.Context) ([]execenv.ExecInfo, error) { return nil, nil }

func (b *stubBox) AttachExec(_ context.Context, id string) (execenv.Exec, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.execs[id]; e != nil {
		return e, nil
	}
	return nil, fault.New(fault.NotFound, "no command %s", id)
}

func (b *stubBox) PutArchive(ctx context.Context, dir string, r io.Reader) error {
	return b.s.onPut(ctx, dir, r)
}

func (b *stubBox) GetArchive(ctx context.Context, req execenv.ArchiveRequest, w io.Writer) error {
	return b.s.onGet(ctx, req, w)
}

func (b *stubBox) Usage(context.Context) (run.Usage, error) {
	return run.Usage{MemoryBytes: 1, PeakMemoryBytes: 2, CPU: 3, PIDs: 4, DiskBytes: 5, Inodes: 6}, nil
}

// finish ends the command; only the first call counts.
func (e *stubExec) finish(o run.Outcome) {
	e.end.Do(func() {
		e.result = execenv.Result{Outcome: o, StdoutBytes: e.log.Seen(execenv.Stdout), StderrBytes: e.log.Seen(execenv.Stderr),
			StartedAt: time.Unix(2000, 9).UTC(), Duration: 5 * time.Second, Usage: run.Usage{PIDs: 9}}
		e.log.Close()
		close(e.ended)
	})
}

func (e *stubExec) ID() string { return e.id }

func (e *stubExec) Output(ctx context.Context, from int64, yield func(execenv.Chunk) error) error {
	return e.log.Follow(ctx, from, yield)
}

func (e *stubExec) Wait(ctx context.Context) (execenv.Result, error) {
	select {
	case <-e.ended:
		return e.result, nil
	case <-ctx.Done():
		return execenv.Result{}, ctx.Err()
	}
}

func (e *stubExec) WriteStdin(ctx context.Context, p []byte) (int, error) {
	if e.onStdin != nil {
		return e.onStdin(ctx, p)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stdin = append(e.stdin, p...)
	return len(p), nil
}

func (e *stubExec) CloseStdin(context.Context) error { return nil }

func (e *stubExec) Signal(_ context.Context, sig syscall.Signal) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.signals = append(e.signals, sig)
	return nil
}

func (e *stubExec) Kill(context.Context) error {
	e.finish(run.Outcome{Kind: run.Cancelled, Evidence: "killed"})
	return nil
}

func (e *stubExec) Resize(_ context.Context, size execenv.WindowSize) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.size = size
	return nil
}

// Fixture: a service on a unix socket and a client.

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

type service struct {
	t      testing.TB
	socket string
	http   *http.Server
	cancel context.CancelFunc // ends every call's context
	done   chan struct{}
}

func serve(t testing.TB, env execenv.Environment) *service {
	t.Helper()
	s := &service{t: t, socket: filepath.Join(t.TempDir(), "s")}
	s.start(env)
	t.Cleanup(s.stop)
	return s
}

// start may be used again after stop, as a restarted service does.
func (s *service) start(env execenv.Environment) {
	s.t.Helper()
	l, err := execrpc.ListenUnix(s.socket, nil, quiet())
	if err != nil {
		s.t.Fatal(err)
	}
	s.http = execrpc.NewHTTPServer(execrpc.NewServer(env, quiet()), nil, quiet())
	base, cancel := context.WithCancel(context.Background())
	s.cancel, s.done = cancel, make(chan struct{})
	s.http.BaseContext = func(net.Listener) context.Context { return base }
	go func() { defer close(s.done); _ = s.http.Serve(l) }()
}

func (s *service) stop() {
	s.cancel()
	_ = s.http.Close()
	<-s.done
}

func dial(t testing.TB, socket string) *execrpc.Client {
	t.Helper()
	c, err := execrpc.DialUnix(ctx(t), socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// wired is a client of env through a real socket.
func wired(t testing.TB, env execenv.Environment) *execrpc.Client {
	t.Helper()
	return dial(t, serve(t, env).socket)
}

// ctx is long enough for anything a test waits for.
func ctx(t testing.TB) context.Context {
	c, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return c
}

func spec(id string) execenv.Spec {
	return execenv.Spec{ID: id, Image: "image", Limits: run.DefaultLimits()}
}

func box(t testing.TB, c *execrpc.Client, id string) execenv.Sandbox {
	t.Helper()
	sb, err := c.Create(ctx(t), spec(id))
	if err != nil {
		t.Fatal(err)
	}
	return sb
}

func start(t testing.TB, sb execenv.Sandbox, argv ...string) execenv.Exec {
	t.Helper()
	e, err := sb.Exec(ctx(t), execenv.ExecSpec{Argv: argv})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func wantCode(t testing.TB, what string, err error, code fault.Code) {
	t.Helper()
	if fault.CodeOf(err) != code {
		t.Errorf("%s: got %v (%s), want %s", what, err, fault.CodeOf(err), code)
	}
}
