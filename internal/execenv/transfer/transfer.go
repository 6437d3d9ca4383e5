// Package transfer moves archives in and out of a sandbox as streams, through the
// helper that packs and unpacks them inside.
package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/stdio"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/guest"
)

// Tool is a run of the guest helper in a sandbox, as the unprivileged user.
type Tool interface {
	// Wait blocks until the helper has ended and nothing is left of it. When ctx
	// ends first, it is killed.
	Wait(ctx context.Context) (unix.WaitStatus, error)
	// Kill kills it.
	Kill() error
}

// Start starts the helper with these arguments and standard files, which stay its
// caller's.
type Start func(args []string, files []*os.File) (Tool, error)

// most is what Get packs when its caller names nothing.
const most = 16 << 30

// Put unpacks a tar stream in the sandbox.
func Put(ctx context.Context, start Start, dir string, r io.Reader) error {
	if _, err := execenv.WorkspacePath(dir); err != nil {
		return err
	}
	theirs, ours, err := os.Pipe()
	if err != nil {
		return fault.Wrap(fault.Internal, err, "cannot put the archive")
	}
	t, err := begin(start, []string{"unpack", execenv.Workspace, dir}, theirs, nil)
	if err != nil {
		ours.Close()
		return err
	}
	// The reader may block for ever, and must not be waited for then. What it
	// failed with is known before the helper can see the end of the stream.
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(ours, r)
		copied <- err
		ours.Close()
	}()
	status, err := t.Wait(ctx)
	if err != nil {
		return err
	}
	if err := verdict(t, status); err != nil {
		return err
	}
	// The helper stops at tar's end mark. The reader may be used until this
	// returns and not after it, so whoever reads it must be done.
	select {
	case err = <-copied:
	case <-ctx.Done():
		return fault.Wrap(fault.Unavailable, ctx.Err(), "putting the archive was given up")
	}
	if err != nil && !errors.Is(err, unix.EPIPE) {
		return fault.Wrap(fault.Unavailable, err, "the archive could not be read to its end")
	}
	return nil
}

// Get packs files in the sandbox and passes the stream on.
func Get(ctx context.Context, start Start, req execenv.ArchiveRequest, w io.Writer) error {
	if err := req.Validate(); err != nil {
		return err
	}
	bytes := req.MaxBytes
	if bytes == 0 {
		bytes = most
	}
	ours, theirs, err := os.Pipe()
	if err != nil {
		return fault.Wrap(fault.Internal, err, "cannot get the archive")
	}
	defer ours.Close()
	argv := append([]string{"pack", execenv.Workspace, req.Dir, strconv.FormatInt(bytes, 10)}, req.Patterns...)
	t, err := begin(start, argv, nil, theirs)
	if err != nil {
		return err
	}
	// Headers and padding come on top of the contents. More than that is a
	// helper that a hostile process took over: it must not send without end.
	out := &boundedWriter{w: w, left: 2*bytes + 64<<20}
	copied := make(chan error, 1)
	go func() {
		err := drainTo(out, ours)
		if err != nil {
			_ = t.Kill() // nobody reads any more
		}
		copied <- err
	}()
	status, err := t.Wait(ctx)
	_ = ours.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if err != nil {
		ours.Close()
		return err
	}
	select {
	case err = <-copied:
	case <-ctx.Done():
		return fault.Wrap(fault.Unavailable, ctx.Err(), "getting the archive was given up")
	}
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "the archive could not be passed on")
	}
	return verdict(t, status)
}

// verdict turns the helper's end into an error. It ran among hostile processes
// of the same user, so what it says is passed on but proves nothing.
func verdict(t *helper, status unix.WaitStatus) error {
	text := <-t.message
	switch {
	case status.Exited() && status.ExitStatus() == 0:
		return nil
	case status.Exited() && status.ExitStatus() == guest.ExitInvalid:
		return fault.New(fault.Invalid, "%s", text)
	case status.Exited() && status.ExitStatus() == guest.ExitExhausted:
		return fault.New(fault.Exhausted, "%s", text)
	case status.Exited() && status.ExitStatus() == guest.ExitMissing:
		return fault.New(fault.NotFound, "%s", text)
	case status.Exited() && status.ExitStatus() == guest.ExitDenied:
		return fault.New(fault.Denied, "%s", text)
	case status.Signaled():
		return fault.New(fault.Internal, "the transfer was ended in the sandbox by signal %d", status.Signal())
	default:
		return fault.Wrap(fault.Internal, fmt.Errorf("exit status %d: %s", status.ExitStatus(), text), "the transfer failed in the sandbox")
	}
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 64<<10); return &b }}

// drainTo copies until end of file, or until the deadline has passed and
// nothing more is there.
func drainTo(w io.Writer, r *os.File) error {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	_, err := io.CopyBuffer(w, onlyReader{r}, *buf)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	var writeErr error
	err = stdio.WithFD(r, func(fd int) error {
		for {
			n, err := unix.Read(fd, *buf)
			if n <= 0 || err != nil {
				return nil
			}
			if _, writeErr = w.Write((*buf)[:n]); writeErr != nil {
				return nil
			}
		}
	})
	return errors.Join(err, writeErr)
}

// onlyReader hides WriteTo, which would not use the buffer.
type onlyReader struct{ io.Reader }

var errTooMuch = errors.New("the sandbox sent more than it was asked for")

type boundedWriter struct {
	w    io.Writer
	left int64
}

func (b *boundedWriter) Write(p []byte) (int, error) {
	if b.left -= int64(len(p)); b.left < 0 {
		return 0, errTooMuch
	}
	return b.w.Write(p)
}
