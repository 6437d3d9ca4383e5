package docker

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/moby/moby/client"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// keepEnded is how many ended commands of a sandbox stay readable.
const keepEnded = 64

// box is one sandbox. It implements execenv.Sandbox.
type box struct {
	env     *Environment
	spec    execenv.Spec
	created time.Time

	made    chan struct{} // closed once creation has succeeded or failed
	makeErr error         // set before made is closed

	gaveUp     chan struct{} // closed once Destroy was called
	giveUpOnce sync.Once

	ended chan struct{} // closed once no process of it is left; outcome is set then

	freeMu sync.Mutex // one attempt to free at a time
	image  string     // its ID
	link   *link      // set before made is closed; nil if it was never there
	asked  bool       // whether the daemon was asked for a container
	// container is the daemon's ID of it, "" until it is known.
	container string

	mu sync.Mutex
	// lifetime is nil without one, and strikes at expires. It is stopped when the
	// sandbox is freed.
	lifetime *time.Timer
	expires  time.Time
	state    execenv.State
	freed    bool
	expired  bool
	oom      bool
	lost     string // why the sandbox was given up, if it was
	orphaned bool   // whether the daemon went away meanwhile
	outcome  *run.Outcome
	execs    map[string]*command
	finished []string // IDs of ended execs, oldest first
}

func newBox(e *Environment, spec execenv.Spec) *box {
	return &box{
		env: e, spec: spec, created: time.Now(),
		made: make(chan struct{}), gaveUp: make(chan struct{}), ended: make(chan struct{}),
		state: execenv.StateCreating, execs: map[string]*command{},
	}
}

func (b *box) dir() string        { return filepath.Join(b.env.sandboxesDir(), b.spec.ID) }
func (b *box) controlDir() string { return filepath.Join(b.dir(), "control") }

// end records why the sandbox is gone, once its connection has closed: with the
// supervisor, every process in it has ended.
func (b *box) end() {
	<-b.link.closed
	seen := b.inspect()
	b.mu.Lock()
	defer b.mu.Unlock()
	outcome := run.Outcome{Kind: run.InfrastructureLost, Evidence: seen.words}
	switch {
	case b.oom || seen.oom:
		outcome = b.outOfMemoryOutcome()
	case b.lost != "":
		outcome.Evidence = b.lost
	case b.state == execenv.StateDestroying:
		outcome = run.Outcome{Kind: run.Cancelled, Evidence: "the sandbox was destroyed"}
	case b.expired:
		outcome = run.Outcome{
			Kind:      run.WallClock,
			Evidence:  b.lived(),
			LimitsHit: []run.Limit{run.LimitWallClock},
		}
	}
	b.outcome = &outcome
	if b.state == execenv.StateRunning {
		b.state = execenv.StateEnded
	}
	close(b.ended)
}

// inspected is what the daemon says of a container that has ended.
type inspected struct {
	oom   bool
	words string
}

// inspectTimeout bounds how long the end of a sandbox waits for the daemon's word.
const inspectTimeout = 5 * time.Second

