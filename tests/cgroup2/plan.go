// Package cgroup2 shows that the limits and the evidence for them work on a
// host with pure cgroup v2, which is what most hosts are, on any machine that
// has QEMU. Its test boots a small virtual machine in which everything runs
// for real: the execution service, gVisor, the contract suite.
package cgroup2

// PlanFile is where the machine's init finds its Plan.
const PlanFile = "/plan.json"

// Plan is what the machine does between its start and its end, as JSON.
type Plan struct{ Steps []Step }

// Step is one program that the machine runs. What it prints goes to the console.
type Step struct {
	// Name stands in the lines that begin and end the step's output.
	Name string
	Argv []string
	Env  []string
	// Group is the control group that the program is started in, relative to
	// the root of the hierarchy; init makes it. Empty for the root.
	Group string
	// Controllers are what the parents of Group, all but the root, hand on.
	// Empty: all that the root has.
	Controllers []string
	// Contained gives the program a control group namespace of its own, whose
	// root is Group: what a container sees.
	Contained bool
	// Seconds bounds the step.
	Seconds int
}

// The machine's init prints these at the beginning of lines: Begin and a step's
// name, End and a step's name and exit status, and Done after the last step.
const (
	Begin = "@@begin "
	End   = "@@end "
	Done  = "@@done"
)
