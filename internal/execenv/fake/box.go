package fake

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// endedKept bounds how many ended commands a sandbox remembers.
const endedKept = 1000

// box is a sandbox. One lock guards its files, processes and commands.
type box struct {
	env       *Environment
	spec      execenv.Spec
	createdAt time.Time
	created   chan struct{} // closed when Create is through with it, either way
	abort     chan struct{} // closed when Destroy begins

	// Guarded by env.mu.
	ready       bool
	destroying  bool
	destroyDone chan struct{}
	destroyErr  error

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced when anything below changes
	over     chan struct{} // closed when outcome is set
	outcome  *run.Outcome  // why it ended
	lifetime *time.Timer
	expires  time.Time
	paused   bool
	spoiled  bool // what it would be resumed from
	files    *fileSystem
	procs    map[int]*Proc
	lastPID  int
	commands map[string]*command
	order    []string // of commands
	lastExec int
	memory   int64
	peak     int64
}

func newBox(e *Environment, spec execenv.Spec) *box {
	return &box{
		env: e, spec: spec, createdAt: time.Now(),
		created: make(chan struct{}), abort: make(chan struct{}),
		changed: make(chan struct{}), over: make(chan struct{}),
		files: newFileSystem(spec.Limits, e.programs),
		procs: map[int]*Proc{}, lastPID: 1, commands: map[string]*command{},
	}
}

func (b *box) wake() {
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *box) startLifetime() {
	if b.spec.Lifetime <= 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.live(b.createdAt.Add(b.spec.Lifetime))
}

// live makes the sandbox end at a time. A timer that strikes while the sandbox
// is extended comes too early.
func (b *box) live(until time.Time) {
	if b.lifetime != nil {
		b.lifetime.Stop()
	}
	b.expires = until
	b.lifetime = time.AfterFunc(time.Until(until), func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if !time.Now().Before(b.expires) {
			b.endLocked(run.Outcome{Kind: run.WallClock, Evidence: "lifetime of the sandbox passed", LimitsHit: []run.Limit{run.LimitWallClock}})
		}
	})
}

// Extend implements execenv.Sandbox.
func (b *box) Extend(ctx context.Context, lifetime time.Duration) error {
	if err := execenv.ValidateLifetime(lifetime); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.alive(ctx, "extend the lifetime"); err != nil {
		return err
	}
	b.live(time.Now().Add(lifetime))
	return nil
}

// end ends the sandbox and every command in it, once.
func (b *box) end(o run.Outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.endLocked(o)
}

func (b *box) endLocked(o run.Outcome) {
	if b.outcome != nil {
		return
	}
	b.outcome = &o
	close(b.over)
	if b.lifetime != nil {
		b.lifetime.Stop()
	}
	for _, c := range b.commands {
		c.end(o)
	}
	b.wake()
}

// alive refuses work in a sandbox that ended.
func (b *box) alive(ctx context.Context, what string) error {
	if err := ctx.Err(); err != nil {
		return ended(err, "%s in sandbox %s", what, b.spec.ID)
	}
	if b.outcome != nil {
		return fault.New(fault.Gone, "sandbox %s has ended: %s", b.spec.ID, b.outcome)
	}
	if b.paused {
		return fault.New(fault.Conflict, "cannot %s in sandbox %s: it is paused", what, b.spec.ID)
	}
	return nil
}

func (b *box) ID() string { return b.spec.ID }

// info is called with env.mu held.
func (b *box) info() execenv.Info {
	b.mu.Lock()
	defer b.mu.Unlock()
	info := execenv.Info{
		ID: b.spec.ID, State: execenv.StateCreating, Image: b.spec.Image, ImageDigest: "fake:" + b.spec.Image,
		Labels: maps.Clone(b.spec.Labels), Limits: b.spec.Limits, CreatedAt: b.createdAt,
	}
	switch {
	case !b.expires.IsZero():
		info.ExpiresAt = b.expires
	case b.spec.Lifetime > 0:
		info.ExpiresAt = b.createdAt.Add(b.spec.Lifetime)
	}
	switch {
	case b.destroying:
		info.State = execenv.StateDestroying
	case b.outcome != nil:
		o := *b.outcome
		info.State, info.Outcome = execenv.StateEnded, &o
	case b.ready && b.paused:
		info.State = execenv.StatePaused
	case b.ready:
		info.State = execenv.StateRunning
	}
	return info
}

func (b *box) Info(ctx context.Context) (execenv.Info, error) {
	b.env.mu.Lock()
	defer b.env.mu.Unlock()
	if b.env.boxes[b.spec.ID] != b {
		return execenv.Info{}, fault.New(fault.NotFound, "sandbox %s does not exist", b.spec.ID)
	}
	return b.info(), nil
}

func (b *box) Usage(ctx context.Context) (run.Usage, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.alive(ctx, "measure usage"); err != nil {
		return run.Usage{}, err
	}
	return b.usage(), nil
}

func (b *box) usage() run.Usage {
	ws := b.files.workspace
	return run.Usage{
		MemoryBytes: b.memory, PeakMemoryBytes: b.peak, PIDs: int64(len(b.procs)),
		DiskBytes: ws.bytes, Inodes: ws.inodes,
	}
}

func (b *box) Exec(ctx context.Context, spec execenv.ExecSpec) (execenv.Exec, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if err := b.env.Capabilities().CanEndAt(spec.EndAtLimit); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if spec.ID != "" {
		if c, ok := b.commands[spec.ID]; ok && b.outcome == nil {
			return c, nil
		}
	}
	if err := b.alive(ctx, "start a command"); err != nil {
		return nil, err
	}
	if spec.ID == "" {
		b.lastExec++
		spec.ID = fmt.Sprintf("exec-%d", b.lastExec)
	}
	c := newCommand(b, spec)
	b.remember(c)
	c.start()
	return c, nil
}

// remember puts a command on record and forgets the oldest ended ones.
func (b *box) remember(c *command) {
	b.commands[c.spec.ID] = c
	b.order = append(b.order, c.spec.ID)
	for i := 0; i < len(b.order) && len(b.order) > endedKept; {
		if old := b.commands[b.order[i]]; old.result == nil {
			i++
			continue
		}
		delete(b.commands, b.order[i])
		b.order = append(b.order[:i], b.order[i+1:]...)
	}
}

// Execs implements execenv.Sandbox.
func (b *box) Execs(context.Context) ([]execenv.ExecInfo, error) {
	b.env.mu.Lock()
	known := b.env.boxes[b.spec.ID] == b
	b.env.mu.Unlock()
	if !known {
		return nil, fault.New(fault.NotFound, "sandbox %s does not exist", b.spec.ID)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var infos []execenv.ExecInfo
	for _, id := range b.order {
		c := b.commands[id]
		infos = append(infos, execenv.ExecInfo{
			ID: id, Argv: c.spec.Argv, Dir: c.spec.Dir, TTY: c.spec.TTY != nil, Stdin: c.spec.Stdin, StartedAt: c.started, Result: c.result,
		})
	}
	return infos, nil
}

func (b *box) AttachExec(ctx context.Context, id string) (execenv.Exec, error) {
	b.env.mu.Lock()
	known := b.env.boxes[b.spec.ID] == b
	b.env.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if c, ok := b.commands[id]; ok && known {
		return c, nil
	}
	return nil, fault.New(fault.NotFound, "command %q does not exist in sandbox %s", id, b.spec.ID)
}
