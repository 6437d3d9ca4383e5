// Package run holds the words every part of AgentDock shares: limits,
// outcomes, usage. It imports the standard library only.
package run

import (
	"fmt"
	"strings"
	"syscall"
	"time"
)

// Kind says how a command ended. There is exactly one per command, decided
// from evidence outside the guest (wait status kept by the sandboxed kernel,
// cgroup counters, our own clock), never from the end of a stream.
type Kind string

const (
	// Exited: the program ended by itself; ExitCode is its own, whatever it
	// is. A program that exits 137 is exited, not killed.
	Exited Kind = "exited"
	// Signalled: a signal nobody here sent on purpose, or one the caller
	// sent with Signal, ended the program.
	Signalled Kind = "signalled"
	// OutOfMemory: the sandbox went over its memory limit and the host's
	// kernel ended it. It ends every command in that sandbox.
	OutOfMemory Kind = "out_of_memory"
	// WallClock: the time limit passed and the command was ended for it.
	WallClock Kind = "wall_clock"
	// PIDs, Disk, Inodes and Output: the command reached that limit, and was to
	// end there. Without being asked for that, a program that reaches one of them
	// goes on, and its own end is the outcome.
	PIDs   Kind = "pids"
	Disk   Kind = "disk"
	Inodes Kind = "inodes"
	Output Kind = "output"
	// Cancelled: the caller ended it with Kill, or destroyed the sandbox.
	Cancelled Kind = "cancelled"
	// NotStarted: the program could not be started: it does not exist, is
	// not executable, or its directory does not exist. Nothing ran.
	NotStarted Kind = "not_started"
	// InfrastructureLost: the sandbox ended for a reason that is ours or the
	// host's. What the program would have done is not known.
	InfrastructureLost Kind = "infrastructure_lost"
	// CheckoutFailed: the files of a job could not be had: an archive that
	// cannot be unpacked, a repository that cannot be fetched. Nothing ran.
	CheckoutFailed Kind = "checkout_failed"
	// PolicyDenied: what was asked for is not allowed here: a limit that cannot
	// be enforced, an image nobody has, a grant that was taken away. Nothing ran.
	PolicyDenied Kind = "policy_denied"
)

// Limit names a limit in an Outcome.
type Limit string

const (
	LimitMemory    Limit = "memory"
	LimitPIDs      Limit = "pids"
	LimitDisk      Limit = "disk"
	LimitInodes    Limit = "inodes"
	LimitOutput    Limit = "output"
	LimitWallClock Limit = "wall_clock"
)

// AtLimits are the limits at which a command goes on unless it was to end there,
// in the order in which they count if it reached several.
func AtLimits() []Limit {
	return []Limit{LimitPIDs, LimitDisk, LimitInodes, LimitOutput}
}

// EndsAt is the kind of outcome of a command that ended at a limit of AtLimits.
func (l Limit) EndsAt() Kind { return Kind(l) }

// Outcome is the one truthful answer to "how did it end".
type Outcome struct {
	Kind Kind `json:"kind"`
	// ExitCode is set for Exited only.
	ExitCode *int `json:"exit_code,omitempty"`
	// Signal is the name ("SIGSEGV"), set for Signalled only.
	Signal string `json:"signal,omitempty"`
	// Evidence says what the kind was decided from, for people.
	Evidence string `json:"evidence"`
	// LimitsHit lists every limit that was touched, in a fixed order, also
	// when the program coped and went on.
	LimitsHit []Limit `json:"limits_hit,omitempty"`
}

// ExitedWith is the outcome of a program that ended by itself.
func ExitedWith(code int, evidence string) Outcome {
	return Outcome{Kind: Exited, ExitCode: &code, Evidence: evidence}
}

// SignalledBy is the outcome of a program that a signal ended.
func SignalledBy(sig syscall.Signal, evidence string) Outcome {
	return Outcome{Kind: Signalled, Signal: SignalName(sig), Evidence: evidence}
}

// Success reports whether the program exited with 0.
func (o Outcome) Success() bool {
	return o.Kind == Exited && o.ExitCode != nil && *o.ExitCode == 0
}

// Touched reports whether limit l is among LimitsHit.
func (o Outcome) Touched(l Limit) bool {
	for _, h := range o.LimitsHit {
		if h == l {
			return true
		}
	}
	return false
}

// String is the short form for people: "exited 3", "signalled SIGSEGV",
// "out_of_memory (limits hit: disk)".
func (o Outcome) String() string {
	var b strings.Builder
	b.WriteString(string(o.Kind))
	if o.ExitCode != nil {
		fmt.Fprintf(&b, " %d", *o.ExitCode)
	}
	if o.Signal != "" {
		b.WriteString(" " + o.Signal)
	}
	if len(o.LimitsHit) > 0 {
		names := make([]string, len(o.LimitsHit))
		for i, l := range o.LimitsHit {
			names[i] = string(l)
		}
		fmt.Fprintf(&b, " (limits hit: %s)", strings.Join(names, ", "))
	}
	return b.String()
}

// Usage is what a sandbox used. A value an environment cannot measure is 0.
type Usage struct {
	// MemoryBytes is without what the host only caches of a workspace that is
	// on disk. There the peak is the highest of regular samples.
	MemoryBytes     int64         `json:"memory_bytes"`
	PeakMemoryBytes int64         `json:"peak_memory_bytes"`
	CPU             time.Duration `json:"cpu"`
	PIDs            int64         `json:"pids"`
	DiskBytes       int64         `json:"disk_bytes"`
	Inodes          int64         `json:"inodes"`
}
