package gvisor

import (
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/transfer"
	"github.com/agentdock/agentdock/internal/fault"
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

// tool is a run of the guest helper. It implements transfer.Tool.
type tool struct {
	box   *box
	proc  *process
	ended chan toolEnd
}

type toolEnd struct {
	status unix.WaitStatus
	err    error
}

// helper starts the guest helper in the sandbox, as the unprivileged user.
func (b *box) helper(args []string, files []*os.File) (transfer.Tool, error) {
	b.gate.busy.RLock() // until Wait: a transfer cannot be paused
	started := false
	defer func() {
		if !started {
			b.gate.busy.RUnlock()
		}
	}()
	if err := b.Alive(); err != nil {
		return nil, err
	}
	p, err := b.start(launch{
		area: tools, argv: append([]string{guestPath}, args...), dir: "/", files: files,
		env: []string{"PATH=" + execenv.Path, "HOME=" + execenv.Workspace},
	})
	var notStarted *errNotStarted
	var lost *errLostAtStart
	switch {
	case errors.As(err, &notStarted):
		return nil, fault.Wrap(fault.Internal, err, "cannot start the guest helper")
	case errors.As(err, &lost):
		return nil, b.lost(err)
	case err != nil:
		return nil, err
	}
	started = true
	t := &tool{box: b, proc: p, ended: make(chan toolEnd, 1)}
	go func() {
		status, err := p.wait()
		t.ended <- toolEnd{status, err}
	}()
	return t, nil
}

// Wait implements transfer.Tool. If a kill does not happen in time, the sandbox is
// ended.
func (t *tool) Wait(ctx context.Context) (unix.WaitStatus, error) {
	defer t.box.gate.busy.RUnlock()
	var e toolEnd
	select {
	case e = <-t.ended:
	case <-ctx.Done():
		ended := make(chan toolEnd, 1)
		_ = t.box.insist("a transfer cannot be ended", func() error {
			err := t.proc.kill()
			if err == nil {
				ended <- <-t.ended
			}
			return err
		})
		select {
		case e = <-ended:
		case e = <-t.ended:
		}
	}
	if e.err == nil {
		e.err = t.box.insist("a transfer's processes cannot be killed", t.proc.clear)
	}
	if e.err != nil {
		return 0, t.box.lost(e.err)
	}
	t.proc.release()
	if err := ctx.Err(); err != nil && !e.status.Exited() {
		return 0, fault.Wrap(fault.Unavailable, err, "the transfer was given up")
	}
	return e.status, nil
}

// Kill implements transfer.Tool.
func (t *tool) Kill() error { return t.proc.kill() }
