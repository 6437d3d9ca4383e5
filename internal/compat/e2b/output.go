package e2b

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"unicode/utf8"

	"connectrpc.com/connect"

	pb "github.com/agentdock/agentdock/internal/compat/e2b/processpb"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// wholeRunes sends output without cutting a character at the end of a piece:
// clients decode each piece by itself.
type wholeRunes struct {
	terminal bool
	send     func(*pb.ProcessEvent) error
	held     [3][]byte // by stream
}

func (w *wholeRunes) chunk(c execenv.Chunk) error {
	if c.Stream != execenv.Stdout && c.Stream != execenv.Stderr {
		return nil
	}
	data := slices.Concat(w.held[c.Stream], c.Data)
	n := len(data) - cutRune(data)
	w.held[c.Stream] = slices.Clone(data[n:])
	return w.piece(c.Stream, data[:n])
}

// rest sends what was held back in vain.
func (w *wholeRunes) rest() error {
	for _, s := range []execenv.Stream{execenv.Stdout, execenv.Stderr} {
		if err := w.piece(s, w.held[s]); err != nil {
			return err
		}
	}
	return nil
}

func (w *wholeRunes) piece(s execenv.Stream, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	event := &pb.ProcessEvent_DataEvent{}
	switch {
	case w.terminal:
		event.Output = &pb.ProcessEvent_DataEvent_Pty{Pty: data}
	case s == execenv.Stderr:
		event.Output = &pb.ProcessEvent_DataEvent_Stderr{Stderr: data}
	default:
		event.Output = &pb.ProcessEvent_DataEvent_Stdout{Stdout: data}
	}
	return w.send(&pb.ProcessEvent{Event: &pb.ProcessEvent_Data{Data: event}})
}

// cutRune is how many bytes at the end of data begin a character that goes on
// behind it.
func cutRune(data []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(data); n++ {
		last := data[len(data)-n:]
		if utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				return n
			}
			return 0
		}
	}
	return 0
}

// endEvent is the end of a command in the words of E2B's daemon, which knows exit
// statuses and signals. What it has no word for is said in the error.
func endEvent(r execenv.Result) (*pb.ProcessEvent_EndEvent, error) {
	end := &pb.ProcessEvent_EndEvent{ExitCode: -1}
	var why string
	switch o := r.Outcome; o.Kind {
	case run.Exited:
		end.ExitCode, end.Exited = int32(*o.ExitCode), true
		end.Status = fmt.Sprintf("exit status %d", *o.ExitCode)
		if *o.ExitCode != 0 {
			why = end.Status
		}
	case run.Cancelled: // killed by whoever could
		end.Status = "signal: " + syscall.SIGKILL.String()
		why = end.Status
	case run.Signalled:
		end.Status = "signal: " + o.Signal
		why = end.Status
	case run.NotStarted:
		end.ExitCode, end.Status = 127, "not started"
		why = "the program could not be started: " + o.Evidence
	case run.WallClock:
		return nil, connect.NewError(connect.CodeDeadlineExceeded, errors.New("the time limit of the command has passed"))
	case run.InfrastructureLost:
		return nil, fault.New(fault.Gone, "the sandbox was lost: %s", o.Evidence)
	default:
		end.Status = string(o.Kind)
		why = "the command was ended: " + string(o.Kind)
	}
	if r.Truncated {
		if why != "" {
			why += "; "
		}
		why += fmt.Sprintf("its output was cut: %d bytes of stdout and %d of stderr are more than is kept", r.StdoutBytes, r.StderrBytes)
	}
	if why != "" {
		why = text(why)
		end.Error = &why
	}
	return end, nil
}
