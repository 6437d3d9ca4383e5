package docker

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/outlog"
	"github.com/agentdock/agentdock/internal/execenv/stdio"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/guest/supervisor"
	"github.com/agentdock/agentdock/internal/run"
)

// command is one exec. It implements execenv.Exec.
type command struct {
	box   *box
	id    string
	spec  execenv.ExecSpec
	log   *outlog.Log
	limit time.Duration

	started   chan struct{} // closed once start has been tried
	startErr  error         // set before started is closed
	startTime time.Time
	proc      *process // nil if the program could not be started

	stdin stdio.Input
	ended chan struct{} // closed once nothing of it runs
	done  chan struct{} // closed once result is set

	mu     sync.Mutex
	killed run.Kind // why it was killed, if it was
	result execenv.Result
}

// Exec implements execenv.Sandbox.
func (b *box) Exec(ctx context.Context, spec execenv.ExecSpec) (execenv.Exec, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if err := b.env.Capabilities().CanEndAt(spec.EndAtLimit); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "the command was given up before it started")
	}
	c, created, err := b.register(spec)
	if err != nil {
		return nil, err
	}
	if created {
		go c.start()
	}
	select {
	case <-c.started:
	case <-ctx.Done():
		return nil, fault.Wrap(fault.Unavailable, ctx.Err(), "waiting for the command to start was given up")
	}
	if c.startErr != nil {
		return nil, c.startErr
	}
	return c, nil
}

// register returns the command with that ID, and whether the caller has to
// start it.
func (b *box) register(spec execenv.ExecSpec) (c *command, created bool, err error) {
	if err := b.alive(); err != nil {
		return nil, false, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if spec.ID == "" {
		spec.ID = newID()
	}
	if c, ok := b.execs[spec.ID]; ok {
		return c, false, nil
	}
	limits := b.spec.Limits.Clamp(run.Limits{OutputBytes: spec.OutputBytes, WallClock: spec.Timeout})
	c = &command{
		box: b, id: spec.ID, spec: spec, limit: limits.WallClock,
		log:     outlog.New(limits.OutputBytes),
		started: make(chan struct{}), ended: make(chan struct{}), done: make(chan struct{}),
	}
	b.execs[spec.ID] = c
	return c, true, nil
}

// AttachExec implements execenv.Sandbox.
func (b *box) AttachExec(ctx context.Context, id string) (execenv.Exec, error) {
	if err := b.known(); err != nil {
		return nil, err
	}
	b.mu.Lock()
	c, ok := b.execs[id]
	b.mu.Unlock()
	if ok {
		select {
		case <-c.started:
		case <-ctx.Done():
			return nil, fault.Wrap(fault.Unavailable, ctx.Err(), "attaching to command %s was given up", id)
		}
		if c.startErr == nil {
			return c, nil
		}
	}
	return nil, fault.New(fault.NotFound, "command %s does not exist in sandbox %s", id, b.spec.ID)
}

// retire notes that a command has ended and forgets the oldest ended ones.
func (b *box) retire(c *command) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.finished = append(b.finished, c.id)
	for len(b.finished) > keepEnded {
		delete(b.execs, b.finished[0])
		b.finished = b.finished[1:]
	}
}

// start starts the program and what follows it to its end.
func (c *command) start() {
	defer close(c.started)
	c.startTime = time.Now()
	dir, _ := execenv.WorkspacePath(c.spec.Dir) // validated
	files, typing, err := c.files()
	if err != nil {
		c.fail(fault.Wrap(fault.Internal, err, "cannot start the command"))
		return
	}
	c.proc, err = c.box.link.begin(launch{
		argv: c.spec.Argv, env: execenv.Environ(c.box.spec, c.spec), dir: dir,
		files: files.Theirs, tty: c.spec.TTY != nil,
	})
	files.CloseTheirs()
	// The limit is armed before the program can do anything: one that keeps its
	// start from being told must not run without.
	timer := time.AfterFunc(c.limit, func() { c.end(run.WallClock) })
	if err == nil {
		err = c.proc.started()
	}
	var notStarted *errNotStarted
	switch {
	case errors.As(err, &notStarted):
		timer.Stop()
		files.CloseOurs()
		c.finish(run.Outcome{Kind: run.NotStarted, Evidence: notStarted.reason}, run.Usage{})
	case err != nil:
		timer.Stop()
		files.CloseOurs()
		c.finish(c.lost())
	default:
		c.stdin.Open(files.In, typing)
		go c.follow(files, timer)
	}
}

// files makes the standard files. The host's terminal knows the program's
// processes, as all are of one kernel, so that typing into it is writing.
func (c *command) files() (files *stdio.Files, typing func([]byte) (int, error), err error) {
	if c.spec.TTY == nil {
		files, err = stdio.Pipes(c.spec.Stdin)
		return files, nil, err
	}
	master, slave, err := stdio.OpenTerminal(*c.spec.TTY)
	if err != nil {
		return nil, nil, err
	}
	files = &stdio.Files{Theirs: []*os.File{slave, slave, slave}, In: master, Out: master}
	return files, master.Write, nil
}

