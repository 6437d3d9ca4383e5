package allinone

import (
	"context"
	"fmt"
	"time"

	"github.com/agentdock/agentdock/internal/enginesocket"
	"github.com/agentdock/agentdock/internal/service"
)

// lookAgain is how long an engine that starts later can be seen: nothing tells
// us of it.
const lookAgain = time.Second

func hideEngines(hidden func([]string)) error {
	found, err := enginesocket.Here().Hide()
	if len(found) > 0 {
		hidden(found)
	}
	return err
}

// watchEngines hides what comes later. What it cannot hide ends the platform.
func watchEngines(hidden func([]string)) *service.Part {
	return service.Loop("the look-out for container engines", func(ctx context.Context) error {
		tick := time.NewTicker(lookAgain)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
			if err := hideEngines(hidden); err != nil {
				return fmt.Errorf("cannot go on: %w", err)
			}
		}
	})
}
