package gvisor

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/stdio"
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

// newStdio makes a command's standard files, and for a terminal how it is typed
// into.
func (p *program) newStdio() (files *stdio.Files, typing func([]byte) (int, error), err error) {
	if p.cmd.Spec.TTY == nil {
		files, err = stdio.Pipes(p.cmd.Spec.Stdin)
		return files, nil, err
	}
	files, t, err := newTerminal(*p.cmd.Spec.TTY)
	if err != nil {
		return nil, nil, err
	}
	return files, func(data []byte) (int, error) {
		return t.write(data, func(sig unix.Signal) error { return p.proc.signal(sig, true) })
	}, nil
}

func newTerminal(size execenv.WindowSize) (*stdio.Files, *terminal, error) {
	master, slave, err := stdio.OpenTerminal(size)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot make a terminal: %w", err)
	}
	if err := stdio.WithFD(master, func(fd int) error { return unix.IoctlSetPointerInt(fd, unix.TIOCPKT, 1) }); err != nil {
		master.Close()
		slave.Close()
		return nil, nil, fmt.Errorf("cannot make a terminal: %w", err)
	}
	t := &terminal{master: master, flushed: make(chan struct{}, 1)}
	return &stdio.Files{
		Theirs: []*os.File{slave, slave, slave}, In: master, Out: master, Unpack: t.unpacked,
	}, t, nil
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
	err = stdio.WithFD(t.master, func(fd int) error {
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
