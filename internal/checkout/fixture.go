package checkout

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/agentdock/agentdock/fixtures"
	"github.com/agentdock/agentdock/internal/checkout/reason"
	"github.com/agentdock/agentdock/internal/dirpack"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
)

// Repositories puts what a request names into the workspace of a sandbox, which
// must be untouched. A Checkout does, and a Fixture.
type Repositories interface {
	Into(ctx context.Context, sb execenv.Sandbox, req Request) (Result, error)
}

// Fixture puts the sample repository in place of every one that is asked for, so
// that everything works without a network and credentials (REQUIREMENTS B6).
type Fixture struct{}

// Into looks at the request as a Checkout does, and leaves it at that. There is
// no commit.
func (Fixture) Into(ctx context.Context, sb execenv.Sandbox, req Request) (Result, error) {
	return Result{}, reason.Line(putFixture(ctx, sb, req))
}

func putFixture(ctx context.Context, sb execenv.Sandbox, req Request) error {
	if err := req.Validate(); err != nil {
		return err
	}
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := dirpack.PackFS(ctx, fixtures.SampleRepo(), w)
		packed <- err
		w.CloseWithError(err)
	}()
	putErr := sb.PutArchive(ctx, "", r)
	r.CloseWithError(errNotTaken)
	packErr := <-packed
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case fault.Is(putErr, fault.Exhausted):
		return doesNotFit(putErr)
	case putErr != nil:
		return fmt.Errorf("cannot send the sample repository into the sandbox: %w", putErr)
	case errors.Is(packErr, errNotTaken):
		return nil
	}
	return packErr
}
