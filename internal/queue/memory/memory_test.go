package memory_test

import (
	"testing"

	"github.com/agentdock/agentdock/internal/queue"
	"github.com/agentdock/agentdock/internal/queue/memory"
	"github.com/agentdock/agentdock/internal/queue/queuetest"
)

func TestContract(t *testing.T) {
	queuetest.Run(t, queuetest.Harness{
		Broker: func(*testing.T) queuetest.Broker {
			q := memory.New()
			return queuetest.Broker{Open: func() (queue.Queue, error) { return q, nil }}
		},
	})
}
