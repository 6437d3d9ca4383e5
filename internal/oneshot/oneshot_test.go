package oneshot

import (
	"bytes"
	"context"
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
	"testing/fstest"
	"testing/iotest"
	"time"

	"github.com/agentdock/agentdock/internal/artifact"
	"github.com/agentdock/agentdock/internal/dirpack"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/fake"
	"github.com/agentdock/agentdock/internal/execrpc"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// overTheWire serves an environment in memory on a unix socket and dials it.
// When the test ends, no sandbox may be left in it.
func overTheWire(t *testing.T, cfg fake.Config) execenv.Environment {
	t.Helper()
	env := fake.New(cfg)
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	server := execrpc.NewHTTPServer(execrpc.NewServer(env, log), nil, log)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close() })
	client, err := execrpc.DialUnix(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if left, err := env.List(context.Background()); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
		client.Close()
	})
	return client
}

func request(argv ...string) Request {
	return Request{
		ID: NewID(), Image: "default", Limits: run.DefaultLimits(), Argv: argv,
		FilesNote: "copying", ArtifactLimits: artifact.DefaultLimits(),
	}
}

type output struct{ stdout, stderr bytes.Buffer }

func (o *output) sinks() Sinks {
	return Sinks{Stdout: &o.stdout, Stderr: &o.stderr, Phase: func(string) func() { return func() {} }}
}

func TestNewID(t *testing.T) {
	a, b := NewID(), NewID()
	if a == b || execenv.ValidateID(a) != nil || len(a) != 36 || a[14] != '4' {
		t.Errorf("%q, %q", a, b)
	}
}

func TestRunPassesOutputAndStatus(t *testing.T) {
	env := overTheWire(t, fake.Config{Programs: map[string]fake.Program{
		"both": func(p *fake.Proc) int {
			_, _ = io.WriteString(p.Stdout, "out\x00\xff")
			_, _ = io.WriteString(p.Stderr, "err")
			return 7
		},
	}})
	var o output
	r := Run(t.Context(), env, request("both"), o.sinks())
	if r.Err != nil || r.ExitStatus() != 7 || o.stdout.String() != "out\x00\xff" || o.stderr.String() != "err" {
		t.Errorf("status %d, %v; output %q, %q", r.ExitStatus(), r.Err, o.stdout.String(), o.stderr.String())
	}
}

func TestRunGivesExactlyTheAllowedEnvironment(t *testing.T) {
	t.Setenv("AGENTDOCK_TEST_SECRET", "hunter2")
	env := overTheWire(t, fake.Config{})
	req := request("env")
	req.Env = map[string]string{"ADDED": "x"}
	var o output
	Run(t.Context(), env, req, o.sinks())
	want := "ADDED=x\nAGENTDOCK_SANDBOX=true\nCI=true\nHOME=/workspace\nPATH=" + execenv.Path + "\n"
	if o.stdout.String() != want {
		t.Errorf("got %q, want %q", o.stdout.String(), want)
	}
}

func TestFilesInArtifactsOut(t *testing.T) {
	env := overTheWire(t, fake.Config{})
	req := request("tee", "dist/made")
	req.Files = func(ctx context.Context, w io.Writer) error {
		return dirpack.PackFS(ctx, fstest.MapFS{"dist/given": {Data: []byte("given")}, "other": {Data: []byte("o")}}, w)
	}
	req.Stdin = strings.NewReader("typed")
	req.Artifacts, req.Out = []string{"dist/**"}, filepath.Join(t.TempDir(), "a", "b")
	var o output
	r := Run(t.Context(), env, req, o.sinks())
	if r.ExitStatus() != 0 || r.ArtifactsErr != nil || len(r.Artifacts) != 2 || o.stdout.String() != "typed" {
		t.Fatalf("status %d, %v, %v, artifacts %v, output %q", r.ExitStatus(), r.Err, r.ArtifactsErr, r.Artifacts, o.stdout.String())
	}
	for name, want := range map[string]string{"dist/given": "given", "dist/made": "typed"} {
		if got, err := os.ReadFile(filepath.Join(req.Out, name)); err != nil || string(got) != want {
			t.Errorf("%s is %q, %v", name, got, err)
		}
	}
	if _, err := os.Lstat(filepath.Join(req.Out, "other")); err == nil {
		t.Error("a file that was not asked for was collected")
	}
}

