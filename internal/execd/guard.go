// Package execd is the execution service around an Environment: it enforces
// what the operator allows whatever a caller asks for, ends what has lived too
// long, retries what could not be freed, and serves it all (Run).
package execd

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// Policy is what the operator allows.
type Policy struct {
	// Defaults fill in limits a caller did not ask for.
	Defaults run.Limits
	// Ceiling bounds every limit a caller asks for. A zero field does not.
	Ceiling run.Limits
	// MaxLifetime ends every sandbox, whatever its Spec says. Required.
	MaxLifetime time.Duration
	// MaxSandboxes bounds the sandboxes of which anything is left. 0: no bound.
	MaxSandboxes int
	// MaxExecs bounds the commands running at once in one sandbox. 0: no bound.
	MaxExecs int
}

// Guard is an Environment that holds another one to a Policy.
//
// A limit above the ceiling is lowered to it; the ceiling is the operator's
// and not the caller's, and Info.Limits shows what is enforced.
//
// A lifetime above MaxLifetime is lowered to it. A lifetime a caller asked for
// is the inner environment's to keep: the sandbox ends and stays listed (P8).
// MaxLifetime is the execution service's own wall clock (REQUIREMENTS A5h):
// when it passes, the sandbox is destroyed, whatever state it is in. So is one
// that its environment has not ended some time (lifetimeGrace) after it should
// have. Info.ExpiresAt shows the clock that strikes first.
//
// Nothing depends on a timer that could be missed: sweep looks at what is
// there and at the time, and does what is due.
type Guard struct {
	inner  execenv.Environment
	policy Policy
	log    *slog.Logger

	// closing ends creations, dying ends everything else of the guard.
	closing, dying context.Context
	beginClose     context.CancelFunc
	die            context.CancelFunc
	wake           chan struct{}  // a sweep is due earlier than planned
	creating       sync.WaitGroup // Create calls
	background     sync.WaitGroup // watchers of commands, destroys of sweep
	closeOnce      sync.Mutex

	mu        sync.Mutex
	closed    bool
	boxes     map[string]*record
	condemned map[string]*sentence
}

var _ execenv.Environment = (*Guard)(nil)

// record is what the guard knows of a sandbox. It exists from before the
// sandbox does until nothing of it is left.
type record struct {
	// asked is the Spec as the caller gave it; nil for a sandbox found.
	asked *execenv.Spec
	// expires is when it ends, hard when it is destroyed in any case.
	expires, hard time.Time
	pending       int // Create calls running
	made          bool
	epoch         int // counts successful creates; tells a sandbox from its successor

	starting int // Exec calls running
	running  map[string]struct{}
}

// NewGuard wraps inner. Call Adopt before use and Run beside it.
func NewGuard(inner execenv.Environment, policy Policy, log *slog.Logger) *Guard {
	g := &Guard{
		inner: inner, policy: policy, log: log,
		wake:      make(chan struct{}, 1),
		boxes:     map[string]*record{},
		condemned: map[string]*sentence{},
	}
	g.closing, g.beginClose = context.WithCancel(context.Background())
	g.dying, g.die = context.WithCancel(context.Background())
	return g
}

// Capabilities are the inner environment's.
func (g *Guard) Capabilities() execenv.Capabilities { return g.inner.Capabilities() }

// Create is the port's. Two Specs with one ID are compared as they were asked
// for, so that lowering both to the ceiling hides no Conflict.
func (g *Guard) Create(ctx context.Context, asked execenv.Spec) (execenv.Sandbox, error) {
	allowed := g.allow(asked)
	if err := allowed.Validate(); err != nil {
		return nil, err
	}
	b, err := g.reserve(asked, allowed.Lifetime)
	if err != nil {
		return nil, err
	}
	defer g.creating.Done()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(g.closing, cancel)()
	sb, err := g.inner.Create(ctx, allowed)

	g.mu.Lock()
	defer g.mu.Unlock()
	b.pending--
	if err != nil {
		if b.pending == 0 && !b.made && g.boxes[asked.ID] == b {
			delete(g.boxes, asked.ID)
		}
		return nil, err
	}
	b.made = true
	b.epoch++
	g.boxes[asked.ID] = b
	g.poke()
	if g.closed { // Close destroys it
		return nil, shuttingDown()
	}
	return &guarded{Sandbox: sb, g: g}, nil
}

