package hostile

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/cgroup"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/testenv"
)

// Four programs spin for spinTime. A sandbox with a tenth of a processor may
// use a tenth of it; starting up has its share too.
const (
	spinTime = 3 * time.Second
	fairUse  = 900 * time.Millisecond
)

func quotaHolds(w *world) {
	before, err := w.box.Usage(w.ctx())
	if err != nil {
		w.Fatal(err)
	}
	r := w.start(w.box, func(e *execenv.ExecSpec) { e.Timeout = spinTime }, "spin", "4").finish()
	w.holds("spin", r, ended(run.WallClock))
	after, err := w.box.Usage(w.ctx())
	if err != nil {
		w.Fatal(err)
	}
	if used := after.CPU - before.CPU; used > fairUse {
		w.Errorf("with a tenth of a processor it used %s in %s", used, r.Duration)
	}
}

func quotaOnHost(b *bench) {
	h, err := cgroup.Detect()
	if err != nil {
		b.Fatal(err)
	}
	g := h.Group(filepath.Join(testenv.CgroupParent, newID()))
	if err := g.Create(cgroup.Limits{}); err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := g.Destroy(context.Background()); err != nil {
			b.Error(err)
		}
	}()
	cmd := b.command(b.root(), do("after-stdin", "spin", "4"))
	gate, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	if err := g.Add(cmd.Process.Pid); err != nil {
		b.Error(err)
	}
	_ = gate.Close()
	time.Sleep(spinTime)
	stats, err := g.Stats()
	_ = cmd.Process.Kill() // the rest of its process namespace goes with it
	_ = cmd.Wait()
	if err != nil || stats.CPU < fairUse {
		b.Errorf("the control does not bite: without a quota it used %s in %s, %v", stats.CPU, spinTime, err)
	}
}

// niceIsNothing wants that a priority of the sandbox is none of the host.
func niceIsNothing(w *world) {
	pid := w.service.Sentry(w.box.ID())
	before, err := unix.Getpriority(unix.PRIO_PROCESS, pid)
	if err != nil {
		w.Fatal(err)
	}
	w.holds("nice -20", w.try(w.box, "nice", "-20"), either(want(exited(0)), want(blocked("EACCES", "EPERM"))))
	if after, err := unix.Getpriority(unix.PRIO_PROCESS, pid); err != nil || after != before {
		w.Errorf("the sandbox's process has the priority %d, had %d, %v", after, before, err)
	}
}

func pipe() (r, w *os.File, err error) { return os.Pipe() }

// killAlive ends a process that must be there.
func killAlive(pid int) error {
	if err := unix.Kill(pid, 0); err != nil {
		return err
	}
	return unix.Kill(pid, unix.SIGKILL)
}
