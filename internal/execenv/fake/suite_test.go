package fake_test

import (
	"testing"

	"github.com/agentdock/agentdock/internal/execenv/execenvtest"
	"github.com/agentdock/agentdock/internal/execenv/fake/simprobe"
)

func TestContract(t *testing.T) {
	execenvtest.Run(t, simprobe.Harness(nil))
}
