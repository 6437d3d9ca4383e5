package fake

import (
	"context"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/run"
)

// Pause implements execenv.Sandbox.
func (b *box) Pause(ctx context.Context, keep time.Duration) error {
	if err := execenv.ValidateLifetime(keep); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.paused {
		if err := b.alive(ctx, "pause"); err != nil {
			return err
		}
		b.paused = true
		for _, c := range b.commands {
			if c.result == nil {
				c.clock.Stop()
				c.left = time.Until(c.strikes)
			}
		}
	}
	b.live(time.Now().Add(keep))
	return nil
}

// Resume implements execenv.Sandbox.
func (b *box) Resume(ctx context.Context, lifetime time.Duration) error {
	if err := execenv.ValidateLifetime(lifetime); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.paused && b.outcome == nil {
		b.paused = false
		if b.spoiled {
			b.endLocked(run.Outcome{Kind: run.InfrastructureLost, Evidence: "its state is spoiled"})
		}
		for _, c := range b.commands {
			if c.result == nil {
				c.runClock()
			}
		}
		b.wake()
	}
	if err := b.alive(ctx, "resume"); err != nil {
		return err
	}
	b.live(time.Now().Add(lifetime))
	return nil
}
