package execd

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execrpc"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// started runs the service and waits until it says that it is ready.
func started(t *testing.T, c Config, env execenv.Environment) (stop context.CancelFunc, result chan error) {
	t.Helper()
	ready, say := io.Pipe()
	c.Ready, c.Log = say, quiet()
	ctx, cancel := context.WithCancel(context.Background())
	result = make(chan error, 1)
	go func() { result <- Run(ctx, c, env) }()
	line, err := bufio.NewReader(ready).ReadString('\n')
	if err != nil || line != "ready\n" {
		t.Fatalf("ready line is %q, %v: %v", line, err, <-result)
	}
	t.Cleanup(cancel)
	return cancel, result
}

func longSpec(id string) execenv.Spec {
	s := spec(id)
	s.Limits = run.DefaultLimits()
	return s
}

func TestStoppingDestroysEverythingAndTellsWhoWaits(t *testing.T) {
	goroutines := runtime.NumGoroutine()
	env := newStub()
	c := Config{Socket: filepath.Join(t.TempDir(), "s"), Policy: policy()}
	stop, result := started(t, c, env)
	client, err := execrpc.DialUnix(t.Context(), c.Socket)
	if err != nil {
		t.Fatal(err)
	}
	sb, err := client.Create(t.Context(), longSpec("a"))
	if err != nil {
		t.Fatal(err)
	}
	e, err := sb.Exec(t.Context(), execenv.ExecSpec{Argv: []string{"x"}})
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 1)
	began := make(chan struct{})
	go func() {
		close(began)
		r, err := e.Wait(t.Context())
		if err == nil && r.Outcome.Kind != run.Cancelled {
			t.Errorf("outcome is %v", r.Outcome)
		}
		waited <- err
	}()
	<-began
	if _, err := client.List(t.Context()); err != nil { // behind Wait on the same connection
		t.Error(err)
	}
	stop()
	stop()
	if err := <-result; err != nil {
		t.Errorf("Run: %v", err)
	}
	// A Wait that arrives only after the sandboxes are gone finds none.
	if err := <-waited; err != nil && !fault.Is(err, fault.Unavailable) && !fault.Is(err, fault.NotFound) {
		t.Errorf("Wait: %v", err)
	}
	if left := env.left(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if _, err := os.Lstat(c.Socket); err == nil {
		t.Error("the socket file is left")
	}
	_, err = client.List(t.Context())
	wantCode(t, "List after the end", err, fault.Unavailable)
	client.Close()
	deadline := time.Now().Add(10 * time.Second)
	for runtime.NumGoroutine() > goroutines && time.Now().Before(deadline) {
		runtime.Gosched()
	}
	if n := runtime.NumGoroutine(); n > goroutines {
		stacks := make([]byte, 1<<20)
		t.Errorf("%d goroutines, %d before:\n%s", n, goroutines, stacks[:runtime.Stack(stacks, true)])
	}
}

func TestASandboxThatCannotBeFreedIsReported(t *testing.T) {
	env := newStub()
	env.boxes["a"] = &stubBox{s: env, spec: spec("a"), at: time.Now(), execs: map[string]*stubExec{}}
	env.setFail("a", true)
	c := Config{Socket: filepath.Join(t.TempDir(), "s"), Policy: policy(), StopTimeout: 100 * time.Millisecond}
	stop, result := started(t, c, env)
	stop()
	if err := <-result; err == nil || !strings.Contains(err.Error(), "sandbox a: stuck") {
		t.Errorf("Run = %v", err)
	}
}

func TestASecondServiceLeavesTheFirstAlone(t *testing.T) {
	env := newStub()
	c := Config{Socket: filepath.Join(t.TempDir(), "s"), Policy: policy()}
	stop, result := started(t, c, env)
	client, err := execrpc.DialUnix(t.Context(), c.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Create(t.Context(), longSpec("a")); err != nil {
		t.Fatal(err)
	}
	second := c
	second.Log = quiet()
	if err := Run(t.Context(), second, env); err == nil || !strings.Contains(err.Error(), "another process is listening") {
		t.Errorf("second Run = %v", err)
	}
	if _, err := client.Attach(t.Context(), "a"); err != nil {
		t.Errorf("the first one's sandbox: %v", err)
	}
	stop()
	if err := <-result; err != nil {
		t.Error(err)
	}
}

func TestTheServiceEndsWithItsParent(t *testing.T) {
	r, w := io.Pipe()
	_, result := started(t, Config{Socket: filepath.Join(t.TempDir(), "s"), Policy: policy(), ExitWith: r}, newStub())
	_ = w.Close()
	if err := <-result; err != nil {
		t.Error(err)
	}
}

func TestWhatCannotWorkIsRefusedAtTheStart(t *testing.T) {
	for want, c := range map[string]Config{
		"nowhere to listen": {Policy: policy()},
		"mutual TLS":        {Listen: "127.0.0.1:0", Policy: policy()},
		"lifetime":          {Socket: "/s"},
		"ceiling":           {Socket: "/s", Policy: Policy{MaxLifetime: 1, Ceiling: run.Limits{MemoryBytes: 1}}},
		"no such file":      {Socket: "/nonexistent/s", Policy: policy()},
	} {
		c.Log = quiet()
		if err := Run(t.Context(), c, newStub()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
