package allinone

import (
	"context"
	"fmt"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/image"
	"github.com/agentdock/agentdock/internal/image/ingest"
)

// ensureImage makes the default image if it is wanted and there is none.
// Another one has to be there.
func ensureImage(ctx context.Context, dir, name string, phase func(string) func()) error {
	s, err := image.Open(dir)
	if err == nil {
		if _, err = s.Resolve(name); err == nil {
			return nil
		}
	}
	if name != image.Default || !fault.Is(err, fault.NotFound) {
		return fmt.Errorf("cannot start: %w", err)
	}
	w, err := image.OpenWriter(ctx, dir)
	if err != nil {
		return err
	}
	ended := phase("making the default image, once, in about a minute")
	defer ended()
	_, _, err = ingest.BuildDefault(ctx, w, ingest.BuildOptions{Options: ingest.Options{Progress: func(what string) { phase(what)() }}})
	if err != nil {
		return fmt.Errorf("cannot make the default image: %w", err)
	}
	return nil
}
