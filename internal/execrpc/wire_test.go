package execrpc_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execrpc"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

func TestEverythingOfARequestArrives(t *testing.T) {
	env := newStub()
	c := wired(t, env)
	if c.Capabilities() != stubCapabilities {
		t.Errorf("capabilities are %+v, want %+v", c.Capabilities(), stubCapabilities)
	}
	asked := spec("a-1")
	asked.Env = map[string]string{"A": "b", "BYTES": "\xff\xfe"}
	asked.Labels = map[string]string{"é": "ü"}
	asked.Lifetime = 90*time.Second + 1
	sb, err := c.Create(ctx(t), asked)
	if err != nil {
		t.Fatal(err)
	}
	if got := env.boxes["a-1"].spec; !got.Equal(asked) {
		t.Errorf("spec is %+v, want %+v", got, asked)
	}
	info, err := sb.Info(ctx(t))
	if err != nil || info.Limits != asked.Limits || !maps.Equal(info.Labels, asked.Labels) || !info.CreatedAt.Equal(time.Unix(1000, 7)) || !info.ExpiresAt.IsZero() {
		t.Errorf("info is %+v, %v", info, err)
	}
	usage, err := sb.Usage(ctx(t))
	if want := (run.Usage{MemoryBytes: 1, PeakMemoryBytes: 2, CPU: 3, PIDs: 4, DiskBytes: 5, Inodes: 6}); err != nil || usage != want {
		t.Errorf("usage is %+v, %v", usage, err)
	}

	command := execenv.ExecSpec{ID: "e1", Argv: []string{"x", "", "\xff"}, Dir: "d\xfe", Env: map[string]string{"K": "v"},
		Stdin: true, TTY: &execenv.WindowSize{Cols: 80, Rows: 65535}, Timeout: time.Millisecond, OutputBytes: 7}
	e, err := sb.Exec(ctx(t), command)
	if err != nil {
		t.Fatal(err)
	}
	at := env.boxes["a-1"].execs["e1"]
	if got := at.spec; strings.Join(got.Argv, "|") != "x||\xff" || got.Dir != command.Dir || !maps.Equal(got.Env, command.Env) ||
		!got.Stdin || *got.TTY != *command.TTY || got.Timeout != command.Timeout || got.OutputBytes != 7 {
		t.Errorf("command is %+v, want %+v", got, command)
	}
	input := bytes.Repeat([]byte("0123456789abcdef"), 40_000) // more than two pieces
	if n, err := e.WriteStdin(ctx(t), input); n != len(input) || err != nil || !bytes.Equal(at.stdin, input) {
		t.Errorf("WriteStdin = %d, %v; %d bytes arrived", n, err, len(at.stdin))
	}
	for _, err := range []error{e.CloseStdin(ctx(t)), e.Signal(ctx(t), syscall.SIGHUP), e.Resize(ctx(t), execenv.WindowSize{Cols: 1, Rows: 2})} {
		if err != nil {
			t.Error(err)
		}
	}
	if at.signals[0] != syscall.SIGHUP || at.size.Rows != 2 {
		t.Errorf("signals %v, size %v", at.signals, at.size)
	}
	wantCode(t, "signal 65", e.Signal(ctx(t), 65), fault.Invalid)
	wantCode(t, "size 0", e.Resize(ctx(t), execenv.WindowSize{}), fault.Invalid)

	if _, err := sb.AttachExec(ctx(t), "e1"); err != nil {
		t.Error(err)
	}
	_, err = sb.AttachExec(ctx(t), "e2")
	wantCode(t, "AttachExec", err, fault.NotFound)
	if err := e.Kill(ctx(t)); err != nil {
		t.Error(err)
	}
	infos, err := c.List(ctx(t))
	if err != nil || len(infos) != 1 || infos[0].ID != "a-1" {
		t.Errorf("List = %+v, %v", infos, err)
	}
	if err := c.Destroy(ctx(t), "a-1"); err != nil {
		t.Error(err)
	}
	_, err = c.Attach(ctx(t), "a-1")
	wantCode(t, "Attach", err, fault.NotFound)
}

