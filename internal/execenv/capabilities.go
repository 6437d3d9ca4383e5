package execenv

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
	// hold is refused.
	Enforces Enforces
	// TTY: terminals work (O6).
	TTY bool
	// NetworkNone: commands have no network (G1).
	NetworkNone bool
	// Unprivileged: commands run as 10001:10001 without capabilities (X2).
	Unprivileged bool
	// ReadOnlyRoot: only the places of G2 can be written.
	ReadOnlyRoot bool
	// DiskBeyondMemory: the disk limit may be above the memory limit (G5).
	DiskBeyondMemory bool
}

// Enforces has one field per limit.
type Enforces struct {
	CPU, Memory, PIDs, Disk, Inodes, Output, WallClock bool
}
