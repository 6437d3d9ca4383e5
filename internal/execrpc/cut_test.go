package execrpc_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// cutter stands between client and service and can cut every connection, as a
// network does.
type cutter struct {
	l     net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func newCutter(t *testing.T, to string) (*cutter, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{l: l}
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("unix", to)
			if err != nil {
				near.Close()
				return
			}
			c.mu.Lock()
			c.conns = append(c.conns, near, far)
			c.mu.Unlock()
			go func() { _, _ = io.Copy(far, near); far.Close() }()
			go func() { _, _ = io.Copy(near, far); near.Close() }()
		}
	}()
	t.Cleanup(c.cut)
	return c, path
}

// cut ends all connections and takes no more.
func (c *cutter) cut() {
	c.l.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		conn.Close()
	}
}

// cutting names a way to lose the service in the middle of a call.
var cutting = map[string]func(*service, *cutter){
	"network":  func(_ *service, c *cutter) { c.cut() },
	"close":    func(s *service, _ *cutter) { _ = s.http.Close() },
	"shutdown": func(s *service, _ *cutter) { s.cancel() },
}

func TestACutIsAnErrorAndNeverAnEnd(t *testing.T) {
	for name, cut := range cutting {
		t.Run(name, func(t *testing.T) {
			env := newStub()
			var at *stubExec
			env.onExec = func(_ execenv.ExecSpec, e *stubExec) error { at = e; return nil }
			env.onGet = func(ctx context.Context, _ execenv.ArchiveRequest, w io.Writer) error {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return err
				}
				<-ctx.Done()
				return ctx.Err()
			}
			putSaw := make(chan error, 1)
			env.onPut = func(_ context.Context, _ string, r io.Reader) error {
				_, err := io.Copy(io.Discard, r)
				putSaw <- err
				return err
			}
			s := serve(t, env)
			c, path := newCutter(t, s.socket)
			sb := box(t, dial(t, path), "a")
			e := start(t, sb, "x")
			at.log.Append(execenv.Stdout, []byte("something"))

			running := make(chan struct{}, 4)
			results := make(chan error, 4)
			var once sync.Once
			go func() {
				results <- e.Output(ctx(t), 0, func(execenv.Chunk) error { once.Do(func() { running <- struct{}{} }); return nil })
			}()
			go func() {
				running <- struct{}{}
				_, err := e.Wait(ctx(t))
				results <- err
			}()
			go func() {
				results <- sb.GetArchive(ctx(t), execenv.ArchiveRequest{}, &signalWriter{running: running})
			}()
			r := &endless{after: 4 << 20, running: running, stop: make(chan struct{})}
			go func() { results <- sb.PutArchive(ctx(t), "", r) }()
			for range 4 {
				<-running
			}
			cut(s, c)
			close(r.stop)
			for range 4 {
				wantCode(t, "cut call", <-results, fault.Unavailable)
			}
			if err := <-putSaw; err == nil {
				t.Error("the environment took a cut archive for a whole one")
			}
		})
	}
}

// endless gives zeros; after some of them it says so and waits for stop, then
// goes on.
type endless struct {
	after   int
	running chan struct{}
	once    sync.Once
	stop    chan struct{}
}

func (r *endless) Read(p []byte) (int, error) {
	if r.after -= len(p); r.after < 0 {
		r.once.Do(func() { r.running <- struct{}{} })
		<-r.stop
	}
	return len(p), nil
}

type signalWriter struct {
	running chan struct{}
	once    sync.Once
}

func (w *signalWriter) Write(p []byte) (int, error) {
	w.once.Do(func() { w.running <- struct{}{} })
	return len(p), nil
}

