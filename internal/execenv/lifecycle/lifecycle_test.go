package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/stdio"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// The contract suite holds the environments to what is here. These tests are for
// the race detector, which an environment in gVisor does not run under, and for
// moments that no environment comes to when it is told to.

// box is a sandbox with nothing in it.
type box struct {
	*Sandbox
	boot func(*box) error
}

func (b *box) Boot(context.Context) error {
	if err := b.boot(b); err != nil {
		return err
	}
	return b.Start()
}

func (b *box) Free() error {
	b.GiveUp()
	b.StopClock()
	if _, ended := b.Outcome(); !ended {
		b.End(nil, run.Outcome{Kind: run.InfrastructureLost})
	}
	b.AwaitCommands()
	b.Freed()
	return nil
}

func (b *box) Exec(ctx context.Context, spec execenv.ExecSpec) (execenv.Exec, error) {
	return b.Begin(ctx, spec, func(c *Command) {
		files, err := stdio.Pipes(false)
		if err != nil {
			c.Fail(err)
			return
		}
		files.CloseTheirs()
		p := &program{cmd: c, box: b, over: make(chan struct{})}
		if spec.Argv[0] == "true" {
			p.Kill()
		}
		c.Arm(p)
		c.Follow(files, nil)
	})
}

func (*box) PutArchive(context.Context, string, io.Reader) error                 { return nil }
func (*box) GetArchive(context.Context, execenv.ArchiveRequest, io.Writer) error { return nil }
func (*box) Usage(context.Context) (run.Usage, error)                            { return run.Usage{}, nil }

// program runs until it is killed, or its sandbox has ended.
type program struct {
	cmd  *Command
	box  *box
	once sync.Once
	over chan struct{}
}

func (p *program) Wait() error {
	select {
	case <-p.over:
		return nil
	case <-p.box.Ended():
		return errors.New("it is gone")
	}
}
func (p *program) Clear()                      {}
func (p *program) Kill()                       { p.once.Do(func() { close(p.over) }) }
func (p *program) Signal(syscall.Signal) error { return nil }
func (p *program) Resized()                    {}
func (p *program) Outcome(lost error) (run.Outcome, run.Usage) {
	if lost != nil {
		outcome, _ := p.box.Outcome()
		return outcome, run.Usage{}
	}
	if killed := p.cmd.Killed(); killed != "" {
		return run.Outcome{Kind: killed}, run.Usage{}
	}
	return run.ExitedWith(0, "it was told to"), run.Usage{}
}

// world is a registry, and what becomes of its sandboxes.
type world struct {
	*testing.T
	*Registry[*box]
	boot            func(*box) error
	made, forgotten atomic.Int32
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, boot: func(*box) error { return nil }}
	w.Registry = NewRegistry(slog.New(slog.DiscardHandler), func(*box) { w.forgotten.Add(1) })
	return w
}

func (w *world) create(spec execenv.Spec) (execenv.Sandbox, error) {
	return w.Create(w.Context(), spec, func() *box {
		w.made.Add(1)
		b := &box{boot: w.boot}
		b.Sandbox = NewSandbox(spec, func() { b.End(nil, run.Outcome{}) })
		return b
	})
}

func (w *world) must(spec execenv.Spec) execenv.Sandbox {
	w.Helper()
	spec.Limits = run.DefaultLimits()
	sb, err := w.create(spec)
	if err != nil {
		w.Fatal(err)
	}
	return sb
}

func (w *world) wait(x execenv.Exec, err error) execenv.Result {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
	r, err := x.Wait(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	return r
}

// A sandbox must not be paused while a program runs that nobody knows of yet.
func TestNoCommandIsHalfBegunWhenStartsAreHeld(t *testing.T) {
	w := newWorld(t)
	b := w.must(execenv.Spec{ID: "s"}).(*box)
	_, err := b.Begin(t.Context(), execenv.ExecSpec{Argv: []string{"hold"}}, func(c *Command) {
		if b.starts.TryLock() {
			b.starts.Unlock()
			t.Error("starts can be held while one goes on")
		}
		c.Fail(errors.New("enough"))
	})
	if err == nil {
		t.Error("a command that failed to start has started")
	}
	x, err := b.Exec(t.Context(), execenv.ExecSpec{Argv: []string{"hold"}})
	if err != nil {
		t.Fatal(err)
	}
	allow := b.NoStarts()
	if n := len(b.Running()); n != 1 {
		t.Errorf("%d programs run, want 1", n)
	}
	allow()
	if err := x.Kill(t.Context()); err != nil {
		t.Error(err)
	}
	w.wait(x, nil)
}

func TestManyAskForOneSandbox(t *testing.T) {
	w := newWorld(t)
	w.boot = func(*box) error { time.Sleep(time.Millisecond); return nil }
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if _, err := w.create(execenv.Spec{ID: "one"}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if w.made.Load() != 1 {
		t.Errorf("%d were made", w.made.Load())
	}
	if _, err := w.create(execenv.Spec{ID: "one", Image: "another"}); !fault.Is(err, fault.Conflict) {
		t.Errorf("the same ID for another one: %v", err)
	}
	if err := w.DestroyAll(t.Context()); err != nil || w.forgotten.Load() != 1 {
		t.Errorf("%v; %d were forgotten", err, w.forgotten.Load())
	}
}

func TestWhatDoesNotBootIsForgotten(t *testing.T) {
	w := newWorld(t)
	w.boot = func(*box) error { return errors.New("no") }
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, err := w.create(execenv.Spec{ID: "one"}); err == nil {
				t.Error("it was made")
			}
		})
	}
	all.Wait()
	if w.made.Load() != w.forgotten.Load() || len(w.All()) != 0 {
		t.Errorf("%d were tried, %d forgotten, %d are left", w.made.Load(), w.forgotten.Load(), len(w.All()))
	}
}