// allow is what the operator makes of a Spec. A default that cannot be enforced
// is left out, and not promised; a limit that the caller asked for stays, and is
// refused then (P3).
func (g *Guard) allow(s execenv.Spec) execenv.Spec {
	s.Limits = s.Limits.Or(g.inner.Capabilities().Enforces.Allow(g.policy.Defaults)).Clamp(g.policy.Ceiling)
	s.Lifetime = min(s.Lifetime, g.policy.MaxLifetime)
	return s
}

// reserve takes a place for a sandbox before it exists. On success the caller
// owes creating.Done and one pending.
func (g *Guard) reserve(asked execenv.Spec, lifetime time.Duration) (*record, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, shuttingDown()
	}
	if _, ends := g.condemned[asked.ID]; ends {
		return nil, fault.New(fault.Unavailable, "sandbox %s is being destroyed; try again when it is gone", asked.ID)
	}
	b := g.boxes[asked.ID]
	switch {
	case b == nil:
		if most := g.policy.MaxSandboxes; most > 0 && len(g.boxes) >= most {
			return nil, fault.New(fault.Exhausted, "%d sandboxes exist, as many as this service allows; destroy one or try again later", most)
		}
		b = &record{running: map[string]struct{}{}}
		g.boxes[asked.ID] = b
	case b.asked != nil && !b.asked.Equal(asked):
		return nil, fault.New(fault.Conflict, "sandbox %s exists with a different specification", asked.ID)
	}
	if !b.made && b.pending == 0 {
		b.asked, b.hard = &asked, time.Now().Add(g.policy.MaxLifetime)
		b.expires = b.hard
		if lifetime > 0 {
			b.expires = time.Now().Add(lifetime)
		}
	}
	b.pending++
	g.creating.Add(1)
	return b, nil
}

func shuttingDown() error {
	return fault.New(fault.Unavailable, "the execution service is shutting down")
}

// Attach is the port's.
func (g *Guard) Attach(ctx context.Context, id string) (execenv.Sandbox, error) {
	sb, err := g.inner.Attach(ctx, id)
	if err != nil {
		return nil, err
	}
	return &guarded{Sandbox: sb, g: g}, nil
}

// List is the port's, with the guard's own expiry.
func (g *Guard) List(ctx context.Context) ([]execenv.Info, error) {
	infos, err := g.inner.List(ctx)
	for i := range infos {
		infos[i].ExpiresAt = g.expiry(infos[i])
	}
	return infos, err
}

// Destroy is the port's. What could not be freed is tried again by the guard,
// too.
func (g *Guard) Destroy(ctx context.Context, id string) error {
	g.mu.Lock()
	epoch := g.epochOf(id)
	g.mu.Unlock()
	err := g.inner.Destroy(ctx, id)
	g.destroyed(id, epoch, err)
	return err
}

func (g *Guard) epochOf(id string) int {
	if b := g.boxes[id]; b != nil {
		return b.epoch
	}
	return 0
}

// destroyed takes note of how a destroy ended.
func (g *Guard) destroyed(id string, epoch int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil {
		g.condemn(id, time.Now()).failed(time.Now())
		g.poke()
		return
	}
	delete(g.condemned, id)
	if b := g.boxes[id]; b != nil && b.epoch == epoch {
		if b.pending == 0 {
			delete(g.boxes, id)
		} else {
			b.made = false // the Create that is running decides
		}
	}
}

// expiry is the earliest of all clocks a sandbox has.
func (g *Guard) expiry(info execenv.Info) time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := sooner(g.hardEnd(info), info.ExpiresAt)
	if b := g.boxes[info.ID]; b != nil {
		at = sooner(at, b.expires)
	}
	return at
}

// due is when the guard destroys a sandbox. Called with the lock held.
func (g *Guard) due(info execenv.Info) time.Time {
	at := g.hardEnd(info)
	if info.State == execenv.StateEnded {
		return at // its owner may still want to see how it ended
	}
	if !info.ExpiresAt.IsZero() {
		at = sooner(at, info.ExpiresAt.Add(lifetimeGrace))
	}
	if b := g.boxes[info.ID]; b != nil && b.expires.Before(b.hard) {
		at = sooner(at, b.expires.Add(lifetimeGrace))
	}
	return at
}

// hardEnd is when MaxLifetime has passed. Called with the lock held.
func (g *Guard) hardEnd(info execenv.Info) time.Time {
	var at time.Time
	if !info.CreatedAt.IsZero() {
		at = info.CreatedAt.Add(g.policy.MaxLifetime)
	}
	if b := g.boxes[info.ID]; b != nil {
		at = sooner(at, b.hard)
	}
	return at
}

// sooner is the earlier of two times, of which those that are zero are never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

// poke asks for a sweep now. It never blocks.
func (g *Guard) poke() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}