func TestArtifactsOfAProgramThatFailed(t *testing.T) {
	env := overTheWire(t, fake.Config{Programs: map[string]fake.Program{
		"fails": func(p *fake.Proc) int { _ = p.WriteFile("report", []byte("why")); return 3 },
	}})
	req := request("fails")
	req.Artifacts, req.Out = []string{"report"}, t.TempDir()
	var o output
	r := Run(t.Context(), env, req, o.sinks())
	if r.ExitStatus() != 3 || len(r.Artifacts) != 1 || r.ArtifactsErr != nil {
		t.Errorf("status %d, artifacts %v, %v", r.ExitStatus(), r.Artifacts, r.ArtifactsErr)
	}
}

func TestTooManyArtifactsFailOnlyASuccess(t *testing.T) {
	env := overTheWire(t, fake.Config{Programs: map[string]fake.Program{
		"writes": func(p *fake.Proc) int { _ = p.WriteFile("big", make([]byte, 4096)); return 0 },
	}})
	req := request("writes")
	req.Artifacts, req.Out = []string{"big"}, t.TempDir()
	req.ArtifactLimits.TotalBytes = 100
	var o output
	r := Run(t.Context(), env, req, o.sinks())
	if !fault.Is(r.ArtifactsErr, fault.Exhausted) || r.ExitStatus() != StatusOurs || !strings.Contains(r.Line(), "--artifact-bytes") {
		t.Errorf("status %d, %v: %s", r.ExitStatus(), r.ArtifactsErr, r.Line())
	}
}

func TestFilesThatFail(t *testing.T) {
	env := overTheWire(t, fake.Config{})
	boom := errors.New("cannot read \"secret\"")
	req := request("true")
	req.Files = func(_ context.Context, w io.Writer) error {
		_, _ = w.Write(make([]byte, 100))
		return boom
	}
	var o output
	if r := Run(t.Context(), env, req, o.sinks()); !errors.Is(r.Err, boom) || r.ExitStatus() != 125 || r.Result != nil {
		t.Errorf("got %v, %+v", r.Err, r.Result)
	}

	req = request("true")
	req.Limits.DiskBytes = run.MiB
	req.Files = func(ctx context.Context, w io.Writer) error {
		return dirpack.PackFS(ctx, fstest.MapFS{"big": {Data: make([]byte, 2*run.MiB)}}, w)
	}
	if r := Run(t.Context(), env, req, o.sinks()); !fault.Is(r.Err, fault.Exhausted) || !strings.Contains(r.Line(), "raise --disk") {
		t.Errorf("got %v", r.Err)
	}
}

func TestUnknownImageNamesTheFix(t *testing.T) {
	env := overTheWire(t, fake.Config{Images: []string{"other"}})
	var o output
	r := Run(t.Context(), env, request("true"), o.sinks())
	if r.ExitStatus() != 125 || !strings.Contains(r.Line(), "agentdock image") {
		t.Errorf("status %d: %s", r.ExitStatus(), r.Line())
	}
}

// written closes seen at the first write.
type written struct {
	once sync.Once
	seen chan struct{}
}

func (w *written) Write(p []byte) (int, error) {
	w.once.Do(func() { close(w.seen) })
	return len(p), nil
}

func TestCancelKillsTheCommand(t *testing.T) {
	env := overTheWire(t, fake.Config{Programs: map[string]fake.Program{
		"runs": func(p *fake.Proc) int {
			_, _ = io.WriteString(p.Stdout, "running")
			p.Sleep(time.Hour)
			return 0
		},
	}})
	ctx, cancel := context.WithCancel(t.Context())
	var o output
	sinks, w := o.sinks(), &written{seen: make(chan struct{})}
	sinks.Stdout = w
	go func() {
		<-w.seen
		cancel()
	}()
	req := request("runs")
	never, _ := io.Pipe()
	req.Stdin = never // a terminal nobody types into holds up nothing
	r := Run(ctx, env, req, sinks)
	if r.Err != nil || r.Result == nil || r.Result.Outcome.Kind != run.Cancelled || r.ExitStatus() != StatusCancelled {
		t.Errorf("%v, %+v", r.Err, r.Result)
	}
}

