package docker

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/moby/moby/client"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/lifecycle"
	"github.com/agentdock/agentdock/internal/run"
)

// box is one sandbox.
type box struct {
	*lifecycle.Sandbox
	env *Environment

	freeMu sync.Mutex // one attempt to free at a time
	image  string     // its ID
	link   *link      // set before commands can run; nil if it was never there
	asked  bool       // whether the daemon was asked for a container
	// container is the daemon's ID of it, "" until it is known.
	container string

	mu       sync.Mutex
	oom      bool
	lost     string // why the sandbox was given up, if it was
	orphaned bool   // whether the daemon went away meanwhile
}

var _ lifecycle.Box = (*box)(nil)

func newBox(e *Environment, spec execenv.Spec) *box {
	e.promised.Add(writableBytes(spec.Limits))
	b := &box{env: e}
	b.Sandbox = lifecycle.NewSandbox(spec, b.hangUp)
	return b
}

func (b *box) dir() string        { return filepath.Join(b.env.sandboxesDir(), b.Spec.ID) }
func (b *box) controlDir() string { return filepath.Join(b.dir(), "control") }

// end records why the sandbox is gone, once its connection has closed: with the
// supervisor, every process in it has ended.
func (b *box) end() {
	<-b.link.closed
	seen := b.inspect()
	otherwise := run.Outcome{Kind: run.InfrastructureLost, Evidence: seen.words}
	var certain *run.Outcome
	b.mu.Lock()
	switch {
	case b.oom || seen.oom:
		o := b.outOfMemoryOutcome()
		certain = &o
	case b.lost != "":
		certain = &run.Outcome{Kind: run.InfrastructureLost, Evidence: b.lost}
	}
	b.mu.Unlock()
	b.End(certain, otherwise)
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
	known := b.lost != ""
	b.mu.Unlock()
	if (known || b.EndsHere()) && !b.env.daemon.memory {
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
	if b.Alive() != nil {
		return // whoever makes it finds out, or it is ending
	}
	b.mu.Lock()
	if b.lost == "" {
		b.lost = reason
	}
	b.mu.Unlock()
	b.hangUp()
}

// abandon is lose for what is not the daemon's doing.
func (b *box) abandon(reason string) {
	b.env.log.Error("ending a sandbox", "sandbox", b.Spec.ID, "reason", reason)
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
	if b.Alive() == nil { // else whoever makes it finds out, or it is ending
		b.hangUp()
	}
}

func (b *box) outOfMemoryOutcome() run.Outcome {
	return run.Outcome{
		Kind:      run.OutOfMemory,
		Evidence:  fmt.Sprintf("the Docker daemon told of a kill for the container's memory limit of %d bytes", b.Spec.Limits.MemoryBytes),
		LimitsHit: []run.Limit{run.LimitMemory},
	}
}

// Usage implements execenv.Sandbox.
func (b *box) Usage(ctx context.Context) (run.Usage, error) {
	if err := b.Alive(); err != nil {
		return run.Usage{}, err
	}
	e, err := b.link.usage()
	if err != nil {
		return run.Usage{}, b.gone(err)
	}
	return b.usageOf(ctx, e), nil
}

// gone turns the failure to reach a sandbox into what happened to it.
func (b *box) gone(cause error) error { return b.Unreachable(cause, 2*inspectTimeout) }
