package lifecycle

import (
	"context"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// SetNetwork implements execenv.Sandbox for an environment without a way out.
func (s *Sandbox) SetNetwork(_ context.Context, n run.Network) error {
	if err := execenv.ValidateNetwork(n); err != nil {
		return err
	}
	if err := s.Alive(); err != nil {
		return err
	}
	if n.Open() {
		return fault.New(fault.Unsupported, "sandbox %s has no way out, and cannot be given one", s.Spec.ID)
	}
	return nil
}

// NetworkUse implements execenv.Sandbox for an environment without a way out.
func (s *Sandbox) NetworkUse(context.Context) (run.NetworkUse, error) {
	return run.NetworkUse{}, s.known()
}