func TestDestroyedWhileItIsMade(t *testing.T) {
	w := newWorld(t)
	booting, destroyed := make(chan struct{}), make(chan error)
	w.boot = func(b *box) error {
		close(booting)
		<-b.GivenUp()
		return nil
	}
	go func() {
		<-booting
		destroyed <- w.Destroy(t.Context(), "one")
	}()
	if _, err := w.create(execenv.Spec{ID: "one"}); !fault.Is(err, fault.Gone) {
		t.Errorf("what was destroyed meanwhile was made: %v", err)
	}
	if err := <-destroyed; err != nil || w.forgotten.Load() != 1 {
		t.Errorf("%v; %d were forgotten", err, w.forgotten.Load())
	}
}

func TestOnlyTheLastEndedCommandsAreKept(t *testing.T) {
	w := newWorld(t)
	sb := w.must(execenv.Spec{ID: "one"})
	runs, err := sb.Exec(t.Context(), execenv.ExecSpec{ID: "runs", Argv: []string{"sleep"}})
	if err != nil {
		t.Fatal(err)
	}
	const more = 10
	for i := range keepEnded + more {
		w.wait(sb.Exec(t.Context(), execenv.ExecSpec{ID: fmt.Sprint(i), Argv: []string{"true"}}))
	}
	for id, there := range map[string]bool{"runs": true, fmt.Sprint(more - 1): false, fmt.Sprint(more): true} {
		if _, err := sb.AttachExec(t.Context(), id); (err == nil) != there {
			t.Errorf("%s: %v", id, err)
		}
	}
	if infos, err := sb.Execs(t.Context()); err != nil || len(infos) != keepEnded+1 {
		t.Errorf("%d are listed, %v", len(infos), err)
	}
	if err := runs.Kill(t.Context()); err != nil {
		t.Error(err)
	}
	if r := w.wait(runs, nil); r.Outcome.Kind != run.Cancelled {
		t.Errorf("what was killed ended as %v", r.Outcome)
	}
}

func TestManyAskForOneCommandAndKillIt(t *testing.T) {
	w := newWorld(t)
	sb := w.must(execenv.Spec{ID: "one"})
	var all sync.WaitGroup
	for range 30 {
		all.Go(func() {
			x, err := sb.Exec(t.Context(), execenv.ExecSpec{ID: "x", Argv: []string{"sleep"}})
			if err == nil {
				err = x.Kill(t.Context())
			}
			if err != nil {
				t.Error(err)
				return
			}
			if r := w.wait(x, nil); r.Outcome.Kind != run.Cancelled {
				t.Errorf("it ended as %v", r.Outcome)
			}
		})
	}
	all.Wait()
	if infos, _ := sb.Execs(t.Context()); len(infos) != 1 {
		t.Errorf("%d commands for one ID", len(infos))
	}
}

func TestTheFirstReasonCounts(t *testing.T) {
	w := newWorld(t)
	sb := w.must(execenv.Spec{ID: "one"})
	x, err := sb.Exec(t.Context(), execenv.ExecSpec{Argv: []string{"sleep"}, Timeout: time.Millisecond})
	if r := w.wait(x, err); r.Outcome.Kind != run.WallClock {
		t.Errorf("it ended as %v", r.Outcome)
	}
	if err := x.Kill(t.Context()); err != nil {
		t.Error(err)
	}
	if r := w.wait(x, nil); r.Outcome.Kind != run.WallClock {
		t.Errorf("after it was killed, it had ended as %v", r.Outcome)
	}
}

// Of an extension and the end, one happens.
func TestExtensionAndEnd(t *testing.T) {
	w := newWorld(t)
	for i := range 100 {
		id := fmt.Sprint(i)
		sb := w.must(execenv.Spec{ID: id, Lifetime: time.Second})
		x, err := sb.Exec(t.Context(), execenv.ExecSpec{Argv: []string{"sleep"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := sb.Extend(t.Context(), time.Millisecond); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(i%20) * 100 * time.Microsecond)
		extended := sb.Extend(t.Context(), time.Hour)
		info, err := sb.Info(t.Context())
		switch {
		case err != nil:
			t.Error(err)
		case extended == nil && info.State != execenv.StateRunning:
			t.Errorf("it was extended and has ended: %+v", info.Outcome)
		case extended != nil:
			if r := w.wait(x, nil); r.Outcome.Kind != run.WallClock || !fault.Is(extended, fault.Gone) {
				t.Errorf("it was not extended (%v), and its command ended as %v", extended, r.Outcome)
			}
		}
		if err := w.Destroy(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
}

func TestAStateDirectoryHasOneUser(t *testing.T) {
	dir := t.TempDir() + "/state"
	first, err := LockStateDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := LockStateDir(dir); !fault.Is(err, fault.Conflict) {
		t.Errorf("a second one: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := LockStateDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}
