package oneshot

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/agentdock/agentdock/internal/artifact"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/quantity"
	"github.com/agentdock/agentdock/internal/run"
)

// Exit statuses that are not the program's own.
const (
	StatusTimeout       = 124 // as timeout(1) does
	StatusOurs          = 125 // whatever is not about the program
	StatusNotExecutable = 126 // as shells do, this and the next
	StatusNotFound      = 127
	StatusSignalled     = 128 // and the number of the signal
	StatusCancelled     = 130
	StatusOutOfMemory   = 137
	// StatusAtLimit is that of a kill too: the command was killed at a limit that
	// was to end it.
	StatusAtLimit = 137
)

// Report is how a run ended.
type Report struct {
	ID     string
	Limits run.Limits
	// Commit is what was checked out, of a run that had a repository.
	Commit string
	// Result is nil when there is none: nothing ran, or it could not be learned.
	Result *execenv.Result
	// Network is what a program did that had one; nil where that is not known.
	Network *run.NetworkUse
	// Err is what went wrong on our side.
	Err error

	Asked        bool // for artifacts
	Out          string
	Artifacts    []artifact.Artifact
	ArtifactsErr error
}

// ExitStatus is the status the command line ends with.
func (r Report) ExitStatus() int {
	if r.Err != nil || r.Result == nil {
		return StatusOurs
	}
	o := r.Result.Outcome
	switch o.Kind {
	case run.Exited:
		if o.ExitCode == nil {
			return StatusOurs
		}
		switch {
		case *o.ExitCode != 0 || r.ArtifactsErr == nil:
		case errors.Is(r.ArtifactsErr, errCancelledCollecting):
			return StatusCancelled
		default:
			return StatusOurs
		}
		return *o.ExitCode
	case run.Signalled:
		if sig, ok := run.SignalNumber(o.Signal); ok {
			return StatusSignalled + int(sig)
		}
		return StatusOurs
	case run.WallClock:
		return StatusTimeout
	case run.OutOfMemory:
		return StatusOutOfMemory
	case run.PIDs, run.Disk, run.Inodes, run.Output:
		return StatusAtLimit
	case run.Cancelled:
		return StatusCancelled
	case run.NotStarted:
		return notStartedStatus(o.Evidence)
	}
	return StatusOurs
}

// notStartedStatus tells a program that is not there from one that cannot be
// executed by what the sandbox's kernel said: which step failed comes first, the
// text of an error number last, and names the caller chose stand between. What
// is not listed is not guessed at.
func notStartedStatus(evidence string) int {
	if strings.HasPrefix(evidence, "failed to find initial working directory ") {
		return StatusNotExecutable
	}
	for errno, status := range map[string]int{
		"no such file or directory":           StatusNotFound,
		"not found":                           StatusNotFound,
		"permission denied":                   StatusNotExecutable,
		"exec format error":                   StatusNotExecutable,
		"not a directory":                     StatusNotExecutable,
		"is a directory":                      StatusNotExecutable,
		"too many symbolic links encountered": StatusNotExecutable,
		"too many levels of symbolic links":   StatusNotExecutable,
		"file name too long":                  StatusNotExecutable,
		"argument list too long":              StatusNotExecutable,
	} {
		if strings.HasSuffix(evidence, ": "+errno) {
			return status
		}
	}
	return StatusOurs
}

// Line says in one line how the run ended, for people.
func (r Report) Line() string {
	if r.Result == nil {
		return oneLine(r.message())
	}
	res := *r.Result
	o := res.Outcome
	var b strings.Builder
	b.WriteString(headline(o))
	if res.Duration > 0 && o.Kind != run.NotStarted {
		preposition := " after "
		if o.Kind == run.Exited {
			preposition = " in "
		}
		b.WriteString(preposition + quantity.Duration(res.Duration))
	}
	if o.Kind != run.Exited && o.Evidence != "" {
		b.WriteString(" (" + o.Evidence + ")")
	}
	if peak := res.Usage.PeakMemoryBytes; peak > 0 {
		b.WriteString(", peak memory " + quantity.Size(peak))
	}
	if o.Kind != run.NotStarted && res.StartedAt != (execenv.Result{}.StartedAt) {
		if res.Truncated {
			fmt.Fprintf(&b, ", output cut at %d bytes (saw %d)", r.Limits.OutputBytes, max(res.StdoutBytes, res.StderrBytes))
		} else {
			b.WriteString(", output complete")
		}
	}
	if hit := limitsHit(o); hit != "" {
		b.WriteString(", limits hit: " + hit)
	}
	if r.Network != nil {
		b.WriteString(egressDenied(*r.Network))
	}
	switch {
	case r.ArtifactsErr != nil:
		fmt.Fprintf(&b, ", artifacts not complete (%d in %s): %s", len(r.Artifacts), r.Out, message(r.ArtifactsErr))
	case r.Asked && r.Err == nil && o.Kind != run.Cancelled:
		fmt.Fprintf(&b, ", %d %s in %s", len(r.Artifacts), plural(len(r.Artifacts), "artifact"), r.Out)
	}
	if r.Err != nil {
		b.WriteString("; " + r.message())
	}
	return oneLine(b.String())
}

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

func headline(o run.Outcome) string {
	switch o.Kind {
	case run.Exited, run.Signalled:
		return strings.TrimSuffix(run.Outcome{Kind: o.Kind, ExitCode: o.ExitCode, Signal: o.Signal}.String(), " ")
	case run.OutOfMemory:
		return "out of memory"
	case run.WallClock:
		return "time limit reached"
	case run.PIDs:
		return "process limit reached"
	case run.Disk:
		return "disk limit reached"
	case run.Inodes:
		return "limit of files reached"
	case run.Output:
		return "output limit reached"
	case run.NotStarted:
		return "not started"
	case run.InfrastructureLost:
		return "sandbox lost"
	case run.CheckoutFailed:
		return "checkout failed"
	}
	return string(o.Kind)
}

func limitsHit(o run.Outcome) string {
	names := make([]string, len(o.LimitsHit))
	for i, l := range o.LimitsHit {
		names[i] = string(l)
	}
	return strings.Join(names, ", ")
}

func (r Report) message() string { return message(r.Err) }

// message is what a user sees of an error. This is a command line on the
// operator's own machine: causes are theirs to see.
func message(err error) string {
	if err == nil {
		return "no outcome is known"
	}
	// Another environment's message says where its images come from.
	if text := err.Error(); fault.Is(err, fault.NotFound) && strings.Contains(text, "image") &&
		!strings.Contains(text, "agentdock image") && !strings.Contains(text, "docs/") {
		return err.Error() + "; make it with: agentdock image build"
	}
	return err.Error()
}

// oneLine keeps what the sandbox had a say in from looking like more lines or
// from moving a terminal's cursor.
func oneLine(s string) string {
	return strings.Map(func(c rune) rune {
		if c == utf8.RuneError || unicode.IsControl(c) {
			return ' '
		}
		return c
	}, s)
}

var errNothing = errors.New("no outcome is known")

// state is the terminal state of the run, as a job's.
func (r Report) state() string {
	switch {
	case r.Result != nil && r.Result.Outcome.Kind == run.Cancelled:
		return "cancelled"
	case r.ExitStatus() == 0:
		return "succeeded"
	}
	return "failed"
}
