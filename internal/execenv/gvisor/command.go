package gvisor

import (
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/gvisor/answer"
	"github.com/agentdock/agentdock/internal/execenv/outlog"
	"github.com/agentdock/agentdock/internal/execenv/stdio"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// keepEnded is how many ended commands of a sandbox stay readable.
const keepEnded = 64

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
	proc      *process        // nil if the program could not be started
	refused   answer.Refusals // set once nothing is left of it
	places    []answer.Place  // set with it

	stdin stdio.Input
	ended chan struct{} // closed once the first process has ended
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
	if err := ctx.Err(); err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "the command was given up before it started")
	}
	c, created, err := b.register(spec)
	if err != nil {
		return nil, err
	}
	if created {
		c.start()
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

// Execs implements execenv.Sandbox.
func (b *box) Execs(context.Context) ([]execenv.ExecInfo, error) {
	if err := b.known(); err != nil {
		return nil, err
	}
	var infos []execenv.ExecInfo
	for _, c := range b.commands() {
		select {
		case <-c.started:
		default:
			continue // whether it will be one is not known yet
		}
		if c.startErr != nil {
			continue
		}
		info := execenv.ExecInfo{
			ID: c.id, Argv: c.spec.Argv, Dir: c.spec.Dir, TTY: c.spec.TTY != nil, Stdin: c.spec.Stdin, StartedAt: c.startTime,
		}
		select {
		case <-c.done:
			result := c.result
			info.Result = &result
		default:
		}
		infos = append(infos, info)
	}
	slices.SortStableFunc(infos, func(a, b execenv.ExecInfo) int { return a.StartedAt.Compare(b.StartedAt) })
	return infos, nil
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

// drop forgets a command that was never started.
func (b *box) drop(c *command) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.execs, c.id)
}

// start starts the program and what follows it to its end.
func (c *command) start() {
	defer close(c.started)
	c.startTime = time.Now()
	dir, _ := execenv.WorkspacePath(c.spec.Dir) // validated
	io, typing, err := c.newStdio()
	if err != nil {
		c.fail(fault.Wrap(fault.Internal, err, "cannot start the command"))
		return
	}
	c.proc, err = c.box.start(launch{
		area: programs, argv: c.spec.Argv, env: execenv.Environ(c.box.spec, c.spec), dir: dir,
		files: io.Theirs, tty: c.spec.TTY != nil,
	})
	io.CloseTheirs()
	var notStarted *errNotStarted
	var lost *errLostAtStart
	switch {
	case errors.As(err, &lost):
		io.CloseOurs()
		c.finish(c.lost(err))
	case errors.As(err, &notStarted):
		io.CloseOurs()
		// A sandbox that lost one of its host processes for its memory limit
		// cannot start any more, and that is not the program's doing.
		if stats, err := c.box.group.Stats(); err == nil && stats.OOMKills > 0 {
			c.box.abandon("it went over its memory limit")
			c.finish(outOfMemory(stats, c.box.spec.Limits), c.box.usageOf(stats))
			return
		}
		c.finish(run.Outcome{Kind: run.NotStarted, Evidence: notStarted.reason}, run.Usage{})
	case err != nil:
		io.CloseOurs()
		c.fail(err)
	default:
		c.stdin.Open(io.In, typing)
		go c.follow(io)
	}
}

// fail ends a command that left nothing behind and has no outcome.
func (c *command) fail(err error) {
	c.startErr = err
	c.box.drop(c)
	c.log.Close()
	close(c.done)
}

// follow takes the command to its end.
func (c *command) follow(io *stdio.Files) {
	timer := time.AfterFunc(c.limit, func() { c.end(run.WallClock) })
	defer timer.Stop()
	readers := io.Read(c.log)
	go c.watchLimits()
	status, err := c.proc.wait()
	timer.Stop()
	close(c.ended)
	if err == nil {
		c.clear()
	}
	c.stdin.Shut()
	readers.Finish()
	io.CloseOurs()
	c.log.Close()
	if err != nil {
		c.finish(c.lost(err))
		return
	}
	c.finish(c.decide(status))
}

// clear kills what the first process left behind. If that does not work, the
// sandbox is ended, and with it what was left.
func (c *command) clear() {
	if c.box.insist("a command's processes cannot be killed", c.proc.clear) != nil {
		return
	}
	// The program's end is known. If the sandbox ends just now, what else would
	// be said about it is not, and that does not change the end.
	if total, places, err := c.proc.account(); err == nil {
		c.refused, c.proc.after, c.places = total.Since(c.proc.before), total, places
	}
	c.proc.release()
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

// end kills the command for a reason; the first reason counts. The sandbox's
// kernel is asked first. If it does not do it in time, whatever the cause, the
// sandbox is ended: no limit depends on its good will.
func (c *command) end(reason run.Kind) {
	c.mu.Lock()
	if c.killed == "" {
		c.killed = reason
	}
	c.mu.Unlock()
	_ = c.box.insist("a command cannot be killed", func() error {
		err := c.proc.kill()
		if err == nil {
			select {
			case <-c.ended:
			case <-c.box.ended:
			}
		}
		select {
		case <-c.ended: // by itself, and its processes are being cleared
			return nil
		default:
			return err
		}
	})
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
func (c *command) Signal(ctx context.Context, sig syscall.Signal) error {
	if sig <= 0 || sig > 64 {
		return fault.New(fault.Invalid, "signal %d does not exist", int(sig))
	}
	if c.over() {
		return nil
	}
	err := await(ctx, func() error { return c.proc.signal(sig, false) })
	if err != nil && !c.over() {
		return c.box.lost(err)
	}
	return nil
}

// await runs f, and leaves it behind when ctx ends first: a call to a sandbox's
// kernel takes as long as that kernel likes.
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

// Kill implements execenv.Exec.
func (c *command) Kill(ctx context.Context) error {
	if c.over() {
		return nil
	}
	err := await(ctx, func() error {
		c.end(run.Cancelled)
		return nil
	})
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "killing command %s was not waited for; it is being killed", c.id)
	}
	return nil
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
	if err := c.stdin.Resize(size); err != nil {
		return err
	}
	_ = c.proc.signal(unix.SIGWINCH, true)
	return nil
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
