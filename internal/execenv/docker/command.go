package docker

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/lifecycle"
	"github.com/agentdock/agentdock/internal/execenv/stdio"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/guest/supervisor"
	"github.com/agentdock/agentdock/internal/run"
)

// program is what a command of a sandbox runs. It implements lifecycle.Program.
type program struct {
	cmd  *lifecycle.Command
	box  *box
	proc *process
	end  supervisor.Event // set once it has ended
}

var _ lifecycle.Program = (*program)(nil)

// Exec implements execenv.Sandbox.
func (b *box) Exec(ctx context.Context, spec execenv.ExecSpec) (execenv.Exec, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if err := b.env.Capabilities().CanEndAt(spec.EndAtLimit); err != nil {
		return nil, err
	}
	return b.Begin(ctx, spec, func(c *lifecycle.Command) { (&program{cmd: c, box: b}).start() })
}

// start starts the program.
func (p *program) start() {
	dir, _ := execenv.WorkspacePath(p.cmd.Spec.Dir) // validated
	files, typing, err := p.files()
	if err != nil {
		p.cmd.Fail(fault.Wrap(fault.Internal, err, "cannot start the command"))
		return
	}
	p.proc, err = p.box.link.begin(launch{
		argv: p.cmd.Spec.Argv, env: execenv.Environ(p.box.Spec, p.cmd.Spec), dir: dir,
		files: files.Theirs, tty: p.cmd.Spec.TTY != nil,
	})
	files.CloseTheirs()
	if err == nil {
		// Before anybody says that it was started: a program that keeps that from
		// being told must not run without a limit.
		p.cmd.Arm(p)
		err = p.proc.started()
	}
	var notStarted *errNotStarted
	switch {
	case errors.As(err, &notStarted):
		files.CloseOurs()
		p.cmd.Finish(run.Outcome{Kind: run.NotStarted, Evidence: notStarted.reason}, run.Usage{})
	case err != nil:
		files.CloseOurs()
		p.cmd.Finish(p.lost())
	default:
		go p.watchOutput()
		p.cmd.Follow(files, typing)
	}
}

// files makes the standard files. The host's terminal knows the program's
// processes, as all are of one kernel, so that typing into it is writing.
func (p *program) files() (files *stdio.Files, typing func([]byte) (int, error), err error) {
	if p.cmd.Spec.TTY == nil {
		files, err = stdio.Pipes(p.cmd.Spec.Stdin)
		return files, nil, err
	}
	master, slave, err := stdio.OpenTerminal(*p.cmd.Spec.TTY)
	if err != nil {
		return nil, nil, err
	}
	files = &stdio.Files{Theirs: []*os.File{slave, slave, slave}, In: master, Out: master}
	return files, master.Write, nil
}

// watchOutput kills a command that is to end when it has written too much.
func (p *program) watchOutput() {
	if len(p.cmd.Spec.EndAtLimit) == 0 {
		return
	}
	select {
	case <-p.cmd.Log.Cut():
		p.cmd.End(run.LimitOutput.EndsAt())
	case <-p.cmd.Ended():
	}
}

// Wait implements lifecycle.Program.
func (p *program) Wait() (err error) {
	p.end, err = p.proc.wait()
	return err
}

// Clear implements lifecycle.Program. The supervisor tells of a command's end when
// nothing of it is left.
func (p *program) Clear() {}

// Outcome implements lifecycle.Program.
func (p *program) Outcome(lost error) (run.Outcome, run.Usage) {
	if lost != nil {
		return p.lost()
	}
	return p.decide(p.end)
}

// killTimeout is how long a command may take to be dead. Then its sandbox is
// ended: no limit depends on what is inside of it.
const killTimeout = 10 * time.Second

// Kill implements lifecycle.Program.
func (p *program) Kill() {
	go func() { _ = p.proc.kill() }() // it blocks where the supervisor takes nothing
	late := time.NewTimer(killTimeout)
	defer late.Stop()
	select {
	case <-p.cmd.Ended():
	case <-p.cmd.Done(): // it was never started
	case <-p.box.Ended():
	case <-late.C:
		p.box.abandon("a command cannot be killed")
	}
}

// Signal implements lifecycle.Program.
func (p *program) Signal(sig syscall.Signal) error {
	if err := p.proc.signal(sig); err != nil {
		return p.box.gone(err)
	}
	return nil
}

// Resized implements lifecycle.Program. The host's terminal has told them.
func (p *program) Resized() {}

// statusOf is the wait status of an event, checked: what cannot be one is the
// word of a supervisor that is none any more.
func statusOf(e supervisor.Event) (unix.WaitStatus, bool) {
	status := unix.WaitStatus(e.Status)
	return status, e.Status <= 0xffff && (status.Exited() || status.Signaled())
}
