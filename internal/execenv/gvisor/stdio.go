package gvisor

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/outlog"
	"github.com/agentdock/agentdock/internal/fault"
)

// stdio is a command's standard files: pipes, or one terminal. It does not
// change after newStdio, but for being closed.
type stdio struct {
	// theirs are the program's ends: descriptors 0, 1, 2.
	theirs []*os.File
	// in is where its input is written, nil without.
	in *os.File
	// out and err are where its output is read; err is nil for a terminal.
	out, err *os.File
	// terminal is nil without one.
	terminal *terminal
}

func newStdio(spec execenv.ExecSpec) (*stdio, error) {
	if spec.TTY != nil {
		return newTerminal(*spec.TTY)
	}
	s := &stdio{}
	stdinRead, stdinWrite, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s.theirs, s.in = append(s.theirs, stdinRead), stdinWrite
	for _, end := range []**os.File{&s.out, &s.err} {
		r, w, err := os.Pipe()
		if err != nil {
			s.closeTheirs()
			s.closeOurs()
			return nil, err
		}
		*end, s.theirs = r, append(s.theirs, w)
	}
	if !spec.Stdin {
		// An empty pipe rather than the host's null device, whose owner
		// gVisor would change.
		s.in.Close()
		s.in = nil
	}
	return s, nil
}

// withFD runs fn on a file's descriptor without taking it from the poller.
func withFD(f *os.File, fn func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := conn.Control(func(fd uintptr) { inner = fn(int(fd)) }); err != nil {
		return err
	}
	return inner
}

func (s *stdio) closeTheirs() {
	for _, f := range s.theirs {
		f.Close()
	}
}

func (s *stdio) closeOurs() {
	for _, f := range []*os.File{s.in, s.out, s.err} {
		if f != nil {
			f.Close()
		}
	}
}

// readers copy a command's output into its log.
type readers struct {
	files []*os.File
	wg    sync.WaitGroup
}

const readBytes = 64 << 10

var readBuffers = sync.Pool{New: func() any { b := make([]byte, readBytes); return &b }}

func (s *stdio) read(log *outlog.Log) *readers {
	r := &readers{files: []*os.File{s.out}}
	stdout := func(p []byte) { log.Append(execenv.Stdout, p) }
	if s.terminal != nil {
		stdout = s.terminal.unpacked(stdout)
	}
	r.wg.Go(func() { drain(s.out, stdout) })
	if s.err != nil {
		r.files = append(r.files, s.err)
		r.wg.Go(func() { drain(s.err, func(p []byte) { log.Append(execenv.Stderr, p) }) })
	}
	return r
}

// finish returns when all that the command wrote has been read. Its processes
// are dead by then, so end of file is near; but one that passed its output on
// to another command's process must not delay it, so there is a deadline.
func (r *readers) finish() {
	soon := time.Now().Add(100 * time.Millisecond)
	for _, f := range r.files {
		_ = f.SetReadDeadline(soon)
	}
	r.wg.Wait()
}

// drain reads until end of file, or until the deadline has passed and nothing
// more is there.
func drain(f *os.File, take func([]byte)) {
	buf := readBuffers.Get().(*[]byte)
	defer readBuffers.Put(buf)
	for {
		n, err := f.Read(*buf)
		take((*buf)[:n])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			drainNow(f, take, *buf)
			return
		}
		if err != nil {
			// End of file; for a terminal whose last user is gone, EIO.
			return
		}
	}
}

// drainNow reads what is in the pipe and no more than a pipe can hold.
func drainNow(f *os.File, take func([]byte), buf []byte) {
	_ = withFD(f, func(fd int) error {
		for total := 0; total < 1<<20; {
			n, err := unix.Read(fd, buf)
			if n <= 0 || err != nil {
				return err
			}
			take(buf[:n])
			total += n
		}
		return nil
	})
}

// stdin is the writing side of a command's input.
type stdin struct {
	mu     sync.Mutex // one writer at a time
	state  sync.Mutex // guards what follows
	file   *os.File
	tty    *terminal // nil without one
	closed bool
}

func (s *stdin) open(io *stdio) {
	s.state.Lock()
	defer s.state.Unlock()
	s.file, s.tty = io.in, io.terminal
}

func errStdinClosed() error {
	return fault.New(fault.Gone, "the command's input is closed")
}

// write blocks while the program does not read, until ctx ends.
func (s *stdin) write(ctx context.Context, p *process, data []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Lock()
	file, closed, tty := s.file, s.closed, s.tty
	s.state.Unlock()
	if closed || file == nil {
		return 0, errStdinClosed()
	}
	if err := file.SetWriteDeadline(time.Time{}); err != nil {
		return 0, errStdinClosed()
	}
	stop := context.AfterFunc(ctx, func() { _ = file.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	n, err := 0, error(nil)
	if tty == nil {
		n, err = file.Write(data)
	} else {
		n, err = tty.write(data, func(sig unix.Signal) error { return p.signal(sig, true) })
	}
	var failed *fault.Error
	switch {
	case err == nil:
		return n, nil
	case errors.As(err, &failed):
		return n, err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, fault.Wrap(fault.Unavailable, ctx.Err(), "the program did not read its input in time")
	case errors.Is(err, os.ErrClosed), errors.Is(err, unix.EPIPE), errors.Is(err, unix.EIO), errors.Is(err, io.ErrClosedPipe):
		return n, errStdinClosed()
	default:
		return n, fault.Wrap(fault.Internal, err, "cannot write the command's input")
	}
}

// close lets the program read end of file. A terminal cannot be half closed:
// there, the end-of-file character is typed.
func (s *stdin) close() {
	s.state.Lock()
	defer s.state.Unlock()
	if s.closed || s.file == nil {
		s.closed = true
		return
	}
	s.closed = true
	if s.tty != nil {
		_ = s.file.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = s.file.Write([]byte{4})
		return
	}
	s.file.Close()
}

// shut makes every later write fail, and one that is blocked.
func (s *stdin) shut() {
	s.state.Lock()
	defer s.state.Unlock()
	s.closed = true
	if s.file != nil {
		_ = s.file.SetWriteDeadline(time.Unix(1, 0))
	}
}