func TestArchivesArriveWhole(t *testing.T) {
	contents := make([]byte, 7<<20+13)
	src := rand.NewChaCha8([32]byte{1})
	_, _ = src.Read(contents)
	var sent bytes.Buffer
	tw := tar.NewWriter(&sent)
	_ = tw.WriteHeader(&tar.Header{Name: "f", Size: int64(len(contents)), Mode: 0o600})
	_, _ = tw.Write(contents)
	_ = tw.Close()
	sent.Write(make([]byte, 10240)) // tar's padding, which nobody need read

	env := newStub()
	env.onPut = func(_ context.Context, dir string, r io.Reader) error {
		tr := tar.NewReader(r)
		if h, err := tr.Next(); err != nil || h.Name != "f" || dir != "d\xff" {
			t.Errorf("got %v, %v into %q", h, err, dir)
		}
		got, err := io.ReadAll(tr)
		if err != nil || sha256.Sum256(got) != sha256.Sum256(contents) {
			t.Errorf("got %d bytes, %v", len(got), err)
		}
		return nil // without reading tar's end
	}
	env.onGet = func(_ context.Context, req execenv.ArchiveRequest, w io.Writer) error {
		if req.Dir != "d" || req.Patterns[0] != "**/\xff" || req.MaxBytes != 9 {
			t.Errorf("request is %+v", req)
		}
		for p := sent.Bytes(); len(p) > 0; p = p[min(512, len(p)):] {
			if _, err := w.Write(p[:min(512, len(p))]); err != nil {
				return err
			}
		}
		return nil
	}
	sb := box(t, wired(t, env), "a")
	if err := sb.PutArchive(ctx(t), "d\xff", bytes.NewReader(sent.Bytes())); err != nil {
		t.Error(err)
	}
	var got bytes.Buffer
	if err := sb.GetArchive(ctx(t), execenv.ArchiveRequest{Dir: "d", Patterns: []string{"**/\xff"}, MaxBytes: 9}, &got); err != nil {
		t.Error(err)
	}
	if !bytes.Equal(got.Bytes(), sent.Bytes()) {
		t.Errorf("got %d bytes, want %d", got.Len(), sent.Len())
	}
}

func TestAnArchiveRefusedEarlyKeepsItsReason(t *testing.T) {
	env := newStub()
	env.onPut = func(_ context.Context, _ string, r io.Reader) error {
		_, _ = io.ReadFull(r, make([]byte, 1000))
		return fault.New(fault.Exhausted, "disk is full")
	}
	sb := box(t, wired(t, env), "a")
	for range 50 {
		err := sb.PutArchive(ctx(t), "", io.LimitReader(zeros{}, 20<<20))
		wantCode(t, "PutArchive", err, fault.Exhausted)
	}
	env.onPut = func(context.Context, string, io.Reader) error { return nil } // reads nothing
	wantCode(t, "an archive with much after its end", sb.PutArchive(ctx(t), "", io.LimitReader(zeros{}, 20<<20)), fault.Invalid)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestTheCallersReaderAndWriterEndAnArchive(t *testing.T) {
	env := newStub()
	saw := make(chan error, 1)
	env.onPut = func(_ context.Context, _ string, r io.Reader) error {
		_, err := io.Copy(io.Discard, r)
		saw <- err
		return err
	}
	env.onGet = func(_ context.Context, _ execenv.ArchiveRequest, w io.Writer) error {
		_, err := io.Copy(w, zeros{})
		saw <- err
		return err
	}
	sb := box(t, wired(t, env), "a")
	broken := errors.New("broken")
	if err := sb.PutArchive(ctx(t), "", io.MultiReader(io.LimitReader(zeros{}, 1<<20), failing{broken})); !errors.Is(err, broken) {
		t.Errorf("PutArchive = %v, want the reader's error", err)
	}
	if err := <-saw; err == nil {
		t.Error("the environment read a whole archive")
	}
	if err := sb.GetArchive(ctx(t), execenv.ArchiveRequest{}, failing{broken}); !errors.Is(err, broken) {
		t.Errorf("GetArchive = %v, want the writer's error", err)
	}
	if err := <-saw; err == nil {
		t.Error("the environment wrote all of an endless archive")
	}
	// A reader that is stuck does not hold up the caller.
	short, cancel := context.WithTimeout(ctx(t), 30*time.Millisecond)
	defer cancel()
	pr, pw := io.Pipe()
	defer pw.Close()
	if err := sb.PutArchive(short, "", pr); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("PutArchive = %v, want the deadline", err)
	}
	<-saw //nolint:errcheck // that it came is what is waited for; what came is not the case
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error)  { return 0, f.err }
func (f failing) Write([]byte) (int, error) { return 0, f.err }

