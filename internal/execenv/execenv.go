// Package execenv is the port through which AgentDock runs hostile code. An
// Environment creates sandboxes; a Sandbox runs commands; an Exec is one
// command. Adapters live in packages below this one; the wire client
// (internal/execrpc) is an adapter too.
//
// This comment is the protocol. Every numbered sentence has a case in
// execenvtest that runs against every adapter, and through the wire.
//
// # Sandboxes
//
//   - P1. Create is idempotent by Spec.ID: the same ID with an equal Spec
//     returns the sandbox that exists; with a different Spec it fails with
//     Conflict. Concurrent calls with one ID create one sandbox.
//   - P2. When Create fails, or its context ends first, nothing is left: the
//     ID is not listed and can be used again. A sandbox that is lost while it
//     starts fails it with Unavailable, one whose memory limit is not enough
//     to start with Exhausted.
//   - P3. A Spec or limit that is malformed fails with Invalid; one that the
//     environment cannot enforce fails with Unsupported. Neither is ever
//     adjusted in silence. A limit of zero is one that is not given: it is
//     malformed where Capabilities.Enforces has it, and all there can be where
//     not.
//   - P4. Attach returns the sandbox with that ID, or NotFound. Any number of
//     handles may be used at once; a handle holds nothing.
//   - P5. List names every sandbox for which anything is left, including
//     those that ended by themselves and those that Destroy could not free.
//   - P6. Destroy ends every command (outcome cancelled), frees everything and
//     is idempotent: destroying an unknown ID is not an error. It may be
//     called at any moment, also while Create or another Destroy with that ID
//     is running. It returns nil only when nothing at all is left; otherwise
//     the sandbox stays listed and Destroy can be called again. Destroy does
//     its work to the end even if its context ends.
//   - P7. Nothing one sandbox wrote is visible to another, or to a later one
//     with the same ID.
//   - P8. A sandbox that ends by itself (out of memory, lost) stays listed as
//     StateEnded with the outcome, until it is destroyed. Exec on it fails
//     with Gone.
//   - P9. Extend makes the lifetime of a sandbox end when the time given has
//     passed from now, be that later or sooner than before, and Info shows it.
//     A sandbox whose lifetime has passed stays ended, and extending it fails
//     with Gone: of an extension and the end, one happens.
//   - P10. Where Capabilities.Pause says so, Pause takes a running sandbox out of
//     the host's memory and Resume goes on with it: its files are as they were, and
//     its commands go on where they were, with the same IDs and logs. Info shows
//     StatePaused in between. Elsewhere both fail with Unsupported. A Pause that
//     fails leaves the sandbox running, or ended and saying so; it may fail
//     with Conflict while an archive is transferred. Pause of a sandbox that is paused,
//     and Resume of one that runs, only set the time.
//   - P11. In a paused sandbox Exec, PutArchive, GetArchive, Usage and Extend fail
//     with Conflict, and so do Signal, Kill and Resize of a command that has not ended.
//     What is known of it can be read: its commands, their logs and results. It can
//     be destroyed; its commands are then cancelled.
//   - P12. The wall clock of a command stands still while its sandbox is paused. A
//     paused sandbox ends, as at the end of its lifetime, when what Pause was told
//     to keep it for has passed; Resume sets its lifetime as Extend does.
//   - P13. What was put away is used once. If it cannot be used, the sandbox ends as
//     infrastructure_lost, Resume fails with Gone, and nothing of it runs.
//
// # Commands
//
//   - X1. The program gets exactly the environment of Environ: the base
//     variables, the Spec's, the ExecSpec's; the later wins.
//   - X2. It runs as uid and gid 10001 without capabilities, in the workspace or
//     the directory below it that ExecSpec.Dir names.
//   - X3. Exec returns when the program has been started, or could not be:
//     a program or directory that does not exist is not an error but an Exec
//     with the outcome not_started. ExecSpec.ID makes Exec idempotent: the
//     same ID returns the command that exists, running or ended.
//   - X4. Every Exec ends in exactly one Result; Wait returns the same one to
//     every caller, however often. Wait returns an error only when the
//     Result could not be learned (context ended, connection lost): such an
//     error says nothing about the program.
//   - X5. Exit codes 0 to 255 are the program's own and are never made up. A
//     program that ends by a signal is signalled, also if another part of
//     the system would show that as 128+n.
//   - X6. The wall clock of a command is the least of ExecSpec.Timeout and
//     Limits.WallClock. When it passes, the whole tree is killed and the
//     outcome is wall_clock.
//   - X7. The command ends when its first process ends. Then everything it
//     started is killed, whatever it did to detach itself (double fork,
//     setsid, ignored signals, stopped); a descendant that holds stdout
//     open delays nothing. Other commands in the sandbox go on.
//   - X8. Kill kills the whole tree; the outcome is cancelled. Signal delivers
//     one signal to the first process. Both are no-ops on a command that
//     ended.
//   - X9. Going over the memory limit ends the sandbox or a command in it as
//     out_of_memory, never as an exit code or a lost connection. What ends
//     with it in that sandbox ends as out_of_memory too. Reaching the
//     limit of processes, disk, inodes or output is not fatal by itself: the
//     program sees the error and its own end is the outcome. LimitsHit names
//     the limit to the command that reached it, also if that made room again
//     and went on, and to no other; of these four, those that
//     Capabilities.Reports has.
//   - X10. When the environment loses a sandbox, its commands end as
//     infrastructure_lost.
//   - X11. A command ends at the limits that ExecSpec.EndAtLimit names: soon
//     after it has reached one, its whole tree is killed, and the outcome is
//     pids, disk, inodes or output. It is the same if its own end was sooner
//     than the kill. Other commands go on. A limit that Capabilities.Reports
//     does not have fails with Unsupported.
//   - X12. Execs names every command that was started and has not ended, and of
//     those that have ended the ones that AttachExec finds, in the order in which
//     they were started, each with its Result once there is one.
//
// # Output and input
//
//   - O1. Output is a log: chunks of stdout and stderr in the order they were
//     read, each stream complete and in order. Log offsets count kept bytes of
//     both streams. Output(from) may be called at any time, by any number of
//     readers, from any offset, also after the end; it returns nil after the
//     last chunk of an ended command.
//   - O2. Of each stream the first OutputBytes are kept. What comes after is
//     counted and dropped, Truncated is set, LimitsHit has output.
//   - O3. The program never waits for a reader: a slow, stuck or absent one
//     holds up nothing.
//   - O4. Bytes are kept as they are, NUL and invalid UTF-8 included.
//   - O5. Without ExecSpec.Stdin the program reads end of file. With it,
//     WriteStdin blocks while the program does not read, until its context
//     ends; CloseStdin lets the program read end of file; writing after that, or
//     after the program ended, fails with Gone.
//   - O6. With a TTY, the program has a controlling terminal of that size, all
//     output is on stdout, and Resize changes the size and raises SIGWINCH.
//
// # Archives
//
//   - A1. PutArchive unpacks a tar stream below a directory of the workspace
//     as the unprivileged user, inside the sandbox. It creates parents.
//     Entries that are absolute, contain "..", go through a symlink, are
//     hard links to outside, or are neither file, directory, symlink nor hard
//     link, fail it with Invalid; nothing outside the directory is
//     touched. Entries before the bad one may stay.
//   - A2. A full disk or inode limit fails PutArchive with Exhausted.
//   - A3. GetArchive streams the files below a directory that match the
//     patterns, as tar, without following symlinks. Only regular
//     files, directories and symlinks are in it. More than MaxBytes fails
//     with Exhausted. What the unprivileged user may not read is left out, and
//     named by the error, Denied, that follows the rest. What arrives is
//     hostile bytes; a stream that was not completed is reported by the error.
//
// # What is refused
//
// Work that a policy forbids (an operator's, a tenant's) is refused before it
// begins, with the error Denied; a limit that is merely used up is Exhausted. No
// command exists then, so there is no Result, and no environment ever gives the
// outcome policy_denied: whoever records work that was refused records that.
//
// # What holds at all times
//
//   - G1. No network: no interface but loopback, no route, no name resolution.
//   - G2. Only the workspace, /tmp and /dev/shm can be written, each with a limit.
//   - G3. All methods may be called concurrently. After ctx ends they return
//     soon; what they started to free is still freed. The reader or writer
//     of an archive is not used after the method has returned, but for one
//     Read or Write that was under way when ctx ended or the archive failed.
//   - G4. Capabilities are constant for the life of an Environment.
//   - G5. Where Capabilities.DiskBeyondMemory says so, a disk limit may be
//     above the memory limit: as much can be written, and read again, by
//     programs that the memory limit holds as ever. Elsewhere such a Spec
//     fails with Unsupported.
//   - G6. Where Capabilities.NetworkAllow says so, a sandbox reaches the names of
//     its Spec.Network and nothing else: through the proxy that ProxyEnv names,
//     and there is still no interface but loopback. A name that is not allowed is
//     refused by the proxy with the reason, and NetworkUse has it. SetNetwork
//     changes that at once. Elsewhere such a Spec fails with Unsupported.
package execenv

