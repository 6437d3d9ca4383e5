package docker

import (
	"context"
	"fmt"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
)

// live makes the sandbox end at a time. Called with the lock held.
func (b *box) live(until time.Time) {
	if b.lifetime != nil {
		b.lifetime.Stop() // if it has struck already, expire sees that it is not its time
	}
	b.expires = until
	b.lifetime = time.AfterFunc(time.Until(until), b.expire)
}

// expire ends the sandbox if its lifetime has passed. A timer that struck while
// the sandbox was extended comes too early, and another one is set.
func (b *box) expire() {
	b.mu.Lock()
	if b.state != execenv.StateRunning || time.Now().Before(b.expires) {
		b.mu.Unlock()
		return
	}
	b.expired = true
	b.mu.Unlock()
	b.hangUp()
}

// Extend implements execenv.Sandbox.
func (b *box) Extend(_ context.Context, lifetime time.Duration) error {
	if err := execenv.ValidateLifetime(lifetime); err != nil {
		return err
	}
	if err := b.alive(); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state != execenv.StateRunning || b.expired {
		return fault.New(fault.Gone, "sandbox %s is ending", b.spec.ID)
	}
	b.live(time.Now().Add(lifetime))
	return nil
}

// stopLife lets no timer strike any more.
func (b *box) stopLife() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lifetime != nil {
		b.lifetime.Stop()
	}
}

// lived says how long the sandbox was allowed to live. Called with the lock held.
func (b *box) lived() string {
	return fmt.Sprintf("the sandbox's lifetime of %s had passed", b.expires.Sub(b.created).Round(time.Millisecond))
}
