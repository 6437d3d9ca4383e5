package fake

import (
	"context"
	"slices"
	"syscall"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/outlog"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// pipeBytes is how much stdin holds while the program does not read.
const pipeBytes = 64 << 10

// command is an Exec. Its fields are guarded by box.mu.
type command struct {
	box     *box
	spec    execenv.ExecSpec
	log     *outlog.Log
	started time.Time
	first   *Proc
	limit   time.Duration
	clock   *time.Timer // strikes at strikes; left is what is left while it stands still
	strikes time.Time
	left    time.Duration
	hit     map[run.Limit]bool
	tty     *execenv.WindowSize

	input       []byte
	inputClosed bool

	result *execenv.Result
	done   chan struct{} // closed when result is set
}

func newCommand(b *box, spec execenv.ExecSpec) *command {
	keep := b.spec.Limits.OutputBytes
	if spec.OutputBytes > 0 {
		keep = min(keep, spec.OutputBytes)
	}
	c := &command{
		box: b, spec: spec, log: outlog.New(keep), started: time.Now(),
		hit: map[run.Limit]bool{}, inputClosed: !spec.Stdin, done: make(chan struct{}),
	}
	if spec.TTY != nil {
		size := *spec.TTY
		c.tty = &size
	}
	return c
}

// start starts the first process, or ends the command as not started.
func (c *command) start() {
	b := c.box
	env := execenv.Environ(b.spec, c.spec)
	cwd, err := execenv.WorkspacePath(c.spec.Dir)
	var program Program
	if err == nil {
		err = b.files.isDir(cwd)
	}
	if err == nil {
		program, err = b.lookUp(c.spec.Argv[0], cwd, env)
	}
	if err == nil {
		c.first, err = b.spawn(c, nil, program, c.spec.Argv, env, cwd)
	}
	if err != nil {
		c.end(run.Outcome{Kind: run.NotStarted, Evidence: err.Error()})
		return
	}
	c.limit = b.spec.Limits.WallClock
	if c.spec.Timeout > 0 {
		c.limit = min(c.limit, c.spec.Timeout)
	}
	c.left = c.limit
	c.runClock()
}

// runClock ends the command when what is left of its time has passed.
func (c *command) runClock() {
	c.strikes = time.Now().Add(c.left)
	c.clock = time.AfterFunc(c.left, func() {
		c.box.mu.Lock()
		defer c.box.mu.Unlock()
		if c.box.paused || time.Now().Before(c.strikes) {
			return // it struck while it was being stopped
		}
		c.end(run.Outcome{Kind: run.WallClock, Evidence: "wall clock limit of " + c.limit.String() + " passed", LimitsHit: []run.Limit{run.LimitWallClock}})
	})
}

// touch notes that the command has reached a limit, and ends it if it was to.
func (c *command) touch(l run.Limit) {
	c.hit[l] = true
	if c.first != nil && slices.Contains(c.spec.EndAtLimit, l) {
		c.end(run.Outcome{Kind: l.EndsAt(), Evidence: "it reached the limit of " + string(l)})
	}
}

// end ends the command, once: everything in it dies.
func (c *command) end(o run.Outcome) {
	if c.result != nil {
		return
	}
	b := c.box
	if c.clock != nil {
		c.clock.Stop()
	}
	for _, p := range b.procs {
		if p.command == c {
			p.die()
		}
	}
	if c.log.Truncated() {
		c.hit[run.LimitOutput] = true
	}
	for _, l := range o.LimitsHit {
		c.hit[l] = true
	}
	o.LimitsHit = nil
	for _, l := range []run.Limit{run.LimitMemory, run.LimitPIDs, run.LimitDisk, run.LimitInodes, run.LimitOutput, run.LimitWallClock} {
		if c.hit[l] {
			o.LimitsHit = append(o.LimitsHit, l)
		}
	}
	c.result = &execenv.Result{
		Outcome:     o,
		StdoutBytes: c.log.Seen(execenv.Stdout), StderrBytes: c.log.Seen(execenv.Stderr),
		Truncated: c.log.Truncated(), StartedAt: c.started, Duration: max(time.Since(c.started), 1), Usage: b.usage(),
	}
	c.input, c.inputClosed = nil, true
	c.log.Close()
	close(c.done)
	b.wake()
}

func (c *command) ID() string { return c.spec.ID }

func (c *command) Output(ctx context.Context, from int64, yield func(execenv.Chunk) error) error {
	return c.log.Follow(ctx, from, yield)
}

func (c *command) Wait(ctx context.Context) (execenv.Result, error) {
	select {
	case <-c.done:
	default:
		select {
		case <-c.done:
		case <-ctx.Done():
			return execenv.Result{}, ended(ctx.Err(), "wait for command %s", c.spec.ID)
		}
	}
	r := *c.result
	r.Outcome.LimitsHit = slices.Clone(r.Outcome.LimitsHit)
	return r, nil
}

func (c *command) WriteStdin(ctx context.Context, p []byte) (int, error) {
	b := c.box
	b.mu.Lock()
	defer b.mu.Unlock()
	written := 0
	for {
		if written > 0 && len(p) == 0 {
			return written, nil
		}
		if c.inputClosed {
			return written, fault.New(fault.Gone, "stdin of command %s is closed", c.spec.ID)
		}
		if len(p) == 0 {
			return 0, nil
		}
		if err := ctx.Err(); err != nil {
			return written, ended(err, "write to stdin of command %s", c.spec.ID)
		}
		if c.tty != nil {
			n := c.typed(p)
			written, p = written+n, p[n:]
			continue
		}
		if room := min(pipeBytes-len(c.input), len(p)); room > 0 {
			c.input = append(c.input, p[:room]...)
			written, p = written+room, p[room:]
			b.wake()
			continue
		}
		changed := b.changed
		b.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		b.mu.Lock()
	}
}

// typed takes what is written to a terminal, up to and with a character that
// does something.
func (c *command) typed(p []byte) int {
	defer c.box.wake()
	const interrupt, endOfFile = 3, 4
	for i, ch := range p {
		switch ch {
		case interrupt:
			c.input = append(c.input, p[:i]...)
			c.first.signal(syscall.SIGINT)
			return i + 1
		case endOfFile:
			c.input = append(c.input, p[:i]...)
			c.inputClosed = true
			return i + 1
		}
	}
	c.input = append(c.input, p...)
	return len(p)
}

func (c *command) CloseStdin(context.Context) error {
	c.box.mu.Lock()
	defer c.box.mu.Unlock()
	if !c.inputClosed {
		c.inputClosed = true
		c.box.wake()
	}
	return nil
}

func (c *command) Signal(ctx context.Context, sig syscall.Signal) error {
	c.box.mu.Lock()
	defer c.box.mu.Unlock()
	if c.result == nil {
		if c.box.paused {
			return c.asleep()
		}
		c.first.signal(sig)
	}
	return nil
}

func (c *command) asleep() error {
	return fault.New(fault.Conflict, "command %s is in a sandbox that is paused", c.spec.ID)
}

func (c *command) Kill(context.Context) error {
	c.box.mu.Lock()
	defer c.box.mu.Unlock()
	if c.result == nil && c.box.paused {
		return c.asleep()
	}
	c.end(run.Outcome{Kind: run.Cancelled, Evidence: "killed by the caller"})
	return nil
}

func (c *command) Resize(ctx context.Context, size execenv.WindowSize) error {
	c.box.mu.Lock()
	defer c.box.mu.Unlock()
	switch {
	case size.Cols == 0 || size.Rows == 0:
		return fault.New(fault.Invalid, "terminal size %dx%d has a zero", size.Cols, size.Rows)
	case c.result != nil:
		return nil
	case c.tty == nil:
		return fault.New(fault.Invalid, "command %s has no terminal", c.spec.ID)
	case c.box.paused:
		return c.asleep()
	}
	*c.tty = size
	c.first.signal(syscall.SIGWINCH)
	return nil
}