import (
	"context"
	"io"
	"syscall"
	"time"

	"github.com/agentdock/agentdock/internal/run"
)

// Environment creates and owns sandboxes.
type Environment interface {
	Capabilities() Capabilities
	Create(ctx context.Context, spec Spec) (Sandbox, error)
	Attach(ctx context.Context, id string) (Sandbox, error)
	List(ctx context.Context) ([]Info, error)
	Destroy(ctx context.Context, id string) error
}

// Sandbox is a handle to a live or ended sandbox.
type Sandbox interface {
	ID() string
	Info(ctx context.Context) (Info, error)
	// Exec starts a command (X3).
	Exec(ctx context.Context, spec ExecSpec) (Exec, error)
	// AttachExec returns a command of this sandbox by its ID, or NotFound.
	// Ended commands are kept for a while, bounded in number.
	AttachExec(ctx context.Context, id string) (Exec, error)
	Execs(ctx context.Context) ([]ExecInfo, error)
	PutArchive(ctx context.Context, dir string, r io.Reader) error
	GetArchive(ctx context.Context, req ArchiveRequest, w io.Writer) error
	Usage(ctx context.Context) (run.Usage, error)
	// SetNetwork changes what the sandbox may reach, for open connections too, and
	// NetworkUse says what it did with it (G6).
	SetNetwork(ctx context.Context, n run.Network) error
	NetworkUse(ctx context.Context) (run.NetworkUse, error)
	// Extend gives the sandbox a lifetime that ends so long from now (P9).
	Extend(ctx context.Context, lifetime time.Duration) error
	// Pause puts the sandbox away for so long at most (P10).
	Pause(ctx context.Context, keep time.Duration) error
	// Resume brings it back, with a lifetime that ends so long from now (P10).
	Resume(ctx context.Context, lifetime time.Duration) error
}

