package docker

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/transfer"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/guest/supervisor"
)

// PutArchive implements execenv.Sandbox.
func (b *box) PutArchive(ctx context.Context, dir string, r io.Reader) error {
	return transfer.Put(ctx, b.helper, dir, r)
}

// GetArchive implements execenv.Sandbox.
func (b *box) GetArchive(ctx context.Context, req execenv.ArchiveRequest, w io.Writer) error {
	return transfer.Get(ctx, b.helper, req, w)
}

// tool is a run of the guest helper. It implements transfer.Tool.
type tool struct {
	box   *box
	proc  *process
	ended chan struct{} // closed once event and err are set
	event supervisor.Event
	err   error
}

// helper starts the guest helper in the sandbox.
func (b *box) helper(args []string, files []*os.File) (transfer.Tool, error) {
	if err := b.Alive(); err != nil {
		return nil, err
	}
	proc, err := b.link.begin(launch{
		argv: append([]string{guestPath}, args...), dir: "/", files: files,
		env: []string{"PATH=" + execenv.Path, "HOME=" + execenv.Workspace},
	})
	if err == nil {
		err = proc.started()
	}
	var notStarted *errNotStarted
	switch {
	case errors.As(err, &notStarted):
		return nil, fault.Wrap(fault.Internal, err, "cannot start the guest helper")
	case err != nil:
		return nil, b.gone(err)
	}
	t := &tool{box: b, proc: proc, ended: make(chan struct{})}
	go func() {
		t.event, t.err = proc.wait()
		close(t.ended)
	}()
	return t, nil
}

// Wait implements transfer.Tool.
func (t *tool) Wait(ctx context.Context) (unix.WaitStatus, error) {
	select {
	case <-t.ended:
	case <-ctx.Done():
		_ = t.Kill()
		select {
		case <-t.ended:
		case <-time.After(killTimeout):
			t.box.abandon("a transfer cannot be ended")
			<-t.ended
		}
	}
	if t.err != nil {
		return 0, t.box.gone(t.err)
	}
	status, ok := statusOf(t.event)
	if !ok {
		t.box.abandon("its supervisor gave no wait status")
		return 0, t.box.gone(errLinkClosed)
	}
	if err := ctx.Err(); err != nil && !status.Exited() {
		return 0, fault.Wrap(fault.Unavailable, err, "the transfer was given up")
	}
	return status, nil
}

// Kill implements transfer.Tool.
func (t *tool) Kill() error { return t.proc.kill() }
