// Package lifecycle is how sandboxes and commands live, whatever runs them on this
// host: each is made once however often it is asked for, is found by its ID, has a
// time to live, ends for one reason, and is remembered for a while.
//
// An environment embeds a Sandbox in a type of its own, of which it keeps a
// Registry, and gives each Command a Program. What those are made of, how they
// are killed and what their end means is the environment's.
package lifecycle

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// Sandbox is the life of one sandbox, and its commands. It is most of an
// execenv.Sandbox.
type Sandbox struct {
	Spec    execenv.Spec
	created time.Time
	expire  func() // ends the sandbox, whose lifetime has passed

	made    chan struct{} // closed once creation has succeeded or failed
	makeErr error         // set before made is closed
	gaveUp  chan struct{} // closed once nobody wants it
	ended   chan struct{} // closed once nothing runs in it; outcome is set then

	starts sync.RWMutex // held while a command is begun: see NoStarts

	mu      sync.Mutex
	digest  string
	state   execenv.State
	freed   bool
	outcome *run.Outcome
	// lifetime is nil without one, and strikes at expires. It is stopped when the
	// sandbox is freed.
	lifetime *time.Timer
	expires  time.Time
	expired  bool
	commands map[string]*Command
	retired  []string // IDs of ended commands, oldest first
}

// NewSandbox makes the life of a sandbox that is to be made. Expire is called when
// its lifetime has passed, and has to end it.
func NewSandbox(spec execenv.Spec, expire func()) *Sandbox {
	return &Sandbox{
		Spec: spec, created: time.Now(), expire: expire,
		made: make(chan struct{}), gaveUp: make(chan struct{}), ended: make(chan struct{}),
		state: execenv.StateCreating, commands: map[string]*Command{},
	}
}

func (s *Sandbox) base() *Sandbox { return s }

// SetDigest says which image it has.
func (s *Sandbox) SetDigest(digest string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.digest = digest
}

// Start says that commands can run from now on. It fails if the sandbox has ended
// meanwhile, or nobody wants it any more.
func (s *Sandbox) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.outcome != nil:
		return fmt.Errorf("it ended at once: %s", s.outcome.Evidence)
	case s.state != execenv.StateCreating:
		return fault.New(fault.Gone, "sandbox %s was destroyed while it was created", s.Spec.ID)
	}
	s.state = execenv.StateRunning
	if s.Spec.Lifetime > 0 {
		s.live(s.created.Add(s.Spec.Lifetime))
	}
	return nil
}

// GiveUp marks the sandbox as wanted by nobody.
func (s *Sandbox) GiveUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != execenv.StateDestroying {
		s.state = execenv.StateDestroying
		close(s.gaveUp)
	}
}

// GivenUp is closed once nobody wants the sandbox.
func (s *Sandbox) GivenUp() <-chan struct{} { return s.gaveUp }

// End records why the sandbox has ended: what is certain, if anything is; else
// what was asked for here; else the rest. It is called once.
func (s *Sandbox) End(certain *run.Outcome, otherwise run.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case certain != nil:
		s.outcome = certain
	case s.state == execenv.StateDestroying:
		s.outcome = &run.Outcome{Kind: run.Cancelled, Evidence: "the sandbox was destroyed"}
	case s.expired:
		s.outcome = &run.Outcome{Kind: run.WallClock, Evidence: s.lived(), LimitsHit: []run.Limit{run.LimitWallClock}}
	default:
		s.outcome = &otherwise
	}
	if s.state == execenv.StateRunning || s.state == execenv.StatePaused {
		s.state = execenv.StateEnded
	}
	close(s.ended)
}

// Ended is closed once nothing runs in the sandbox.
func (s *Sandbox) Ended() <-chan struct{} { return s.ended }

// Outcome is why the sandbox has ended, if it has.
func (s *Sandbox) Outcome() (run.Outcome, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.outcome == nil {
		return run.Outcome{}, false
	}
	return *s.outcome, true
}

// EndsHere says whether the sandbox is ending because it was destroyed, or has
// lived for its time.
func (s *Sandbox) EndsHere() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state == execenv.StateDestroying || s.expired
}

// Freed says that nothing is left of the sandbox.
func (s *Sandbox) Freed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.freed = true
}

// ID implements execenv.Sandbox.
func (s *Sandbox) ID() string { return s.Spec.ID }

// Info implements execenv.Sandbox.
func (s *Sandbox) Info(context.Context) (execenv.Info, error) {
	if err := s.known(); err != nil {
		return execenv.Info{}, err
	}
	return s.info(), nil
}

func (s *Sandbox) info() execenv.Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	info := execenv.Info{
		ID: s.Spec.ID, State: s.state, Image: s.Spec.Image, ImageDigest: s.digest,
		Labels: s.Spec.Labels, Limits: s.Spec.Limits, CreatedAt: s.created,
	}
	switch {
	case !s.expires.IsZero():
		info.ExpiresAt = s.expires
	case s.Spec.Lifetime > 0: // it is being created
		info.ExpiresAt = s.created.Add(s.Spec.Lifetime)
	}
	if s.state == execenv.StateEnded {
		info.Outcome = s.outcome
	}
	return info
}

// known fails with NotFound once nothing is left of the sandbox.
func (s *Sandbox) known() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.freed {
		return fault.New(fault.NotFound, "sandbox %s does not exist any more", s.Spec.ID)
	}
	return nil
}

// Alive fails with Gone unless commands can run, and with Conflict if they could
// when the sandbox is resumed.
func (s *Sandbox) Alive() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.state {
	case execenv.StateRunning:
		return nil
	case execenv.StatePaused:
		return fault.New(fault.Conflict, "sandbox %s is paused; resume it first", s.Spec.ID)
	case execenv.StateEnded:
		return fault.New(fault.Gone, "sandbox %s has ended: %s", s.Spec.ID, s.outcome.Kind)
	default:
		return fault.New(fault.Gone, "sandbox %s is being destroyed", s.Spec.ID)
	}
}

// Unreachable turns the failure to reach a sandbox into what happened to it, which
// may be known only a little later.
func (s *Sandbox) Unreachable(cause error, within time.Duration) error {
	select {
	case <-s.ended:
	case <-time.After(within):
		return fault.Wrap(fault.Internal, cause, "cannot reach sandbox %s", s.Spec.ID)
	}
	outcome, _ := s.Outcome()
	return fault.Wrap(fault.Gone, cause, "sandbox %s has ended: %s", s.Spec.ID, outcome.Kind)
}