// Exec is a handle to one command.
type Exec interface {
	ID() string
	// Output passes the log from offset from on to yield, chunk by chunk, and
	// follows it until the command has ended (O1). The chunk's Data is valid
	// only during the call. An error of yield ends it and is returned.
	Output(ctx context.Context, from int64, yield func(Chunk) error) error
	// Wait blocks until the command has ended (X4).
	Wait(ctx context.Context) (Result, error)
	WriteStdin(ctx context.Context, p []byte) (int, error)
	CloseStdin(ctx context.Context) error
	Signal(ctx context.Context, sig syscall.Signal) error
	Kill(ctx context.Context) error
	Resize(ctx context.Context, size WindowSize) error
}

// Spec says what sandbox to create. Two Specs are the same request if Equal
// says so.
type Spec struct {
	// ID is chosen by the caller; see ValidateID.
	ID string
	// Image is the name or digest of a root image.
	Image string
	// Env is added to the base environment of every command.
	Env map[string]string
	// Limits are enforced as given: all that Capabilities.Enforces has, and no
	// other (Enforces.Allow).
	Limits run.Limits
	// Labels are kept and listed; they mean nothing to the environment.
	Labels map[string]string
	// Lifetime ends the sandbox when it has passed since creation, with the
	// outcome wall_clock for it and its commands; 0 leaves that to the
	// execution service.
	Lifetime time.Duration
	// Network is what the sandbox may reach; the zero value is nothing (G6).
	Network run.Network
}

