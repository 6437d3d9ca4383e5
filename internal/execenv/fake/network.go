package fake

import (
	"context"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// SetNetwork implements execenv.Sandbox. There is no way out of memory.
func (b *box) SetNetwork(ctx context.Context, n run.Network) error {
	if err := execenv.ValidateNetwork(n); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.alive(ctx, "change the network"); err != nil {
		return err
	}
	if n.Open() {
		return fault.New(fault.Unsupported, "sandbox %s has no way out, and cannot be given one", b.spec.ID)
	}
	return nil
}

// NetworkUse implements execenv.Sandbox.
func (b *box) NetworkUse(ctx context.Context) (run.NetworkUse, error) {
	_, err := b.Info(ctx)
	return run.NetworkUse{}, err
}
