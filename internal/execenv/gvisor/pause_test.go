package gvisor

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/testenv"
)

// Whoever destroys a sandbox that is being paused or resumed, or asks what it uses,
// does not wait for that.
func TestNobodyWaitsForAPauseOrResume(t *testing.T) {
	testenv.RequireRoot(t)
	t.Parallel()
	env := newTestEnvironment(t)
	ctx := context.Background()
	sb, err := env.Create(ctx, execenv.Spec{ID: "away", Image: "bare", Limits: run.DefaultLimits()})
	if err != nil {
		t.Fatal(err)
	}
	box, _ := inner(env).boxes.Find("away")
	box.gate.close() // as a Pause does before anybody is told
	if _, err := sb.Usage(ctx); !fault.Is(err, fault.Conflict) {
		t.Errorf("Usage of one that is being paused: %v", err)
	}
	box.gate.open()
	if _, err := sb.Usage(ctx); err != nil {
		t.Errorf("Usage afterwards: %v", err)
	}
	if err := sb.Pause(ctx, time.Hour); err != nil {
		t.Fatal(err)
	}
	box.turn.Lock()
	box.GiveUp()
	if err := box.bringBack(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a resume of what nobody wants: %v", err)
	}
	box.turn.Unlock()
	if err := env.Destroy(ctx, "away"); err != nil {
		t.Error(err)
	}
}

// What is kept of a paused sandbox goes when its time has passed, and not when
// somebody destroys it.
func TestStateEndsWithItsSandbox(t *testing.T) {
	testenv.RequireRoot(t)
	t.Parallel()
	env := newTestEnvironment(t)
	ctx := context.Background()
	sb, err := env.Create(ctx, execenv.Spec{ID: "kept", Image: "bare", Limits: run.DefaultLimits()})
	if err != nil {
		t.Fatal(err)
	}
	if err := sb.Pause(ctx, time.Hour); err != nil {
		t.Fatal(err)
	}
	box, _ := inner(env).boxes.Find("kept")
	file := box.saved.file
	box.expire()
	<-box.Ended()
	if err := file.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("its state is still there: closing it says %v", err)
	}
	if box.saved != nil || box.held != nil {
		t.Error("something of it is kept")
	}
	if err := env.Destroy(ctx, "kept"); err != nil {
		t.Error(err)
	}
}
