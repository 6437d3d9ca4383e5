package gvisor

import (
	"context"
	"errors"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/gvisor/answer"
	"github.com/agentdock/agentdock/internal/execenv/lifecycle"
	"github.com/agentdock/agentdock/internal/execenv/stdio"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// program is what a command of a sandbox runs. It implements lifecycle.Program.
type program struct {
	cmd  *lifecycle.Command
	box  *box
	proc *process // nil if it could not be started
	// files are its standard files, and keys those by which the sandbox's kernel
	// finds its ends of them again: see survival.
	files *stdio.Files
	keys  []uint64

	status  unix.WaitStatus // set once it has ended
	refused answer.Refusals // set once nothing is left of it
	places  []answer.Place  // set with it
}

var _ lifecycle.Program = (*program)(nil)

// Exec implements execenv.Sandbox.
func (b *box) Exec(ctx context.Context, spec execenv.ExecSpec) (execenv.Exec, error) {
	return b.Begin(ctx, spec, func(c *lifecycle.Command) { (&program{cmd: c, box: b}).start() })
}

// start starts the program.
func (p *program) start() {
	dir, _ := execenv.WorkspacePath(p.cmd.Spec.Dir) // validated
	files, typing, err := p.newStdio()
	if err != nil {
		p.cmd.Fail(fault.Wrap(fault.Internal, err, "cannot start the command"))
		return
	}
	p.files, p.keys = files, fileKeys(files.Theirs)
	p.proc, err = p.box.start(launch{
		area: programs, argv: p.cmd.Spec.Argv, env: execenv.Environ(p.box.Spec, p.cmd.Spec), dir: dir,
		files: files.Theirs, tty: p.cmd.Spec.TTY != nil,
	})
	files.CloseTheirs()
	if err != nil {
		files.CloseOurs()
		p.notStarted(err)
		return
	}
	p.cmd.Arm(p)
	go p.watchLimits()
	p.cmd.Follow(files, typing)
}

// notStarted is the end of a command whose program did not run, as far as is known.
func (p *program) notStarted(err error) {
	var notStarted *errNotStarted
	var lost *errLostAtStart
	switch {
	case errors.As(err, &lost):
		p.cmd.Finish(p.lost(err))
	case errors.As(err, &notStarted):
		// A sandbox that lost one of its host processes for its memory limit
		// cannot start any more, and that is not the program's doing.
		if stats, err := p.box.group.Stats(); err == nil && stats.OOMKills > 0 {
			p.box.abandon("it went over its memory limit")
			p.cmd.Finish(outOfMemory(stats, p.box.Spec.Limits), p.box.usageOf(stats))
			return
		}
		p.cmd.Finish(run.Outcome{Kind: run.NotStarted, Evidence: notStarted.reason}, run.Usage{})
	default:
		p.cmd.Fail(err)
	}
}

// Wait implements lifecycle.Program.
func (p *program) Wait() (err error) {
	p.status, err = p.proc.wait()
	return err
}

// Clear implements lifecycle.Program. If it does not work, the sandbox is ended,
// and with it what was left.
func (p *program) Clear() {
	if p.box.insist("a command's processes cannot be killed", p.proc.clear) != nil {
		return
	}
	// The program's end is known. If the sandbox ends just now, what else would
	// be said about it is not, and that does not change the end.
	if total, places, err := p.proc.account(); err == nil {
		p.refused, p.proc.after, p.places = total.Since(p.proc.before), total, places
	}
	p.proc.release()
}

// Outcome implements lifecycle.Program.
func (p *program) Outcome(lost error) (run.Outcome, run.Usage) {
	if lost != nil {
		return p.lost(lost)
	}
	return p.decide(p.status)
}

// Kill implements lifecycle.Program. The sandbox's kernel is asked first. If it
// does not do it in time, whatever the cause, the sandbox is ended: no limit
// depends on its good will.
func (p *program) Kill() {
	_ = p.box.insist("a command cannot be killed", func() error {
		err := p.proc.kill()
		if err == nil {
			select {
			case <-p.cmd.Ended():
			case <-p.box.Ended():
			}
		}
		select {
		case <-p.cmd.Ended(): // by itself, and its processes are being cleared
			return nil
		default:
			return err
		}
	})
}

// Signal implements lifecycle.Program.
func (p *program) Signal(sig syscall.Signal) error {
	if err := p.proc.signal(sig, false); err != nil {
		return p.box.lost(err)
	}
	return nil
}

// Resized implements lifecycle.Program.
func (p *program) Resized() { _ = p.proc.signal(unix.SIGWINCH, true) }
