package hostile

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/run"
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
	cmd := b.command(b.root(), do("spin", "4"))
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	time.Sleep(spinTime)
	_ = cmd.Process.Kill() // the rest of its process namespace goes with it
	_ = cmd.Wait()
	// What its children used is not in its own account, so this is the least.
	if used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(); used < fairUse/2 {
		b.Errorf("the control does not bite: without a quota one of four used %s in %s", used, spinTime)
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
