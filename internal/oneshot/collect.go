package oneshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/agentdock/agentdock/internal/artifact"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
)

// collect writes what matches below req.Out. What is returned is complete, also
// with an error.
func collect(ctx context.Context, sb execenv.Sandbox, req Request) ([]artifact.Artifact, error) {
	if err := os.MkdirAll(req.Out, 0o755); err != nil {
		return nil, fmt.Errorf("cannot make the directory for artifacts: %w", err)
	}
	out, err := os.OpenRoot(req.Out)
	if err != nil {
		return nil, fmt.Errorf("cannot open the directory for artifacts: %w", err)
	}
	defer out.Close()
	r, w := io.Pipe()
	got := make(chan error, 1)
	go func() {
		err := sb.GetArchive(ctx, execenv.ArchiveRequest{Patterns: req.Artifacts, MaxBytes: req.ArtifactLimits.TotalBytes}, w)
		got <- err
		w.CloseWithError(err)
	}()
	artifacts, err := artifact.Collect(r, out, req.Artifacts, req.ArtifactLimits)
	if err == nil {
		// What follows the end of the archive is padding; the end of the call
		// is what says that the archive was whole.
		_, err = io.Copy(io.Discard, r)
	}
	r.CloseWithError(errEnough)
	getErr := <-got
	if getErr != nil && !errors.Is(getErr, errEnough) {
		if fault.Is(getErr, fault.Exhausted) {
			return artifacts, fault.Wrap(fault.Exhausted, getErr, "the artifacts are more than %d bytes; raise --artifact-bytes or ask for less", req.ArtifactLimits.TotalBytes)
		}
		return artifacts, getErr
	}
	return artifacts, err
}

var errEnough = errors.New("no more of the archive is wanted")
