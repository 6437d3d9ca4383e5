package lifecycle

import (
	"context"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
)

// Pause implements execenv.Sandbox for an environment that has none.
func (s *Sandbox) Pause(context.Context, time.Duration) error { return s.noPause() }

// Resume implements execenv.Sandbox for an environment that has none.
func (s *Sandbox) Resume(context.Context, time.Duration) error { return s.noPause() }

func (s *Sandbox) noPause() error {
	return fault.New(fault.Unsupported, "cannot pause or resume sandbox %s: nothing is there to pause sandboxes with in this environment", s.Spec.ID)
}

// Paused says that the sandbox is paused and is kept for so long, unless it has
// ended or is wanted by nobody.
func (s *Sandbox) Paused(keep time.Duration) bool {
	return s.turn(execenv.StateRunning, execenv.StatePaused, keep)
}

// Resumed says that it runs again, for so long.
func (s *Sandbox) Resumed(lifetime time.Duration) bool {
	return s.turn(execenv.StatePaused, execenv.StateRunning, lifetime)
}

func (s *Sandbox) turn(from, to execenv.State, lifetime time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != from || s.expired {
		return false
	}
	s.state = to
	s.live(time.Now().Add(lifetime))
	return true
}

// SetLifetime is Extend, also for a sandbox that is paused.
func (s *Sandbox) SetLifetime(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.expired {
		s.live(time.Now().Add(d))
	}
}

// Awake fails with Conflict while the sandbox is paused.
func (s *Sandbox) Awake() error {
	if err := s.Alive(); fault.Is(err, fault.Conflict) {
		return err
	}
	return nil
}

// NoStarts waits until no command is half begun, and keeps others from beginning
// until allow is called. In between Running leaves nothing out.
func (s *Sandbox) NoStarts() (allow func()) {
	s.starts.Lock()
	return s.starts.Unlock
}

// StopClocks lets no time of commands pass until StartClocks.
func (s *Sandbox) StopClocks() {
	for _, c := range s.all() {
		c.clock.hold()
	}
}

// StartClocks lets the time of commands pass again.
func (s *Sandbox) StartClocks() {
	for _, c := range s.all() {
		c.clock.goOn()
	}
}

// Running are the programs of the commands that have begun and whose result is not
// known yet.
func (s *Sandbox) Running() (programs []Program) {
	for _, c := range s.all() {
		select {
		case <-c.begun:
		default:
			continue
		}
		if c.program != nil && !c.over() {
			programs = append(programs, c.program)
		}
	}
	return programs
}