func (b *box) inspect() inspected {
	b.mu.Lock()
	known := b.lost != "" || b.state == execenv.StateDestroying || b.expired
	b.mu.Unlock()
	if known && !b.env.daemon.memory {
		return inspected{}
	}
	ctx, cancel := context.WithTimeout(context.Background(), inspectTimeout)
	defer cancel()
	for {
		result, err := b.env.engine.ContainerInspect(ctx, b.name(), client.ContainerInspectOptions{})
		if err != nil {
			return inspected{words: fmt.Sprintf("the container's first process ended, and the Docker daemon cannot say why: %v", err)}
		}
		if state := result.Container.State; !state.Running {
			return inspected{oom: state.OOMKilled, words: fmt.Sprintf(
				"the container ended with status %d by the Docker daemon's account, and nobody here ended it", state.ExitCode)}
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// hangUp closes the connection, with which the sandbox ends.
func (b *box) hangUp() {
	if b.link != nil {
		_ = b.link.conn.Close()
	}
}

// lose ends a sandbox that cannot be used any more.
func (b *box) lose(reason string) {
	select {
	case <-b.made:
	default:
		return // whoever makes it finds out
	}
	b.mu.Lock()
	if b.lost == "" && b.state == execenv.StateRunning {
		b.lost = reason
	}
	b.mu.Unlock()
	b.hangUp()
}

// abandon is lose for what is not the daemon's doing.
func (b *box) abandon(reason string) {
	b.env.log.Error("ending a sandbox", "sandbox", b.spec.ID, "reason", reason)
	b.lose(reason)
	ctx, cancel := context.WithTimeout(context.Background(), inspectTimeout)
	defer cancel()
	_, _ = b.env.engine.ContainerKill(ctx, b.name(), client.ContainerKillOptions{Signal: "KILL"})
}

// outOfMemory is called when the daemon has told of a kill for want of memory.
func (b *box) outOfMemory() {
	b.mu.Lock()
	b.oom = true
	b.mu.Unlock()
	b.hangUp()
}

func (b *box) outOfMemoryOutcome() run.Outcome {
	return run.Outcome{
		Kind:      run.OutOfMemory,
		Evidence:  fmt.Sprintf("the Docker daemon told of a kill for the container's memory limit of %d bytes", b.spec.Limits.MemoryBytes),
		LimitsHit: []run.Limit{run.LimitMemory},
	}
}

// giveUp marks the sandbox as wanted by nobody.
func (b *box) giveUp() {
	b.giveUpOnce.Do(func() {
		b.mu.Lock()
		b.state = execenv.StateDestroying
		b.mu.Unlock()
		close(b.gaveUp)
	})
}

func (b *box) commands() []*command {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]*command, 0, len(b.execs))
	for _, c := range b.execs {
		all = append(all, c)
	}
	return all
}

// ID implements execenv.Sandbox.
func (b *box) ID() string { return b.spec.ID }

// Info implements execenv.Sandbox.
func (b *box) Info(context.Context) (execenv.Info, error) {
	if err := b.known(); err != nil {
		return execenv.Info{}, err
	}
	return b.info(), nil
}

// known fails with NotFound once nothing is left of the sandbox.
func (b *box) known() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.freed {
		return fault.New(fault.NotFound, "sandbox %s does not exist any more", b.spec.ID)
	}
	return nil
}

func (b *box) info() execenv.Info {
	b.mu.Lock()
	defer b.mu.Unlock()
	info := execenv.Info{
		ID: b.spec.ID, State: b.state, Image: b.spec.Image, ImageDigest: b.image,
		Labels: b.spec.Labels, Limits: b.spec.Limits, CreatedAt: b.created,
	}
	switch {
	case !b.expires.IsZero():
		info.ExpiresAt = b.expires
	case b.spec.Lifetime > 0:
		info.ExpiresAt = b.created.Add(b.spec.Lifetime)
	}
	if b.state == execenv.StateEnded {
		info.Outcome = b.outcome
	}
	return info
}

// Usage implements execenv.Sandbox.
func (b *box) Usage(ctx context.Context) (run.Usage, error) {
	if err := b.alive(); err != nil {
		return run.Usage{}, err
	}
	e, err := b.link.usage()
	if err != nil {
		return run.Usage{}, b.gone(err)
	}
	return b.usageOf(ctx, e), nil
}

// alive fails with Gone unless commands can run.
func (b *box) alive() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch b.state {
	case execenv.StateRunning:
		return nil
	case execenv.StateEnded:
		return fault.New(fault.Gone, "sandbox %s has ended: %s", b.spec.ID, b.outcome.Kind)
	default:
		return fault.New(fault.Gone, "sandbox %s is being destroyed", b.spec.ID)
	}
}

// gone turns the failure to reach a sandbox into what happened to it.
func (b *box) gone(cause error) error {
	select {
	case <-b.ended:
	case <-time.After(2 * inspectTimeout):
		return fault.Wrap(fault.Internal, cause, "cannot reach sandbox %s", b.spec.ID)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return fault.Wrap(fault.Gone, cause, "sandbox %s has ended: %s", b.spec.ID, b.outcome.Kind)
}
