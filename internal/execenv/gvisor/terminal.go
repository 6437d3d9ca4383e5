package gvisor

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
)

// terminal is our side of a terminal of the host. It takes control characters out
// of what is typed but knows no process of the sandbox, so the signals that they
// stand for are raised from here.
type terminal struct {
	master *os.File
	// flushed says that the terminal has flushed its queues, as it does at a
	// character that stands for a signal. It is told in packet mode.
	flushed chan struct{}
}

func newTerminal(size execenv.WindowSize) (*stdio, error) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot make a terminal: %w", err)
	}
	var peer uintptr
	err = withFD(master, func(fd int) error {
		if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
			return err
		}
		if err := unix.IoctlSetPointerInt(fd, unix.TIOCPKT, 1); err != nil {
			return err
		}
		var errno unix.Errno
		const flags = unix.O_RDWR | unix.O_NOCTTY | unix.O_CLOEXEC
		if peer, _, errno = unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, flags); errno != 0 {
			return errno
		}
		return setSize(fd, size)
	})
	if err != nil {
		master.Close()
		return nil, fmt.Errorf("cannot make a terminal: %w", err)
	}
	slave := os.NewFile(peer, "terminal")
	return &stdio{
		theirs: []*os.File{slave, slave, slave}, in: master, out: master,
		terminal: &terminal{master: master, flushed: make(chan struct{}, 1)},
	}, nil
}

// unpacked takes what is read in packet mode: a byte that is 0 before output, and
// says what happened to the terminal otherwise.
func (t *terminal) unpacked(take func([]byte)) func([]byte) {
	return func(packet []byte) {
		switch {
		case len(packet) == 0:
		case packet[0] == unix.TIOCPKT_DATA:
			take(packet[1:])
		case packet[0]&unix.TIOCPKT_FLUSHREAD != 0:
			select {
			case t.flushed <- struct{}{}:
			default:
			}
		}
	}
}

// write types data, and raises the signals that characters in it stand for.
func (t *terminal) write(data []byte, raise func(unix.Signal) error) (written int, err error) {
	for written < len(data) {
		n, sig, flushes, err := t.upToSignal(data[written:])
		if err != nil {
			return written, err
		}
		select {
		case <-t.flushed: // an earlier one
		default:
		}
		n, err = t.master.Write(data[written : written+n])
		written += n
		if err != nil {
			return written, err
		}
		if sig == 0 {
			continue
		}
		if flushes {
			t.awaitFlush()
		}
		if err := raise(sig); err != nil {
			return written, fault.Wrap(fault.Internal, err, "a signal that was typed did not arrive")
		}
	}
	return written, nil
}

// flushTimeout is more than the host takes to process a typed character. It
// passes only if the program turns these characters off at that moment.
const flushTimeout = time.Second

// awaitFlush waits until the terminal has processed a character for which it
// throws away what is queued. It does so some time after the character was
// written; a program that already had its signal would lose what it answers.
func (t *terminal) awaitFlush() {
	select {
	case <-t.flushed:
	case <-time.After(flushTimeout):
	}
}

// upToSignal is how much of data may be typed before a signal is due, that
// signal, or 0, and whether the terminal flushes its queues then.
func (t *terminal) upToSignal(data []byte) (n int, sig unix.Signal, flushes bool, err error) {
	var termios *unix.Termios
	err = withFD(t.master, func(fd int) error {
		termios, err = unix.IoctlGetTermios(fd, unix.TCGETS)
		return err
	})
	if err != nil || termios.Lflag&unix.ISIG == 0 {
		return len(data), 0, false, err
	}
	for i, c := range data {
		for char, sig := range map[int]unix.Signal{unix.VINTR: unix.SIGINT, unix.VQUIT: unix.SIGQUIT, unix.VSUSP: unix.SIGTSTP} {
			if c == termios.Cc[char] && c != disabled {
				return i + 1, sig, termios.Lflag&unix.NOFLSH == 0, nil
			}
		}
	}
	return len(data), 0, false, nil
}

// disabled is the control character of a terminal that stands for none.
const disabled = 0

func setSize(fd int, size execenv.WindowSize) error {
	return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Cols})
}

func (s *stdin) resize(p *process, size execenv.WindowSize) error {
	s.state.Lock()
	file := s.file
	s.state.Unlock()
	if file == nil {
		return nil
	}
	if err := withFD(file, func(fd int) error { return setSize(fd, size) }); err != nil {
		if errors.Is(err, os.ErrClosed) {
			return nil
		}
		return fault.Wrap(fault.Internal, err, "cannot resize the terminal")
	}
	_ = p.signal(unix.SIGWINCH, true)
	return nil
}