// ExecSpec says what command to start.
type ExecSpec struct {
	// ID is chosen by the caller, unique in the sandbox; empty lets the
	// environment choose.
	ID string
	// Argv is executed without a shell; Argv[0] is looked up in PATH of the
	// program's environment when it holds no slash.
	Argv []string
	// Dir is relative to the workspace, without "..". Empty is the workspace.
	Dir string
	Env map[string]string
	// Stdin says that the caller will write to it.
	Stdin bool
	// TTY, if set, gives the program a terminal of that size.
	TTY *WindowSize
	// Timeout and OutputBytes lower the sandbox's limits for this command; 0
	// leaves them.
	Timeout     time.Duration
	OutputBytes int64
	// EndAtLimit are limits of run.AtLimits that end the command when it
	// reaches them (X11), instead of being its own to handle (X9).
	EndAtLimit []run.Limit
}

// WindowSize is a terminal's size in characters.
type WindowSize struct{ Cols, Rows uint16 }

// Stream says where a chunk of output was written.
type Stream uint8

const (
	Stdout Stream = 1
	Stderr Stream = 2
)

func (s Stream) String() string {
	switch s {
	case Stdout:
		return "stdout"
	case Stderr:
		return "stderr"
	}
	return "unknown"
}

// Chunk is a piece of a command's log. Offset is where Data begins in the log.
type Chunk struct {
	Stream Stream
	Offset int64
	Data   []byte
}

// ExecInfo describes a command in a list.
type ExecInfo struct {
	ID   string
	Argv []string
	// Dir is relative to the workspace.
	Dir string
	// TTY and Stdin say how it was started.
	TTY, Stdin bool
	StartedAt  time.Time
	// Result is nil while the command runs.
	Result *Result
}

// Result is how a command ended and what it used.
type Result struct {
	Outcome run.Outcome
	// StdoutBytes and StderrBytes count what the program wrote, kept or not.
	StdoutBytes, StderrBytes int64
	// Truncated says that not all of it was kept.
	Truncated bool
	StartedAt time.Time
	Duration  time.Duration
	// Usage is the sandbox's at the end of the command, peaks since creation.
	Usage run.Usage
}

// State of a sandbox.
type State string

const (
	StateCreating   State = "creating"
	StateRunning    State = "running"
	StatePaused     State = "paused"
	StateEnded      State = "ended"
	StateDestroying State = "destroying"
)

// Info describes a sandbox in a list.
type Info struct {
	ID          string
	State       State
	Image       string
	ImageDigest string
	Labels      map[string]string
	Limits      run.Limits
	CreatedAt   time.Time
	// ExpiresAt is zero when nothing but its owner ends the sandbox.
	ExpiresAt time.Time
	// Outcome says why a sandbox in StateEnded ended.
	Outcome *run.Outcome
}

// ArchiveRequest says what GetArchive packs.
type ArchiveRequest struct {
	// Dir is relative to the workspace.
	Dir string
	// Patterns are globs relative to Dir ("*", "?", "[…]", and "**" for any
	// number of directories); none means everything.
	Patterns []string
	// MaxBytes bounds the contents; 0 means the environment's own bound.
	MaxBytes int64
}
