package run

import "time"

// Job is one piece of work on record: what was asked for, where it stands and
// how it ended.
type Job struct {
	ID       string  `json:"id"`
	TenantID string  `json:"tenant_id"`
	Spec     JobSpec `json:"spec"`
	State    State   `json:"state"`

	// Attempt counts the sandboxes this job was given, from 1; 0 while none
	// was. Each attempt has a sandbox of its own and runs each command at most
	// once.
	Attempt int `json:"attempt"`
	// Node names the execution service that has, or had, the sandbox of the
	// attempt. It is on record before the sandbox exists.
	Node string `json:"node,omitempty"`
	// Lost counts attempts that were lost after a command may have run.
	Lost int `json:"lost,omitempty"`
	// CancelRequested is set when a caller asked for an end that has not come
	// yet.
	CancelRequested bool `json:"cancel_requested,omitempty"`

	// Steps are the commands of the attempt that were started, in order.
	Steps []Step `json:"steps,omitempty"`
	// Outcome is set exactly when State is terminal.
	Outcome *Outcome `json:"outcome,omitempty"`
	// Usage is the sandbox's, with its peaks, at the end.
	Usage Usage `json:"usage"`
	// Resolved says what source, image and environment turned out to be.
	Resolved Resolved `json:"resolved"`
	// TraceParent is the W3C trace context of the request that made the job, so
	// that what a worker does later belongs to the same trace. It is empty when
	// nobody traces, and says nothing about what the job does.
	TraceParent string `json:"trace_parent,omitempty"`

	CreatedAt time.Time `json:"created_at"`
	// StartedAt is when a worker took the attempt.
	StartedAt  time.Time `json:"started_at,omitzero"`
	FinishedAt time.Time `json:"finished_at,omitzero"`
}

// JobSpec is what a caller asks for. It never changes once it is on record.
type JobSpec struct {
	Source   Source    `json:"source"`
	Commands []Command `json:"commands"`
	// Image is the name or digest of a root image.
	Image  string            `json:"image"`
	Env    map[string]string `json:"env,omitempty"`
	Limits Limits            `json:"limits"`
	// KernelOnly keeps the job from where its sandbox has no kernel of its own. Who
	// takes jobs sets it, and not who asks for them.
	KernelOnly bool `json:"kernel_only,omitempty"`
	// Timeout bounds the whole job, from the creation of its sandbox.
	Timeout time.Duration `json:"timeout"`
	// Artifacts are globs of files that are kept when the commands have ended,
	// whatever their outcome.
	Artifacts []string          `json:"artifacts,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	// MaxAttempts is how many sandboxes the job may be given when
	// infrastructure is lost under it; 0 is 1. A program that fails is never
	// tried again.
	MaxAttempts int `json:"max_attempts,omitempty"`
}

// MaxCommands is how many commands a job may have. It is not more than a sandbox
// keeps of those that ended (package execenv): a worker that takes over finds
// each of them, and none is run twice because it was forgotten.
const MaxCommands = 64

// Command is one program of a job.
type Command struct {
	Argv []string `json:"argv"`
	// Dir is relative to the workspace, without "..".
	Dir string            `json:"dir,omitempty"`
	Env map[string]string `json:"env,omitempty"`
	// Stdin is what the program reads as standard input.
	Stdin []byte `json:"stdin,omitempty"`
	// EndAtLimit names those of AtLimits that end the command when it reaches
	// them.
	EndAtLimit []Limit `json:"end_at_limit,omitempty"`
	// Timeout lowers the wall clock limit for this command; 0 leaves it.
	Timeout time.Duration `json:"timeout,omitempty"`
	// ContinueOnFailure lets the next command start when this one failed. The
	// job fails all the same.
	ContinueOnFailure bool `json:"continue_on_failure,omitempty"`
}

// SourceKind says where a job's files come from.
type SourceKind string

const (
	// SourceNone: the workspace starts empty.
	SourceNone SourceKind = "none"
	// SourceFixture: the sample repository (REQUIREMENTS B6).
	SourceFixture SourceKind = "fixture"
	// SourceArchive: a tar archive that was uploaded before.
	SourceArchive SourceKind = "archive"
	// SourceRepository: a git repository, at a ref.
	SourceRepository SourceKind = "repository"
)

// Source names the files of a job.
type Source struct {
	Kind SourceKind `json:"kind"`
	// Upload is the id of an uploaded archive, for SourceArchive.
	Upload string `json:"upload,omitempty"`
	// Repository is an HTTPS URL without credentials and Ref a branch, a tag,
	// a full ref or a commit, for SourceRepository.
	Repository string `json:"repository,omitempty"`
	Ref        string `json:"ref,omitempty"`
	// Depth is how many commits of the history come with it; 0 is one, and -1
	// all of them.
	Depth int `json:"depth,omitempty"`
}

// Resolved is what the parts of a job turned out to be.
type Resolved struct {
	// Commit is the git commit that was checked out.
	Commit string `json:"commit,omitempty"`
	// ArchiveDigest is the digest ("sha256:…") of the tar that was unpacked.
	ArchiveDigest string `json:"archive_digest,omitempty"`
	// ImageDigest is the root image's.
	ImageDigest string `json:"image_digest,omitempty"`
	// Isolation and Environment say what the sandbox was made of.
	Isolation   string `json:"isolation,omitempty"`
	Environment string `json:"environment,omitempty"`
	// Artifacts says, for people, which of the files that were asked for are
	// not kept, and why. It is empty when nothing is wrong.
	Artifacts string `json:"artifacts,omitempty"`
	// Waiting says, for people, why no execution service has taken the job yet,
	// while it is queued or starting.
	Waiting string `json:"waiting,omitempty"`
}

// Step is one command of an attempt, started or about to be. It is on record
// before the command starts, so a command of which there is no Step did not run.
type Step struct {
	Index int `json:"index"`
	// Outcome is nil until it is known.
	Outcome *Outcome `json:"outcome,omitempty"`
	// StdoutBytes and StderrBytes count what the program wrote, kept or not.
	StdoutBytes int64         `json:"stdout_bytes"`
	StderrBytes int64         `json:"stderr_bytes"`
	Truncated   bool          `json:"truncated"`
	StartedAt   time.Time     `json:"started_at,omitzero"`
	Duration    time.Duration `json:"duration"`
}

// Artifact is a file a job left, as it was kept.
type Artifact struct {
	// Path is relative to the workspace, with "/" between names.
	Path   string `json:"path"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
	// Key is where its bytes are in the object store.
	Key string `json:"key"`
}

// LogEntry is a piece of what a job's commands wrote. Entries of a job are in
// the order they were read; Seq is 1 for the first and grows by 1.
type LogEntry struct {
	Seq     int64 `json:"seq"`
	Attempt int   `json:"attempt"`
	Step    int   `json:"step"`
	// Stream is "stdout" or "stderr".
	Stream string `json:"stream"`
	// Offset is where Data begins in the log of the step, which counts the
	// kept bytes of both streams.
	Offset int64     `json:"offset"`
	Data   []byte    `json:"data"`
	At     time.Time `json:"at"`
}
