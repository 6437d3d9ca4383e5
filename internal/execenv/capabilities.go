package execenv

import "github.com/agentdock/agentdock/internal/run"

// Isolation is the class of boundary between the program and the host.
type Isolation string

const (
	// IsolationNone: no boundary; only for tests.
	IsolationNone Isolation = "none"
	// IsolationContainer: the program makes system calls to the host's kernel
	// through namespaces and filters. For development only (A6).
	IsolationContainer Isolation = "container"
	// IsolationKernel: the program's system calls end in a kernel of its own.
	IsolationKernel Isolation = "kernel"
)

// Capabilities say what an environment enforces and offers. Callers and tests
// branch on them, never on an adapter's name.
type Capabilities struct {
	// Name is for people and receipts ("gvisor").
	Name string
	// Version of the isolating runtime.
	Version   string
	Isolation Isolation
	// Enforces says which limits hold. A Spec that sets one that does not
	// hold is refused; one that holds must be set.
	Enforces Enforces
	// Reports says of which limits it is known that a command has reached them:
	// LimitsHit names those, and EndAtLimit may name no other (X9, X11).
	Reports Reports
	// TTY: terminals work (O6).
	TTY bool
	// NetworkNone: commands have no network (G1).
	NetworkNone bool
	// NetworkAllow: a Spec may have a Network (G6).
	NetworkAllow bool
	// Unprivileged: commands run as 10001:10001 without capabilities (X2).
	Unprivileged bool
	// ReadOnlyRoot: only the places of G2 can be written.
	ReadOnlyRoot bool
	// Pause: sandboxes can be paused and resumed (P10).
	Pause bool
	// DiskBeyondMemory: the disk limit may be above the memory limit (G5).
	DiskBeyondMemory bool
}

// Enforces has one field per limit.
type Enforces struct {
	CPU, Memory, PIDs, Disk, Inodes, Output, WallClock bool
}

// Allow is l without the limits that do not hold: what a caller gets who insists
// on none of them.
func (e Enforces) Allow(l run.Limits) run.Limits {
	for _, f := range limitFields(&l, e) {
		if !f.enforced {
			*f.value = 0
		}
	}
	return l
}

// Missing names the limits that do not hold.
func (e Enforces) Missing() []string {
	var names []string
	for _, f := range limitFields(&run.Limits{}, e) {
		if !f.enforced {
			names = append(names, f.name)
		}
	}
	return names
}

// limitField is one limit: its name, where its value is, and whether it holds.
type limitField struct {
	name     string
	value    *int64
	enforced bool
}

func limitFields(l *run.Limits, e Enforces) []limitField {
	return []limitField{
		{"cpu", &l.MilliCPU, e.CPU},
		{"memory", &l.MemoryBytes, e.Memory},
		{"pids", &l.PIDs, e.PIDs},
		{"disk", &l.DiskBytes, e.Disk},
		{"inodes", &l.Inodes, e.Inodes},
		{"output", &l.OutputBytes, e.Output},
		{"wall clock", (*int64)(&l.WallClock), e.WallClock},
	}
}

// Reports has one field for each of run.AtLimits.
type Reports struct {
	PIDs, Disk, Inodes, Output bool
}

// Has says whether it is known that a command has reached limit l.
func (r Reports) Has(l run.Limit) bool {
	switch l {
	case run.LimitPIDs:
		return r.PIDs
	case run.LimitDisk:
		return r.Disk
	case run.LimitInodes:
		return r.Inodes
	case run.LimitOutput:
		return r.Output
	}
	return false
}
