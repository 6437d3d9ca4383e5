package gvisor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/testenv"
)

// A sandbox whose kernel does not do what it is asked is ended from outside: the
// clock is the service's, and so is the kill.
func TestFrozenSandboxEndsByTheClock(t *testing.T) {
	testenv.RequireRoot(t)
	t.Parallel()
	env := newTestEnvironment(t)
	ctx := context.Background()
	sb, err := env.Create(ctx, execenv.Spec{ID: "frozen", Image: "bare", Limits: run.DefaultLimits()})
	if err != nil {
		t.Fatal(err)
	}
	// It waits for input that does not come.
	c, err := sb.Exec(ctx, execenv.ExecSpec{Argv: []string{guestPath, "unpack", "/workspace", "x"}, Stdin: true, Timeout: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	box, _ := inner(env).boxes.Find("frozen")
	if err := unix.Kill(box.sentry.Getpid(), unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	r, err := c.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if r.Outcome.Kind != run.WallClock {
		t.Errorf("outcome %s: %s", r.Outcome, r.Outcome.Evidence)
	}
	if late := r.Duration - 3*time.Second; late > 3*time.Second {
		t.Errorf("it ended %s after its limit", late)
	}
	info, err := sb.Info(ctx)
	if err != nil || info.State != execenv.StateEnded {
		t.Errorf("state %s, %v; want it ended", info.State, err)
	}
}

// A sandbox that is killed while it starts is reported as that, and not as a
// defect.
func TestSandboxKilledWhileItStarts(t *testing.T) {
	testenv.RequireRoot(t)
	t.Parallel()
	env := newTestEnvironment(t)
	failed := 0
	for i := range 12 {
		id := fmt.Sprintf("killed-%d", i)
		created := make(chan error, 1)
		go func() {
			_, err := env.Create(context.Background(), execenv.Spec{ID: id, Image: "bare", Limits: run.DefaultLimits()})
			created <- err
		}()
		killFirst(t, inner(env).Environment, id, time.Duration(i)*3*time.Millisecond)
		killed := time.Now()
		switch err := <-created; {
		case err == nil:
		case fault.Is(err, fault.Unavailable):
			failed++
		default:
			t.Errorf("killed %d ms after its first process was bounded: %v (%s)", i*3, err, fault.CodeOf(err))
		}
		if late := time.Since(killed); late > bootTimeout/2 {
			t.Errorf("it was known %s after the kill", late)
		}
		if err := env.Destroy(context.Background(), id); err != nil {
			t.Error(err)
		}
	}
	if failed == 0 {
		t.Error("no sandbox was killed in time: this shows nothing")
	}
}

// killFirst kills the first process in a sandbox's group, some time after it came.
func killFirst(t *testing.T, e *Environment, id string, after time.Duration) {
	t.Helper()
	var pid int
	for deadline := time.Now().Add(20 * time.Second); pid == 0; time.Sleep(200 * time.Microsecond) {
		if time.Now().After(deadline) {
			t.Error("no process came")
			return
		}
		procs, _ := os.ReadFile(filepath.Join(e.hierarchy.Group(filepath.Join(e.group, id)).Dirs()[0], "cgroup.procs"))
		_, _ = fmt.Sscan(string(procs), &pid)
	}
	time.Sleep(after)
	_ = unix.Kill(pid, unix.SIGKILL)
}