// fail ends a command that left nothing behind and has no outcome.
func (c *command) fail(err error) {
	c.startErr = err
	c.box.mu.Lock()
	delete(c.box.execs, c.id)
	c.box.mu.Unlock()
	c.log.Close()
	close(c.done)
}

// follow takes the command to its end.
func (c *command) follow(files *stdio.Files, timer *time.Timer) {
	readers := files.Read(c.log)
	go c.watchOutput()
	event, err := c.proc.wait()
	timer.Stop()
	close(c.ended)
	c.stdin.Shut()
	readers.Finish()
	files.CloseOurs()
	c.log.Close()
	if err != nil {
		c.finish(c.lost())
		return
	}
	c.finish(c.decide(event))
}

// watchOutput kills a command that is to end when it has written too much.
func (c *command) watchOutput() {
	if len(c.spec.EndAtLimit) == 0 {
		return
	}
	select {
	case <-c.log.Cut():
		c.end(run.LimitOutput.EndsAt())
	case <-c.ended:
	}
}

func (c *command) finish(outcome run.Outcome, usage run.Usage) {
	c.log.Close()
	c.mu.Lock()
	c.result = execenv.Result{
		Outcome:     outcome,
		StdoutBytes: c.log.Seen(execenv.Stdout),
		StderrBytes: c.log.Seen(execenv.Stderr),
		Truncated:   c.log.Truncated(),
		StartedAt:   c.startTime,
		Duration:    time.Since(c.startTime),
		Usage:       usage,
	}
	c.mu.Unlock()
	c.box.retire(c)
	close(c.done)
}

// killTimeout is how long a command may take to be dead. Then its sandbox is
// ended: no limit depends on what is inside of it.
const killTimeout = 10 * time.Second

// end kills the command for a reason; the first reason counts.
func (c *command) end(reason run.Kind) {
	c.mu.Lock()
	if c.killed == "" {
		c.killed = reason
	}
	c.mu.Unlock()
	if c.proc != nil {
		go func() { _ = c.proc.kill() }() // it blocks where the supervisor takes nothing
	}
	late := time.NewTimer(killTimeout)
	defer late.Stop()
	select {
	case <-c.ended:
	case <-c.done: // it was never started
	case <-c.box.ended:
	case <-late.C:
		c.box.abandon("a command cannot be killed")
	}
}

// ID implements execenv.Exec.
func (c *command) ID() string { return c.id }

// Output implements execenv.Exec.
func (c *command) Output(ctx context.Context, from int64, yield func(execenv.Chunk) error) error {
	return c.log.Follow(ctx, from, yield)
}

// Wait implements execenv.Exec.
func (c *command) Wait(ctx context.Context) (execenv.Result, error) {
	select {
	case <-c.done:
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.result, nil
	case <-ctx.Done():
		return execenv.Result{}, fault.Wrap(fault.Unavailable, ctx.Err(), "waiting for command %s was given up; it may still run", c.id)
	}
}

// Signal implements execenv.Exec.
func (c *command) Signal(_ context.Context, sig syscall.Signal) error {
	if sig <= 0 || sig > 64 {
		return fault.New(fault.Invalid, "signal %d does not exist", int(sig))
	}
	if c.over() {
		return nil
	}
	if err := c.proc.signal(sig); err != nil && !c.over() {
		return c.box.gone(err)
	}
	return nil
}

// Kill implements execenv.Exec.
func (c *command) Kill(ctx context.Context) error {
	if c.over() {
		return nil
	}
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		c.end(run.Cancelled)
	}()
	select {
	case <-killed:
		return nil
	case <-ctx.Done():
		return fault.Wrap(fault.Unavailable, ctx.Err(), "killing command %s was not waited for; it is being killed", c.id)
	}
}

func (c *command) over() bool {
	select {
	case <-c.done:
		return true
	default:
		return c.proc == nil
	}
}

// Resize implements execenv.Exec.
func (c *command) Resize(_ context.Context, size execenv.WindowSize) error {
	if c.spec.TTY == nil {
		return fault.New(fault.Invalid, "command %s has no terminal", c.id)
	}
	if size.Cols == 0 || size.Rows == 0 {
		return fault.New(fault.Invalid, "terminal size %dx%d has a zero", size.Cols, size.Rows)
	}
	if c.over() {
		return nil
	}
	return c.stdin.Resize(size)
}

// WriteStdin implements execenv.Exec.
func (c *command) WriteStdin(ctx context.Context, p []byte) (int, error) {
	if !c.spec.Stdin && c.spec.TTY == nil {
		return 0, fault.New(fault.Invalid, "command %s was started without stdin", c.id)
	}
	return c.stdin.Write(ctx, p)
}

// CloseStdin implements execenv.Exec.
func (c *command) CloseStdin(context.Context) error {
	c.stdin.Close()
	return nil
}

var _ execenv.Exec = (*command)(nil)

// statusOf is the wait status of an event, checked: what cannot be one is the
// word of a supervisor that is none any more.
func statusOf(e supervisor.Event) (unix.WaitStatus, bool) {
	status := unix.WaitStatus(e.Status)
	return status, e.Status <= 0xffff && (status.Exited() || status.Signaled())
}
