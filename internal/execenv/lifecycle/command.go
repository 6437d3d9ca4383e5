package lifecycle

import (
	"context"
	"sync"
	"syscall"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/outlog"
	"github.com/agentdock/agentdock/internal/execenv/stdio"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// Program is what a command runs, as an environment has it.
type Program interface {
	// Wait blocks until the first process has ended. An error is a sandbox that
	// was lost.
	Wait() error
	// Clear ends what the first process left behind.
	Clear()
	// Outcome says how the command ended, once nothing of it is left and its
	// output was read; lost is what Wait returned.
	Outcome(lost error) (run.Outcome, run.Usage)
	// Kill kills all of the command. It returns when the first process has ended,
	// or the sandbox is being ended instead.
	Kill()
	// Signal delivers a signal to the first process.
	Signal(syscall.Signal) error
	// Resized tells whoever is in the foreground of the command's terminal.
	Resized()
}

// Command is the life of one command. It implements execenv.Exec.
type Command struct {
	Spec  execenv.ExecSpec
	Limit time.Duration
	Log   *outlog.Log

	sandbox *Sandbox

	begun     chan struct{} // closed once its start has been tried
	startErr  error         // set before begun is closed
	startTime time.Time
	program   Program // nil if there was nothing to run
	clock     stopwatch
	stdin     stdio.Input

	ended chan struct{} // closed once the first process has ended
	done  chan struct{} // closed once result is set

	mu     sync.Mutex
	killed run.Kind // why it was killed, if it was
	result execenv.Result
}

var _ execenv.Exec = (*Command)(nil)

// Arm makes a program that may run from now on end at the command's limit.
func (c *Command) Arm(p Program) {
	c.program = p
	c.clock.begin(c.Limit, func() { c.End(run.WallClock) })
}

// Follow takes a command whose program is armed and runs to its end, and returns
// meanwhile. Typing is how its terminal is typed into, if it has one.
func (c *Command) Follow(files *stdio.Files, typing func([]byte) (int, error)) {
	c.stdin.Open(files.In, typing)
	go func() {
		readers := files.Read(c.Log)
		lost := c.program.Wait()
		c.clock.stop()
		close(c.ended)
		if lost == nil {
			c.program.Clear()
		}
		c.stdin.Shut()
		readers.Finish()
		files.CloseOurs()
		c.Log.Close()
		c.Finish(c.program.Outcome(lost))
	}()
}

// Fail is the end of a command that left nothing behind and has no outcome.
func (c *Command) Fail(err error) {
	c.startErr = err
	c.sandbox.drop(c)
	c.Log.Close()
	close(c.done)
}

// Finish is the end of a command, also of one whose program was never there to be
// followed.
func (c *Command) Finish(outcome run.Outcome, usage run.Usage) {
	c.clock.stop()
	c.Log.Close()
	c.mu.Lock()
	c.result = execenv.Result{
		Outcome:     outcome,
		StdoutBytes: c.Log.Seen(execenv.Stdout),
		StderrBytes: c.Log.Seen(execenv.Stderr),
		Truncated:   c.Log.Truncated(),
		StartedAt:   c.startTime,
		Duration:    time.Since(c.startTime),
		Usage:       usage,
	}
	c.mu.Unlock()
	c.sandbox.retire(c)
	close(c.done)
}

// End kills the command for a reason; the first reason counts.
func (c *Command) End(reason run.Kind) {
	c.mu.Lock()
	if c.killed == "" {
		c.killed = reason
	}
	c.mu.Unlock()
	c.program.Kill()
}

// Killed is the reason for which the command was killed, "" if it was not.
func (c *Command) Killed() run.Kind {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.killed
}

// Ended is closed once the first process has ended.
func (c *Command) Ended() <-chan struct{} { return c.ended }

// Done is closed once the command's result is known.
func (c *Command) Done() <-chan struct{} { return c.done }

// over says whether the result is known. Nobody has a command before its start
// was tried, and of one without a program it is known then.
func (c *Command) over() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// ID implements execenv.Exec.
func (c *Command) ID() string { return c.Spec.ID }

func (c *Command) info() execenv.ExecInfo {
	info := execenv.ExecInfo{
		ID: c.Spec.ID, Argv: c.Spec.Argv, Dir: c.Spec.Dir,
		TTY: c.Spec.TTY != nil, Stdin: c.Spec.Stdin, StartedAt: c.startTime,
	}
	if c.over() {
		result := c.result
		info.Result = &result
	}
	return info
}

// Output implements execenv.Exec.
func (c *Command) Output(ctx context.Context, from int64, yield func(execenv.Chunk) error) error {
	return c.Log.Follow(ctx, from, yield)
}

// Wait implements execenv.Exec.
func (c *Command) Wait(ctx context.Context) (execenv.Result, error) {
	select {
	case <-c.done:
		return c.result, nil
	case <-ctx.Done():
		return execenv.Result{}, fault.Wrap(fault.Unavailable, ctx.Err(), "waiting for command %s was given up; it may still run", c.Spec.ID)
	}
}

// Signal implements execenv.Exec.
func (c *Command) Signal(ctx context.Context, sig syscall.Signal) error {
	if sig <= 0 || sig > 64 {
		return fault.New(fault.Invalid, "signal %d does not exist", int(sig))
	}
	if c.over() {
		return nil
	}
	if err := c.sandbox.Awake(); err != nil {
		return err
	}
	err := await(ctx, func() error { return c.program.Signal(sig) })
	switch {
	case err == nil || c.over():
		return nil
	case ctx.Err() != nil:
		return fault.Wrap(fault.Unavailable, err, "the signal to command %s was not waited for; it may still arrive", c.Spec.ID)
	}
	return err
}

// Kill implements execenv.Exec.
func (c *Command) Kill(ctx context.Context) error {
	if c.over() {
		return nil
	}
	if err := c.sandbox.Awake(); err != nil {
		return err
	}
	err := await(ctx, func() error {
		c.End(run.Cancelled)
		return nil
	})
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "killing command %s was not waited for; it is being killed", c.Spec.ID)
	}
	return nil
}

// await runs f, and leaves it behind when ctx ends first: what it asks of a
// sandbox takes as long as that sandbox likes.
func await(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Resize implements execenv.Exec.
func (c *Command) Resize(_ context.Context, size execenv.WindowSize) error {
	if c.Spec.TTY == nil {
		return fault.New(fault.Invalid, "command %s has no terminal", c.Spec.ID)
	}
	if size.Cols == 0 || size.Rows == 0 {
		return fault.New(fault.Invalid, "terminal size %dx%d has a zero", size.Cols, size.Rows)
	}
	if c.over() {
		return nil
	}
	if err := c.sandbox.Awake(); err != nil {
		return err
	}
	if err := c.stdin.Resize(size); err != nil {
		return err
	}
	c.program.Resized()
	return nil
}

// WriteStdin implements execenv.Exec.
func (c *Command) WriteStdin(ctx context.Context, p []byte) (int, error) {
	if !c.Spec.Stdin && c.Spec.TTY == nil {
		return 0, fault.New(fault.Invalid, "command %s was started without stdin", c.Spec.ID)
	}
	return c.stdin.Write(ctx, p)
}

// CloseStdin implements execenv.Exec.
func (c *Command) CloseStdin(context.Context) error {
	c.stdin.Close()
	return nil
}
