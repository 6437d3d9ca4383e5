package gvisor

import (
	"context"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/execenv"
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
	box, _ := inner(env).find("frozen")
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
	info, err := sb.Info(ctx)
	if err != nil || info.State != execenv.StateEnded {
		t.Errorf("state %s, %v; want it ended", info.State, err)
	}
}
