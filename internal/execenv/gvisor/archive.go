package gvisor

import (
	"context"
	"io"
	"os"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/transfer"
)

// PutArchive implements execenv.Sandbox. The stream is unpacked in the sandbox by
// the helper, as the unprivileged user.
func (b *box) PutArchive(ctx context.Context, dir string, r io.Reader) error {
	return transfer.Put(ctx, b.helper, dir, r)
}

// GetArchive implements execenv.Sandbox.
func (b *box) GetArchive(ctx context.Context, req execenv.ArchiveRequest, w io.Writer) error {
	return transfer.Get(ctx, b.helper, req, w)
}

func (b *box) helper(args []string, stdin, stdout *os.File) (transfer.Tool, error) {
	t, err := b.startTool(args, stdin, stdout)
	if err != nil {
		return nil, err
	}
	return t, nil
}
