// Package fake is an Environment in memory, for fast tests of everything
// above the port: no host processes, no root, no files.
//
// A program is a Go function on a Proc, which offers what a process has:
// arguments, streams, files with quotas, children, memory, signals. The model
// keeps the port's promises for them as the real environments do (one outcome
// for every command, whole trees killed, limits named), so what a caller
// learns here holds there. It is no boundary: a Program can do what the test
// process can.
package fake

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// Config says what the environment offers. Its zero value is useful.
type Config struct {
	// Programs are found in /usr/bin of every image, besides the default ones
	// (Programs in this package). A name that is an absolute path, in a
	// directory of the root's, is where the program is instead.
	Programs map[string]Program
	// Images that exist; nil accepts every name.
	Images []string
	// Enforces lowers what Capabilities declares; nil is everything.
	Enforces *execenv.Enforces
	// CreateTakes is how long Create takes, so that it can be cut off.
	CreateTakes time.Duration
	// FailCreate and FailDestroy, if set, are asked half-way through; an
	// error fails the call there. A fault of FailCreate is what the caller gets.
	FailCreate, FailDestroy func(id string) error
}

// Environment keeps sandboxes in memory. Make it with New.
type Environment struct {
	cfg      Config
	programs map[string]Program

	mu    sync.Mutex
	boxes map[string]*box
}

var _ execenv.Environment = (*Environment)(nil)

// New makes an environment without sandboxes.
func New(cfg Config) *Environment {
	programs := Programs()
	maps.Copy(programs, cfg.Programs)
	return &Environment{cfg: cfg, programs: programs, boxes: map[string]*box{}}
}

// Capabilities declares what the model enforces. A program here uses no
// processor time of its own, so a limit of it holds.
func (e *Environment) Capabilities() execenv.Capabilities {
	caps := execenv.Capabilities{
		Name: "fake", Version: "1", Isolation: execenv.IsolationNone,
		Enforces: execenv.Enforces{CPU: true, Memory: true, PIDs: true, Disk: true, Inodes: true, Output: true, WallClock: true},
		Reports:  execenv.Reports{PIDs: true, Disk: true, Inodes: true, Output: true},
		TTY:      true, NetworkNone: true, Unprivileged: true, ReadOnlyRoot: true, DiskBeyondMemory: true,
		Pause: true,
	}
	if e.cfg.Enforces != nil {
		caps.Enforces = *e.cfg.Enforces
	}
	return caps
}

// Create makes a sandbox, or returns the one that spec asked for before.
func (e *Environment) Create(ctx context.Context, spec execenv.Spec) (execenv.Sandbox, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if err := e.Capabilities().CanReach(spec.Network); err != nil {
		return nil, err
	}
	if err := e.Capabilities().Supported(spec.Limits); err != nil {
		return nil, err
	}
	if e.cfg.Images != nil && !slices.Contains(e.cfg.Images, spec.Image) {
		return nil, fault.New(fault.NotFound, "image %q does not exist", spec.Image)
	}
	spec.Env, spec.Labels = maps.Clone(spec.Env), maps.Clone(spec.Labels)
	for {
		if err := ctx.Err(); err != nil {
			return nil, ended(err, "create sandbox %s", spec.ID)
		}
		e.mu.Lock()
		b, exists := e.boxes[spec.ID]
		if !exists {
			b = newBox(e, spec)
			e.boxes[spec.ID] = b
		}
		wait := b.created
		if b.destroying {
			wait = b.destroyDone
		}
		e.mu.Unlock()
		switch {
		case !exists:
			return e.build(ctx, b)
		case !b.spec.Equal(spec):
			return nil, fault.New(fault.Conflict, "sandbox %s exists with a different specification", spec.ID)
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ended(ctx.Err(), "create sandbox %s", spec.ID)
		}
		e.mu.Lock()
		ready := e.boxes[spec.ID] == b && b.ready && !b.destroying
		failed := e.boxes[spec.ID] == b && b.destroying && b.destroyErr != nil
		e.mu.Unlock()
		if ready {
			return b, nil
		}
		if failed {
			return nil, fault.New(fault.Conflict, "sandbox %s is not destroyed yet", spec.ID)
		}
	}
}

