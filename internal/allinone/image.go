package allinone

import (
	"context"
	"fmt"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/image"
	"github.com/agentdock/agentdock/internal/image/ingest"
)

// ensureImage makes the default image if it is wanted and there is none, and
// says what it is at. Another image has to be there.
func ensureImage(ctx context.Context, dir, name string, say func(string)) error {
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
	say("making the default image, once, in about a minute")
	_, _, err = ingest.BuildDefault(ctx, w, ingest.BuildOptions{Options: ingest.Options{Progress: say}})
	if err != nil {
		return fmt.Errorf("cannot make the default image: %w", err)
	}
	return nil
}
