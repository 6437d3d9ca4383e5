package gvisor

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/outlog"
	"github.com/agentdock/agentdock/internal/execenv/stdio"
)

// What a program answers to a signal that was typed must not be in the queue that
// the host's terminal throws away for that character.
func TestAnswerToATypedSignalIsNotThrownAway(t *testing.T) {
	for range 200 {
		s, term, err := newTerminal(execenv.WindowSize{Cols: 80, Rows: 24})
		if err != nil {
			t.Fatal(err)
		}
		log := outlog.New(1 << 20)
		readers := s.Read(log)
		var raised []unix.Signal
		_, err = term.write([]byte("a\x03b\x1c"), func(sig unix.Signal) error {
			raised = append(raised, sig)
			_, err := s.Theirs[0].WriteString("answer ")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(raised) != 2 || raised[0] != unix.SIGINT || raised[1] != unix.SIGQUIT {
			t.Fatalf("^C and ^\\ raised %v", raised)
		}
		s.CloseTheirs()
		readers.Finish()
		s.CloseOurs()
		log.Close()
		var out strings.Builder
		_ = log.Follow(t.Context(), 0, func(c execenv.Chunk) error { out.Write(c.Data); return nil })
		// The second character throws away what was not read of the first
		// answer, as on any terminal; nothing comes after the second.
		if !strings.HasSuffix(strings.ReplaceAll(out.String(), "^\\", ""), "answer ") {
			t.Fatalf("the terminal showed %q", out.String())
		}
	}
}

func TestTerminalThatRaisesNothing(t *testing.T) {
	s, term, err := newTerminal(execenv.WindowSize{Cols: 80, Rows: 24})
	if err != nil {
		t.Fatal(err)
	}
	defer s.CloseOurs()
	defer s.CloseTheirs()
	err = stdio.WithFD(s.Theirs[0], func(fd int) error {
		termios, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err != nil {
			return err
		}
		termios.Lflag &^= unix.ISIG
		return unix.IoctlSetTermios(fd, unix.TCSETS, termios)
	})
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if n, err := term.write([]byte("\x03\x03"), func(unix.Signal) error { t.Error("a signal was raised"); return nil }); n != 2 || err != nil {
		t.Errorf("wrote %d, %v", n, err)
	}
	if d := time.Since(begun); d >= flushTimeout {
		t.Errorf("it waited %s for nothing", d)
	}
}