func TestCancelWhileCreating(t *testing.T) {
	env := overTheWire(t, fake.Config{CreateTakes: time.Hour})
	// Not a deadline: the other side would see that pass a little earlier.
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	var o output
	r := Run(ctx, env, request("true"), o.sinks())
	if r.ExitStatus() != StatusCancelled || r.state() != "cancelled" || !strings.Contains(r.Line(), "before the command was started") {
		t.Errorf("status %d: %s", r.ExitStatus(), r.Line())
	}
}

// livesOn is what a checkout says of a token that it could not end.
type livesOn struct{ error }

func (livesOn) LivesOn() string { return "a token opens it until noon" }

func TestCancelDuringACheckoutSaysWhatLivesOn(t *testing.T) {
	env := overTheWire(t, fake.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	req := request("true")
	req.Checkout = func(context.Context, execenv.Sandbox) (string, error) {
		cancel()
		return "", fmt.Errorf("ended: %w", livesOn{context.Canceled})
	}
	var o output
	r := Run(ctx, env, req, o.sinks())
	if r.ExitStatus() != StatusCancelled || !strings.Contains(r.Line(), "a token opens it until noon") {
		t.Errorf("status %d: %s", r.ExitStatus(), r.Line())
	}
}

func TestOutputThatNobodyTakesEndsTheRun(t *testing.T) {
	env := overTheWire(t, fake.Config{Programs: map[string]fake.Program{
		"runs": func(p *fake.Proc) int {
			_, _ = io.WriteString(p.Stdout, "running")
			p.Sleep(time.Hour)
			return 0
		},
	}})
	var o output
	sinks := o.sinks()
	broken := errors.New("broken pipe")
	sinks.Stdout = failing{broken}
	if r := Run(t.Context(), env, request("runs"), sinks); !errors.Is(r.Err, broken) || r.ExitStatus() != 125 {
		t.Errorf("%v, %+v", r.Err, r.Result)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestInputThatBreaksIsNotTakenForTheWhole(t *testing.T) {
	env := overTheWire(t, fake.Config{})
	boom := errors.New("bad sector")
	req := request("cat")
	req.Stdin = io.MultiReader(strings.NewReader("first"), iotest.ErrReader(boom))
	var o output
	if r := Run(t.Context(), env, req, o.sinks()); !errors.Is(r.Err, boom) || r.ExitStatus() != 125 {
		t.Errorf("%v, %+v", r.Err, r.Result)
	}
}

func TestInputNobodyReads(t *testing.T) {
	env := overTheWire(t, fake.Config{})
	req := request("true")
	req.Stdin = zeros{}
	var o output
	if r := Run(t.Context(), env, req, o.sinks()); r.Err != nil || r.ExitStatus() != 0 {
		t.Errorf("status %d, %v", r.ExitStatus(), r.Err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestADestroyThatFailsIsSaid(t *testing.T) {
	failed := false
	env := overTheWire(t, fake.Config{FailDestroy: func(string) error {
		if failed {
			return nil
		}
		failed = true
		return errors.New("stuck")
	}})
	var o output
	req := request("true")
	r := Run(t.Context(), env, req, o.sinks())
	if r.Err == nil || r.ExitStatus() != 125 || !strings.Contains(r.Line(), "cannot remove the sandbox") {
		t.Errorf("status %d: %s", r.ExitStatus(), r.Line())
	}
	if err := env.Destroy(t.Context(), req.ID); err != nil {
		t.Error(err)
	}
}

// A result that could not be kept is an error before the run, not after it.
func TestOutIsTriedFirst(t *testing.T) {
	dangling := filepath.Join(t.TempDir(), "dangling")
	if err := os.Symlink("/nowhere/at/all", dangling); err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{dangling, "/proc/x"} {
		if err := prepareOut(Request{Artifacts: []string{"*"}, Out: out}); err == nil {
			t.Errorf("%s: accepted", out)
		}
	}
	fresh := filepath.Join(t.TempDir(), "a", "b")
	if err := prepareOut(Request{Artifacts: []string{"*"}, Out: fresh}); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(fresh); err == nil {
		t.Error("a directory is left for a run that may collect nothing")
	}
}
