// Package stdio is the owner's side of a command's standard files, which are
// pipes or one terminal of the host: what it writes goes into its log, and what
// is written to it waits until it is read.
package stdio

import (
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/outlog"
)

// Files are a command's standard files. They do not change but for being closed.
type Files struct {
	// Theirs are the program's ends: descriptors 0, 1, 2.
	Theirs []*os.File
	// In is where its input is written, nil without.
	In *os.File
	// Out and Err are where its output is read; Err is nil for a terminal.
	Out, Err *os.File
	// Unpack, if set, takes apart what is read from Out.
	Unpack func(take func([]byte)) func([]byte)
}

// Pipes makes pipes. Without input, the program reads end of file: from an empty
// pipe and not from the null device, whose owner a runtime might change.
func Pipes(input bool) (*Files, error) {
	f := &Files{}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	f.Theirs, f.In = append(f.Theirs, read), write
	for _, end := range []**os.File{&f.Out, &f.Err} {
		r, w, err := os.Pipe()
		if err != nil {
			f.CloseTheirs()
			f.CloseOurs()
			return nil, err
		}
		*end, f.Theirs = r, append(f.Theirs, w)
	}
	if !input {
		f.In.Close()
		f.In = nil
	}
	return f, nil
}

// WithFD runs fn on a file's descriptor without taking it from the poller.
func WithFD(f *os.File, fn func(fd int) error) error {
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

// OpenTerminal makes a terminal of the host, and returns both its ends.
func OpenTerminal(size execenv.WindowSize) (master, slave *os.File, err error) {
	master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	err = WithFD(master, func(fd int) error {
		if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
			return err
		}
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, winsize(size))
	})
	if err == nil {
		slave, err = OpenPeer(master)
	}
	if err != nil {
		master.Close()
		return nil, nil, err
	}
	return master, slave, nil
}

// OpenPeer opens the program's end of a terminal, once more if it had it before.
func OpenPeer(master *os.File) (slave *os.File, err error) {
	err = WithFD(master, func(fd int) error {
		const flags = unix.O_RDWR | unix.O_NOCTTY | unix.O_CLOEXEC
		peer, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, flags)
		if errno != 0 {
			return errno
		}
		slave = os.NewFile(peer, "terminal")
		return nil
	})
	return slave, err
}

func winsize(size execenv.WindowSize) *unix.Winsize {
	return &unix.Winsize{Row: size.Rows, Col: size.Cols}
}

// CloseTheirs closes the program's ends.
func (f *Files) CloseTheirs() {
	for _, file := range f.Theirs {
		file.Close()
	}
}

// CloseOurs closes the owner's ends.
func (f *Files) CloseOurs() {
	for _, file := range []*os.File{f.In, f.Out, f.Err} {
		if file != nil {
			file.Close()
		}
	}
}

// Readers copy a command's output into its log.
type Readers struct {
	files []*os.File
	wg    sync.WaitGroup
}

const readBytes = 64 << 10

var readBuffers = sync.Pool{New: func() any { b := make([]byte, readBytes); return &b }}

// Read begins to copy.
func (f *Files) Read(log *outlog.Log) *Readers {
	r := &Readers{files: []*os.File{f.Out}}
	stdout := func(p []byte) { log.Append(execenv.Stdout, p) }
	if f.Unpack != nil {
		stdout = f.Unpack(stdout)
	}
	r.wg.Go(func() { drain(f.Out, stdout) })
	if f.Err != nil {
		r.files = append(r.files, f.Err)
		r.wg.Go(func() { drain(f.Err, func(p []byte) { log.Append(execenv.Stderr, p) }) })
	}
	return r
}

// Finish returns when all that the command wrote has been read. Its processes
// are dead by then, so end of file is near; but one that passed its output on
// to another command's process must not delay it, so there is a deadline.
func (r *Readers) Finish() {
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
	_ = WithFD(f, func(fd int) error {
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
