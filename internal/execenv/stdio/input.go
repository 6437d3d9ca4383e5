package stdio

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
)

// Input is the writing side of a command's input. Its zero value is one that
// cannot be written to yet.
type Input struct {
	mu     sync.Mutex // one writer at a time
	state  sync.Mutex // guards what follows
	file   *os.File
	typing func([]byte) (int, error) // nil without a terminal
	closed bool
}

// Open makes it write to a file. For a terminal, typing is how; it writes to the
// same file.
func (s *Input) Open(file *os.File, typing func([]byte) (int, error)) {
	s.state.Lock()
	defer s.state.Unlock()
	s.file, s.typing = file, typing
}

func errClosed() error {
	return fault.New(fault.Gone, "the command's input is closed")
}

// Write blocks while the program does not read, until ctx ends.
func (s *Input) Write(ctx context.Context, data []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Lock()
	file, closed, write := s.file, s.closed, s.typing
	s.state.Unlock()
	if closed || file == nil {
		return 0, errClosed()
	}
	if err := file.SetWriteDeadline(time.Time{}); err != nil {
		return 0, errClosed()
	}
	stop := context.AfterFunc(ctx, func() { _ = file.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	if write == nil {
		write = file.Write
	}
	n, err := write(data)
	var failed *fault.Error
	switch {
	case err == nil:
		return n, nil
	case errors.As(err, &failed):
		return n, err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, fault.Wrap(fault.Unavailable, ctx.Err(), "the program did not read its input in time")
	case errors.Is(err, os.ErrClosed), errors.Is(err, unix.EPIPE), errors.Is(err, unix.EIO), errors.Is(err, io.ErrClosedPipe):
		return n, errClosed()
	default:
		return n, fault.Wrap(fault.Internal, err, "cannot write the command's input")
	}
}

// Close lets the program read end of file. A terminal cannot be half closed:
// there, the end-of-file character is typed.
func (s *Input) Close() {
	s.state.Lock()
	defer s.state.Unlock()
	if s.closed || s.file == nil {
		s.closed = true
		return
	}
	s.closed = true
	if s.typing != nil {
		_ = s.file.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = s.file.Write([]byte{4})
		return
	}
	s.file.Close()
}

// Shut makes every later write fail, and one that is blocked.
func (s *Input) Shut() {
	s.state.Lock()
	defer s.state.Unlock()
	s.closed = true
	if s.file != nil {
		_ = s.file.SetWriteDeadline(time.Unix(1, 0))
	}
}

// Resize sets the size of the terminal that it types into.
func (s *Input) Resize(size execenv.WindowSize) error {
	s.state.Lock()
	file := s.file
	s.state.Unlock()
	if file == nil {
		return nil
	}
	err := WithFD(file, func(fd int) error { return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, winsize(size)) })
	if err != nil && !errors.Is(err, os.ErrClosed) {
		return fault.Wrap(fault.Internal, err, "cannot resize the terminal")
	}
	return nil
}
