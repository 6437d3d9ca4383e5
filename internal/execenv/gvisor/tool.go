package gvisor

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
)

// tool is a run of the guest helper in the sandbox, as the unprivileged user.
type tool struct {
	box     *box
	proc    *process
	message chan string // what it said on its stderr, bounded
	errRead *os.File
	ended   chan toolEnd
}

type toolEnd struct {
	status unix.WaitStatus
	err    error
}

// startTool starts the helper. It closes the files it is given.
func (b *box) startTool(args []string, stdin, stdout *os.File) (*tool, error) {
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
		if f == nil {
			if files[i], err = emptyFile(); err != nil {
				errRead.Close()
				return nil, fault.Wrap(fault.Internal, err, "cannot start the guest helper")
			}
		}
	}
	p, err := b.start(launch{
		area: tools, argv: append([]string{guestPath}, args...), dir: "/", files: files,
		env: []string{"PATH=" + execenv.Path, "HOME=" + execenv.Workspace},
	})
	if err != nil {
		errRead.Close()
		var notStarted *errNotStarted
		if errors.As(err, &notStarted) {
			return nil, fault.Wrap(fault.Internal, err, "cannot start the guest helper")
		}
		var lost *errLostAtStart
		if errors.As(err, &lost) {
			return nil, b.lost(err)
		}
		return nil, err
	}
	t := &tool{box: b, proc: p, errRead: errRead, message: make(chan string, 1), ended: make(chan toolEnd, 1)}
	go func() {
		text, _ := io.ReadAll(io.LimitReader(errRead, 4096))
		_, _ = io.Copy(io.Discard, errRead)
		t.message <- string(bytes.ToValidUTF8(bytes.TrimSpace(text), []byte("?")))
	}()
	go func() {
		status, err := p.wait()
		t.ended <- toolEnd{status, err}
	}()
	return t, nil
}

// Wait blocks until the helper has ended and nothing is left of it. When ctx
// ends first, it is killed; if that does not happen in time, the sandbox is.
func (t *tool) Wait(ctx context.Context) (unix.WaitStatus, error) {
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
	defer t.errRead.Close()
	if e.err == nil {
		e.err = t.box.insist("a transfer's processes cannot be killed", t.proc.clear)
	}
	_ = t.errRead.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if e.err != nil {
		return 0, t.box.lost(e.err)
	}
	t.proc.release()
	if err := ctx.Err(); err != nil && !e.status.Exited() {
		return 0, fault.Wrap(fault.Unavailable, err, "the transfer was given up")
	}
	return e.status, nil
}

// Said implements transfer.Tool.
func (t *tool) Said() string { return <-t.message }

// Kill implements transfer.Tool.
func (t *tool) Kill() error { return t.proc.kill() }
