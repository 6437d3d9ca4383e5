package gvisor

import (
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
)

// archiveBytes is the most that GetArchive packs when its caller names nothing.
const archiveBytes = 16 << 30

// PutArchive implements execenv.Sandbox. The stream is unpacked in the sandbox by
// the helper, as the unprivileged user.
func (b *box) PutArchive(ctx context.Context, dir string, r io.Reader) error {
	if _, err := execenv.WorkspacePath(dir); err != nil {
		return err
	}
	theirs, ours, err := os.Pipe()
	if err != nil {
		return fault.Wrap(fault.Internal, err, "cannot put the archive")
	}
	t, err := b.startTool([]string{"unpack", execenv.Workspace, dir}, theirs, nil)
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
	status, err := t.wait(ctx)
	if err != nil {
		return err
	}
	if err := t.verdict(status); err != nil {
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

// GetArchive implements execenv.Sandbox.
func (b *box) GetArchive(ctx context.Context, req execenv.ArchiveRequest, w io.Writer) error {
	if err := req.Validate(); err != nil {
		return err
	}
	most := req.MaxBytes
	if most == 0 {
		most = archiveBytes
	}
	ours, theirs, err := os.Pipe()
	if err != nil {
		return fault.Wrap(fault.Internal, err, "cannot get the archive")
	}
	defer ours.Close()
	argv := append([]string{"pack", execenv.Workspace, req.Dir, strconv.FormatInt(most, 10)}, req.Patterns...)
	t, err := b.startTool(argv, nil, theirs)
	if err != nil {
		return err
	}
	// Headers and padding come on top of the contents. More than that is a
	// helper that a hostile process took over: it must not send without end.
	out := &boundedWriter{w: w, left: 2*most + 64<<20}
	copied := make(chan error, 1)
	go func() {
		err := drainTo(out, ours)
		if err != nil {
			_ = t.proc.kill() // nobody reads any more
		}
		copied <- err
	}()
	status, err := t.wait(ctx)
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
	return t.verdict(status)
}

// drainTo copies until end of file, or until the deadline has passed and
// nothing more is there.
func drainTo(w io.Writer, r *os.File) error {
	buf := readBuffers.Get().(*[]byte)
	defer readBuffers.Put(buf)
	_, err := io.CopyBuffer(w, onlyReader{r}, *buf)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	var writeErr error
	err = withFD(r, func(fd int) error {
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