func TestNamesThatCannotBeIDsNeverReachTheEnvironment(t *testing.T) {
	env := newStub()
	env.onDestroy = func(id string) error { t.Errorf("Destroy(%q) got through", id); return nil }
	c := wired(t, env)
	for _, id := range []string{"", "../x", "A", "\xff", strings.Repeat("a", 64)} {
		_, err := c.Create(ctx(t), spec(id))
		wantCode(t, "Create", err, fault.Invalid)
		_, err = c.Attach(ctx(t), id)
		wantCode(t, "Attach", err, fault.NotFound)
		if err := c.Destroy(ctx(t), id); err != nil {
			t.Errorf("Destroy(%q): %v", id, err)
		}
	}
}

func TestOutcomesStayApart(t *testing.T) {
	for _, want := range []run.Outcome{
		run.ExitedWith(0, "wait status"), run.ExitedWith(1, ""), run.ExitedWith(137, ""), run.ExitedWith(255, ""),
		run.SignalledBy(syscall.SIGKILL, "x"),
		{Kind: run.OutOfMemory, Evidence: "e", LimitsHit: []run.Limit{run.LimitMemory}},
		{Kind: run.WallClock, LimitsHit: []run.Limit{run.LimitPIDs, run.LimitDisk, run.LimitInodes, run.LimitOutput, run.LimitWallClock}},
		{Kind: run.Cancelled}, {Kind: run.NotStarted}, {Kind: run.InfrastructureLost, Evidence: "not \xff UTF-8"},
	} {
		env := newStub()
		env.onExec = func(_ execenv.ExecSpec, e *stubExec) error { e.finish(want); return nil }
		e := start(t, box(t, wired(t, env), "a"), "x")
		got, err := e.Wait(ctx(t))
		want.Evidence = strings.ToValidUTF8(want.Evidence, "\uFFFD")
		if err != nil || got.Outcome.String() != want.String() || got.Outcome.Evidence != want.Evidence {
			t.Errorf("Wait = %v, %v; want %v", got.Outcome, err, want)
		}
		if got.Duration != 5*time.Second || !got.StartedAt.Equal(time.Unix(2000, 9)) || got.Usage.PIDs != 9 {
			t.Errorf("result is %+v", got)
		}
	}
}

func TestAnOutcomeNobodyKnowsIsAnError(t *testing.T) {
	env := newStub()
	env.onExec = func(_ execenv.ExecSpec, e *stubExec) error { e.finish(run.Outcome{Kind: "exploded"}); return nil }
	_, err := start(t, box(t, wired(t, env), "a"), "x").Wait(ctx(t))
	wantCode(t, "Wait", err, fault.Internal)
}

func TestOutputIsTheLogAndEndsWithTheResult(t *testing.T) {
	env := newStub()
	var at *stubExec
	env.onExec = func(_ execenv.ExecSpec, e *stubExec) error { at = e; return nil }
	e := start(t, box(t, wired(t, env), "a"), "x")
	big := bytes.Repeat([]byte{0, 0xff, 'x'}, 300_000)
	at.log.Append(execenv.Stdout, []byte("one"))
	at.log.Append(execenv.Stderr, []byte("two"))
	at.log.Append(execenv.Stdout, big)

	var out [3]bytes.Buffer
	var first sync.Once
	next := int64(2)
	err := e.Output(ctx(t), 2, func(c execenv.Chunk) error {
		first.Do(func() { at.finish(run.ExitedWith(3, "")) }) // while being followed
		if c.Offset != next {
			t.Errorf("chunk is at %d, want %d", c.Offset, next)
		}
		next += int64(len(c.Data))
		out[c.Stream].Write(c.Data)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := out[execenv.Stdout].Bytes(); !bytes.Equal(got, append([]byte("e"), big...)) || out[execenv.Stderr].String() != "two" {
		t.Errorf("got %d bytes of stdout, %q of stderr", len(got), out[execenv.Stderr].String())
	}
	stop := errors.New("stop")
	if err := e.Output(ctx(t), 0, func(execenv.Chunk) error { return stop }); err != stop {
		t.Errorf("Output = %v, want yield's error", err)
	}
	// The Result came with the end: no further call is needed.
	ended, cancel := context.WithCancel(ctx(t))
	cancel()
	if r, err := e.Wait(ended); err != nil || r.Outcome.String() != "exited 3" {
		t.Errorf("Wait = %v, %v", r.Outcome, err)
	}
}

func TestErrorsKeepTheirCodeAndMessageAndNotTheirCause(t *testing.T) {
	secret := errors.New("open /srv/secret: denied")
	for _, code := range []fault.Code{fault.Invalid, fault.NotFound, fault.Conflict, fault.Denied, fault.Unsupported,
		fault.Exhausted, fault.Gone, fault.Unavailable, fault.Internal} {
		env := newStub()
		env.onExec = func(execenv.ExecSpec, *stubExec) error { return fault.Wrap(code, secret, "cannot do é %s", code) }
		_, err := box(t, wired(t, env), "a").Exec(ctx(t), execenv.ExecSpec{Argv: []string{"x"}})
		wantCode(t, "Exec", err, code)
		if fault.Public(err) != "cannot do é "+string(code) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s became %q", code, err)
		}
	}
	for name, failure := range map[string]error{"plain": secret, "panic": nil} {
		env := newStub()
		env.onExec = func(execenv.ExecSpec, *stubExec) error {
			if failure == nil {
				panic(secret)
			}
			return failure
		}
		_, err := box(t, wired(t, env), "a").Exec(ctx(t), execenv.ExecSpec{Argv: []string{"x"}})
		wantCode(t, name, err, fault.Internal)
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the cause crossed the wire: %v", name, err)
		}
	}
}