// Streams nobody reads, on either side, hold up no other call.
func TestStuckStreamsStallNothingElse(t *testing.T) {
	env := newStub()
	release := make(chan struct{})
	env.onPut = func(ctx context.Context, _ string, _ io.Reader) error {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return fault.New(fault.Gone, "never read")
	}
	env.onExec = func(spec execenv.ExecSpec, e *stubExec) error {
		if spec.Argv[0] == "flood" {
			e.log.Append(execenv.Stdout, make([]byte, 8<<20))
		}
		e.finish(run.ExitedWith(0, ""))
		return nil
	}
	sb := box(t, wired(t, env), "a")
	var stuck sync.WaitGroup
	call, cancel := context.WithCancel(ctx(t))
	started := make(chan struct{}, 40)
	flood := start(t, sb, "flood")
	for range 20 {
		stuck.Go(func() { _ = sb.PutArchive(call, "", io.LimitReader(zeros{}, 64<<20)) })
		stuck.Go(func() {
			_ = flood.Output(call, 0, func(execenv.Chunk) error {
				started <- struct{}{}
				<-release
				return errors.New("enough")
			})
		})
	}
	for range 20 {
		<-started
	}
	for range 20 {
		e := start(t, sb, "x")
		if _, err := e.WriteStdin(ctx(t), make([]byte, 200<<10)); err != nil {
			t.Fatal(err)
		}
		if r, err := e.Wait(ctx(t)); err != nil || !r.Outcome.Success() {
			t.Fatal(r, err)
		}
	}
	close(release)
	cancel()
	stuck.Wait()
}

func BenchmarkOutput(b *testing.B) {
	env := newStub()
	const size = 64 << 20
	env.onExec = func(_ execenv.ExecSpec, e *stubExec) error {
		for range size / (32 << 10) {
			e.log.Append(execenv.Stdout, make([]byte, 32<<10))
		}
		e.finish(run.ExitedWith(0, ""))
		return nil
	}
	e := start(b, box(b, wired(b, env), "a"), "x")
	b.SetBytes(size)
	for b.Loop() {
		got := 0
		if err := e.Output(context.Background(), 0, func(c execenv.Chunk) error { got += len(c.Data); return nil }); err != nil || got != size {
			b.Fatal(got, err)
		}
	}
}

func BenchmarkGetArchive(b *testing.B) {
	env := newStub()
	const size = 64 << 20
	env.onGet = func(_ context.Context, _ execenv.ArchiveRequest, w io.Writer) error {
		_, err := io.Copy(w, io.LimitReader(zeros{}, size))
		return err
	}
	sb := box(b, wired(b, env), "a")
	b.SetBytes(size)
	for b.Loop() {
		if err := sb.GetArchive(context.Background(), execenv.ArchiveRequest{}, io.Discard); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPutArchive(b *testing.B) {
	env := newStub()
	const size = 64 << 20
	env.onPut = func(_ context.Context, _ string, r io.Reader) error {
		_, err := io.Copy(io.Discard, r)
		return err
	}
	sb := box(b, wired(b, env), "a")
	b.SetBytes(size)
	for b.Loop() {
		if err := sb.PutArchive(context.Background(), "", io.LimitReader(zeros{}, size)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkExecAndWait(b *testing.B) {
	env := newStub()
	env.onExec = func(_ execenv.ExecSpec, e *stubExec) error { e.finish(run.ExitedWith(0, "")); return nil }
	sb := box(b, wired(b, env), "a")
	for b.Loop() {
		e, err := sb.Exec(context.Background(), execenv.ExecSpec{Argv: []string{"x"}})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := e.Wait(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}