// build does the work of Create for a sandbox that is on record already.
func (e *Environment) build(ctx context.Context, b *box) (execenv.Sandbox, error) {
	var err error
	if e.cfg.CreateTakes > 0 {
		timer := time.NewTimer(e.cfg.CreateTakes)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			err = ended(ctx.Err(), "create sandbox %s", b.spec.ID)
		case <-b.abort:
		}
	}
	if err == nil && e.cfg.FailCreate != nil {
		if err = e.cfg.FailCreate(b.spec.ID); fault.Is(err, fault.Internal) {
			err = fault.Wrap(fault.Internal, err, "cannot create sandbox %s", b.spec.ID)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	defer close(b.created)
	if err == nil && b.destroying {
		err = fault.New(fault.Gone, "sandbox %s was destroyed while it was created", b.spec.ID)
	}
	if err != nil {
		if !b.destroying {
			delete(e.boxes, b.spec.ID)
		}
		return nil, err
	}
	b.ready = true
	b.startLifetime()
	return b, nil
}

// Attach returns the sandbox with that ID.
func (e *Environment) Attach(ctx context.Context, id string) (execenv.Sandbox, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b, ok := e.boxes[id]
	if !ok || !b.ready {
		return nil, fault.New(fault.NotFound, "sandbox %s does not exist", strings.ToValidUTF8(id, "?"))
	}
	return b, nil
}

// List names every sandbox, in the order of their IDs.
func (e *Environment) List(ctx context.Context) ([]execenv.Info, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var infos []execenv.Info
	for _, id := range slices.Sorted(maps.Keys(e.boxes)) {
		infos = append(infos, e.boxes[id].info())
	}
	return infos, nil
}

// Destroy ends and forgets a sandbox. The work goes on when ctx ends.
func (e *Environment) Destroy(ctx context.Context, id string) error {
	e.mu.Lock()
	b, ok := e.boxes[id]
	if !ok {
		e.mu.Unlock()
		return nil
	}
	done := b.destroyDone
	if !b.destroying || isClosed(done) { // nobody is at it
		if !b.destroying {
			close(b.abort)
		}
		b.destroying = true
		done = make(chan struct{})
		b.destroyDone = done
		go e.free(b, done)
	}
	e.mu.Unlock()
	select {
	case <-done:
	case <-ctx.Done():
		return ended(ctx.Err(), "wait until sandbox %s is destroyed", id)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return b.destroyErr
}

func (e *Environment) free(b *box, done chan struct{}) {
	<-b.created
	b.end(run.Outcome{Kind: run.Cancelled, Evidence: "sandbox destroyed"})
	var err error
	if e.cfg.FailDestroy != nil {
		if cause := e.cfg.FailDestroy(b.spec.ID); cause != nil {
			err = fault.Wrap(fault.Internal, cause, "cannot destroy sandbox %s", b.spec.ID)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	b.destroyErr = err
	if err == nil {
		delete(e.boxes, b.spec.ID)
	}
	close(done)
}

// Lose ends a sandbox as a crash of its infrastructure would.
func (e *Environment) Lose(id string) {
	e.mu.Lock()
	b := e.boxes[id]
	e.mu.Unlock()
	if b != nil {
		b.end(run.Outcome{Kind: run.InfrastructureLost, Evidence: "sandbox was lost"})
	}
}

// Spoil makes what a paused sandbox would be resumed from useless.
func (e *Environment) Spoil(id string) {
	e.mu.Lock()
	b := e.boxes[id]
	e.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spoiled = true
}

// Close ends everything at once, as the end of the process would.
func (e *Environment) Close() {
	e.mu.Lock()
	boxes := slices.Collect(maps.Values(e.boxes))
	e.boxes = map[string]*box{}
	e.mu.Unlock()
	for _, b := range boxes {
		b.end(run.Outcome{Kind: run.InfrastructureLost, Evidence: "environment closed"})
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// ended is the error of a call whose context ended first.
func ended(cause error, format string, args ...any) error {
	return fault.Wrap(fault.Unavailable, cause, "cannot "+format, args...)
}
