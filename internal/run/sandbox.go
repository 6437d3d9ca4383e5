package run

import (
	"slices"
	"time"
)

// Sandbox is a live sandbox on record: one that a caller drives command by
// command, until it is killed or its time is over.
type Sandbox struct {
	ID       string      `json:"id"`
	TenantID string      `json:"tenant_id"`
	Spec     SandboxSpec `json:"spec"`

	State SandboxState `json:"state"`
	// Node names the execution service that has, or had, the sandbox. It is on
	// record before the sandbox exists.
	Node string `json:"node,omitempty"`
	// AccessToken opens this sandbox and nothing else, for as long as it lives;
	// then it is empty. It is no part of what is shown.
	AccessToken string `json:"-"`
	// Outcome is set once the end has begun.
	Outcome *Outcome `json:"outcome,omitempty"`
	// Resolved says what image and environment turned out to be.
	Resolved Resolved `json:"resolved"`

	CreatedAt time.Time `json:"created_at"`
	// ExpiresAt is when its time is over, and Deadline what no extension passes.
	ExpiresAt time.Time `json:"expires_at"`
	Deadline  time.Time `json:"deadline"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
}

// SandboxSpec is what a caller asks for. It never changes once it is on record.
// The values of variables are not on record: a caller may have put something
// into them that nobody should find there.
type SandboxSpec struct {
	// Image is the name or digest of a root image.
	Image    string            `json:"image"`
	EnvNames []string          `json:"env_names,omitempty"`
	Limits   Limits            `json:"limits"`
	Labels   map[string]string `json:"labels,omitempty"`
}

// SandboxState is where a live sandbox stands.
type SandboxState string

const (
	// SandboxCreating: on record; it may exist.
	SandboxCreating SandboxState = "creating"
	// SandboxRunning: commands can run.
	SandboxRunning SandboxState = "running"
	// SandboxPaused: it is out of memory, and goes on where it was when it is resumed.
	SandboxPaused SandboxState = "paused"
	// SandboxEnding: nothing can run any more, and something may be left of it.
	SandboxEnding SandboxState = "ending"
	// SandboxEnded: nothing is left but the record.
	SandboxEnded SandboxState = "ended"
)

// SandboxStates lists every state in the order a sandbox passes through them.
func SandboxStates() []SandboxState {
	return []SandboxState{SandboxCreating, SandboxRunning, SandboxPaused, SandboxEnding, SandboxEnded}
}

// CanMove reports whether a sandbox may go from s to to. But for a pause it only
// ever goes forward, and to its end through ending: its tenant's quota is free again when
// the sandbox is, and not when somebody asked for that.
func (s SandboxState) CanMove(to SandboxState) bool {
	switch to {
	case SandboxRunning:
		return s == SandboxCreating || s == SandboxPaused
	case SandboxPaused:
		return s == SandboxRunning
	case SandboxEnding:
		return s.Alive()
	case SandboxEnded:
		return s == SandboxEnding
	}
	return false
}

// Alive reports whether the sandbox can be used, now or soon, or when it is resumed.
func (s SandboxState) Alive() bool {
	return s == SandboxCreating || s == SandboxRunning || s == SandboxPaused
}

// Known reports whether there is such a state.
func (s SandboxState) Known() bool { return slices.Contains(SandboxStates(), s) }
