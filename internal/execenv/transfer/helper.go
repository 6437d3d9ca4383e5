package transfer

import (
	"bytes"
	"context"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/fault"
)

// helper is a run of the guest helper and what it says on its stderr.
type helper struct {
	Tool
	stderr  *os.File
	message chan string // gets it, bounded, once
}

// begin starts the helper and closes the files it is given; nil is an empty one.
func begin(start Start, args []string, stdin, stdout *os.File) (*helper, error) {
	theirs := []*os.File{stdin, stdout}
	defer func() {
		for _, f := range theirs {
			if f != nil {
				f.Close()
			}
		}
	}()
	stderr, write, err := os.Pipe()
	if err != nil {
		return nil, fault.Wrap(fault.Internal, err, "cannot start the guest helper")
	}
	theirs = append(theirs, write)
	if stdin == nil {
		// Not the null device, whose owner a runtime might change.
		empty, end, err := os.Pipe()
		if err != nil {
			stderr.Close()
			return nil, fault.Wrap(fault.Internal, err, "cannot start the guest helper")
		}
		end.Close()
		theirs = append(theirs, empty)
		stdin = empty
	}
	if stdout == nil {
		stdout = write
	}
	tool, err := start(args, []*os.File{stdin, stdout, write})
	if err != nil {
		stderr.Close()
		return nil, err
	}
	h := &helper{Tool: tool, stderr: stderr, message: make(chan string, 1)}
	go func() {
		defer stderr.Close()
		text, _ := io.ReadAll(io.LimitReader(stderr, 4096))
		_, _ = io.Copy(io.Discard, stderr)
		h.message <- string(bytes.ToValidUTF8(bytes.TrimSpace(text), []byte("?")))
	}()
	return h, nil
}

// Wait is Tool's. What the helper left to be read is read soon then, or never.
func (h *helper) Wait(ctx context.Context) (unix.WaitStatus, error) {
	status, err := h.Tool.Wait(ctx)
	_ = h.stderr.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	return status, err
}
