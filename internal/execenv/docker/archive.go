package docker

import (
	"bytes"
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
	box     *box
	proc    *process
	errRead *os.File
	message chan string
	ended   chan struct{} // closed once event and err are set
	event   supervisor.Event
	err     error
}

func (b *box) helper(args []string, stdin, stdout *os.File) (transfer.Tool, error) {
	files := []*os.File{stdin, stdout, nil}
	defer func() {
		for _, f := range files {
			if f != nil {
				f.Close()
			}
		}
	}()
	if err := b.alive(); err != nil {
		return nil, err
	}
	errRead, errWrite, err := os.Pipe()
	if err != nil {
		return nil, fault.Wrap(fault.Internal, err, "cannot start the guest helper")
	}
	files[2] = errWrite
	for i, f := range files {
		if f != nil {
			continue
		}
		if files[i], err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
			errRead.Close()
			return nil, fault.Wrap(fault.Internal, err, "cannot start the guest helper")
		}
	}
	t := &tool{box: b, errRead: errRead, message: make(chan string, 1), ended: make(chan struct{})}
	t.proc, err = b.link.begin(launch{
		argv: append([]string{guestPath}, args...), dir: "/", files: files,
		env: []string{"PATH=" + execenv.Path, "HOME=" + execenv.Workspace},
	})
	if err == nil {
		err = t.proc.started()
	}
	if err != nil {
		errRead.Close()
		var notStarted *errNotStarted
		if errors.As(err, &notStarted) {
			return nil, fault.Wrap(fault.Internal, err, "cannot start the guest helper")
		}
		return nil, b.gone(err)
	}
	go func() {
		text, _ := io.ReadAll(io.LimitReader(errRead, 4096))
		_, _ = io.Copy(io.Discard, errRead)
		t.message <- string(bytes.ToValidUTF8(bytes.TrimSpace(text), []byte("?")))
	}()
	go func() {
		t.event, t.err = t.proc.wait()
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
	defer t.errRead.Close()
	_ = t.errRead.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
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

// Said implements transfer.Tool.
func (t *tool) Said() string { return <-t.message }

// Kill implements transfer.Tool.
func (t *tool) Kill() error { return t.proc.kill() }