func TestStdinTellsHowMuchWasWritten(t *testing.T) {
	env := newStub()
	env.onExec = func(_ execenv.ExecSpec, e *stubExec) error {
		e.onStdin = func(ctx context.Context, p []byte) (int, error) {
			if len(p) == 1 {
				<-ctx.Done()
				return 0, ctx.Err()
			}
			return 5, fault.New(fault.Gone, "it ended")
		}
		return nil
	}
	e := start(t, box(t, wired(t, env), "a"), "x")
	n, err := e.WriteStdin(ctx(t), []byte("0123456789"))
	if n != 5 {
		t.Errorf("wrote %d, want 5", n)
	}
	wantCode(t, "WriteStdin", err, fault.Gone)

	short, cancel := context.WithTimeout(ctx(t), 20*time.Millisecond)
	defer cancel()
	if _, err = e.WriteStdin(short, []byte("x")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("blocked WriteStdin = %v, want the deadline", err)
	}
}

func TestTheCallersContextReachesTheEnvironment(t *testing.T) {
	env := newStub()
	deadline := make(chan time.Time, 1)
	gone := make(chan error, 1)
	env.onGet = func(ctx context.Context, _ execenv.ArchiveRequest, _ io.Writer) error {
		d, _ := ctx.Deadline()
		deadline <- d
		<-ctx.Done()
		gone <- ctx.Err()
		return ctx.Err()
	}
	sb := box(t, wired(t, env), "a")
	call, cancel := context.WithTimeout(ctx(t), 40*time.Second)
	result := make(chan error, 1)
	go func() { result <- sb.GetArchive(call, execenv.ArchiveRequest{}, io.Discard) }()
	if left := time.Until(<-deadline); left < 30*time.Second || left > 41*time.Second {
		t.Errorf("the environment has %s left, want about 40s", left)
	}
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("the environment saw %v", err)
	}
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller got %v", err)
	}
}

func TestHugeMessagesAreRefused(t *testing.T) {
	env := newStub()
	c := wired(t, env)
	sb := box(t, c, "a")
	huge := strings.Repeat("x", 5<<20)
	_, err := sb.Exec(ctx(t), execenv.ExecSpec{Argv: []string{huge}})
	wantCode(t, "Exec", err, fault.Invalid)
	s := spec("b")
	s.Image = huge
	_, err = c.Create(ctx(t), s)
	wantCode(t, "Create", err, fault.Invalid)
	if len(env.boxes) != 1 {
		t.Errorf("%d sandboxes, want 1", len(env.boxes))
	}
}

func TestManyCallsAtOnceAreMoreThanOneConnectionCarries(t *testing.T) {
	env := newStub()
	c := wired(t, env)
	sb := box(t, c, "a")
	var all sync.WaitGroup
	errs := make(chan error, 700)
	for range 700 { // above maxStreams
		e := start(t, sb, "x")
		all.Go(func() { _, err := e.Wait(ctx(t)); errs <- err })
	}
	if err := c.Destroy(ctx(t), "a"); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	close(errs)
	for err := range errs {
		if err != nil && !fault.Is(err, fault.NotFound) { // asked after the end
			t.Fatal(err)
		}
	}
}

var _ execenv.Environment = (*execrpc.Client)(nil)
