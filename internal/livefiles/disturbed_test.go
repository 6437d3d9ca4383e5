package livefiles_test

import (
	"context"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/livefiles"
	"github.com/agentdock/agentdock/internal/run"
)

// TestGivenUp: a caller that goes away while it writes leaves neither a half
// file nor a process.
func TestGivenUp(t *testing.T) {
	w := newWorld(t, nil)
	ctx, cancel := context.WithCancel(w.ctx())
	stuck := &stuckReader{stuck: make(chan struct{}), release: make(chan struct{})}
	defer close(stuck.release)
	ended := make(chan error, 1)
	go func() {
		_, err := w.Write(ctx, "given/up", 0, stuck)
		ended <- err
	}()
	<-stuck.stuck
	cancel()
	w.wantCode("a write that was given up", <-ended, fault.Unavailable)
	if got := w.names("given", 1); len(got) != 0 {
		t.Errorf("left over: %q", got)
	}
	if ps := w.probe("ps"); strings.Contains(ps, "agentdock-guest files") {
		t.Errorf("still running:\n%s", ps)
	}
}

// stuckReader has something, and then nothing for a long time.
type stuckReader struct {
	sent           bool
	stuck, release chan struct{}
}

func (r *stuckReader) Read(p []byte) (int, error) {
	if !r.sent {
		r.sent = true
		return len(p), nil
	}
	close(r.stuck)
	<-r.release
	return 0, io.EOF
}

// TestNoMoreProcesses: a sandbox that is full of processes is no reason to hang,
// and works again when they are gone.
func TestNoMoreProcesses(t *testing.T) {
	w := newWorld(t, func(l *run.Limits) { l.PIDs = 24 })
	bomb, err := w.sandbox.Exec(w.ctx(), execenv.ExecSpec{Argv: []string{probePath, "forkstorm"}})
	if err != nil {
		t.Fatal(err)
	}
	for ctx := w.ctx(); ; {
		_, err := w.Stat(ctx, "x")
		if fault.Is(err, fault.Exhausted) {
			break
		}
		// The storm has not filled everything yet.
		if !fault.Is(err, fault.NotFound) || ctx.Err() != nil {
			t.Fatalf("while there are too many processes: %v", err)
		}
	}
	if err := bomb.Kill(w.ctx()); err != nil {
		t.Fatal(err)
	}
	if _, err := bomb.Wait(w.ctx()); err != nil {
		t.Fatal(err)
	}
	w.write("x", "again")
	if got := w.read("x"); got != "again" {
		t.Errorf("%q", got)
	}
}

// TestManyAtOnce: requests do not get in each other's way.
func TestManyAtOnce(t *testing.T) {
	w := newWorld(t, nil)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			name := "many/" + strings.Repeat("x", i+1)
			for range 5 {
				if _, err := w.Write(w.ctx(), name, 0, strings.NewReader(name)); err != nil {
					t.Errorf("Write: %v", err)
				}
				if got, err := w.part(name, livefiles.Part{}); err != nil || got != name {
					t.Errorf("%q, %v", got, err)
				}
			}
		})
	}
	all.Wait()
	if got := w.names("many", 1); len(got) != 8 {
		t.Errorf("%q", got)
	}
}

// TestEndedSandbox: its files are gone with it.
func TestEndedSandbox(t *testing.T) {
	w := newWorld(t, nil)
	client, err := w.sandbox.Exec(w.ctx(), execenv.ExecSpec{Argv: []string{probePath, "alloc", "1000000000"}})
	if err != nil {
		t.Fatal(err)
	}
	if res, err := client.Wait(w.ctx()); err != nil || res.Outcome.Kind != run.OutOfMemory {
		t.Fatalf("%+v, %v", res.Outcome, err)
	}
	_, err = w.Stat(w.ctx(), "x")
	w.wantCode("Stat", err, fault.Gone)
	_, err = w.Write(w.ctx(), "x", 0, strings.NewReader("x"))
	w.wantCode("Write", err, fault.Gone)
}
