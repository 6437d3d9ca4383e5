package lifecycle

import (
	"context"
	"fmt"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
)

// live makes the sandbox end at a time. Called with the lock held.
func (s *Sandbox) live(until time.Time) {
	if s.lifetime != nil {
		s.lifetime.Stop() // if it has struck already, strike sees that it is not its time
	}
	s.expires = until
	s.lifetime = time.AfterFunc(time.Until(until), s.strike)
}

// strike ends the sandbox if its lifetime has passed. A timer that struck while
// the sandbox was extended comes too early, and another one is set.
func (s *Sandbox) strike() {
	s.mu.Lock()
	if s.state != execenv.StateRunning && s.state != execenv.StatePaused || time.Now().Before(s.expires) {
		s.mu.Unlock()
		return
	}
	s.expired = true
	s.mu.Unlock()
	s.expire()
}

// Extend implements execenv.Sandbox.
func (s *Sandbox) Extend(_ context.Context, lifetime time.Duration) error {
	if err := execenv.ValidateLifetime(lifetime); err != nil {
		return err
	}
	if err := s.Alive(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != execenv.StateRunning || s.expired {
		return fault.New(fault.Gone, "sandbox %s is ending", s.Spec.ID)
	}
	s.live(time.Now().Add(lifetime))
	return nil
}

// StopClock lets no lifetime end any more: the sandbox is being freed.
func (s *Sandbox) StopClock() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lifetime != nil {
		s.lifetime.Stop()
	}
}

// lived says how long the sandbox was allowed to live. Called with the lock held.
func (s *Sandbox) lived() string {
	return fmt.Sprintf("the sandbox's lifetime of %s had passed", s.expires.Sub(s.created).Round(time.Millisecond))
}
