// Package execenvtest is the contract suite of the port execenv: one case or
// more for every numbered clause of its protocol, run against every adapter
// and through the wire.
//
// A case knows the port and nothing else: what an environment does not
// enforce is told by its Capabilities, never by its name. Cases run the probe
// (package probe beside this one), a vocabulary of small programs, as
//
//	exit N · echo ARG… · args ARG… · env · pwd · cat · hold
//	streams N            N numbered lines to each stream, in turn
//	bytes                every byte value, and what is no UTF-8
//	flood STREAM N       N bytes of the pattern i%251
//	raise N · trap N…    end by a signal · print the signals that come
//	ignore-term · stop-self
//	take SOCKET · give SOCKET
//	                     take a file there, and hold · send stdout there, then cat
//	forkbomb · forkstorm processes until EAGAIN · processes without end
//	family FILE · daemon FILE [stop]
//	                     a child, a detached one, that beats in FILE
//	ps                   the processes to be seen
//	alloc N · intact FILE · fill FILE [cope|hold] · touch DIR N [cope|hold]
//	                     until an error, then makes room or goes on
//	write · read · remove · mkdir · symlink · mkfifo · mksock · tree
//	writable · id · net [tcp:ADDR | udp:ADDR | lookup:NAME]…
//	listen NET ADDR · dial NET ADDR · proxy ADDR NAME:PORT
//	tty · winch N
//
// Verbs that fail print "error NAME" and exit with the error's number.
package execenvtest

import (
	"sort"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/clauses"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/run"
)

// Harness is what the suite needs to know about an environment. Only New and
// Image are required.
type Harness struct {
	// New makes a fresh environment, which the test's clean-up closes. Every
	// case calls it once.
	New func(t *testing.T) execenv.Environment
	// Image goes into Spec.Image. It needs no contents: the probe is static.
	Image string
	// Probe is the probe's contents; nil builds the real one. It is put into
	// the workspace of each sandbox as ".probe".
	Probe []byte
	// Leftovers names what the host still holds for an environment without
	// sandboxes (processes, cgroups, mounts, files). Checked after each case.
	Leftovers func(t *testing.T, env execenv.Environment) []string
	// KillInfrastructure ends a sandbox from outside, as a crash would (X10).
	KillInfrastructure func(t *testing.T, env execenv.Environment, id string)
	// SpoilPaused changes what a paused sandbox would be resumed from (P13).
	SpoilPaused func(t *testing.T, env execenv.Environment, id string)
	// Restart ends the owner of env as kill -9 would and starts a new one
	// on the same state.
	Restart func(t *testing.T, env execenv.Environment) execenv.Environment
	// FailCreate makes creating this ID fail half-way, FailDestroy makes
	// freeing it fail, until the function returned is called.
	FailCreate, FailDestroy func(t *testing.T, env execenv.Environment, id string) (heal func())
	// Served says that an execution service stands before the environment. It
	// fills in limits that a Spec leaves at zero and bounds every lifetime.
	Served bool
	// Only, if set, says which cases are run: what another run of the same
	// environment shows is not shown again.
	Only func(clauses.Case) bool
	// Many is how many sandboxes the case about many makes; 0 is 200.
	Many int
	// Patience is how long a case waits for what must happen; 0 is a minute.
	Patience time.Duration
}

// testCase is a row of a case table.
type testCase struct {
	clause, name string
	// needs, if set, names a capability the environment lacks for the case.
	needs func(execenv.Capabilities, Harness) (missing string)
	run   func(*C)
	// alone keeps the case from running beside others.
	alone bool
}

func tables() []testCase {
	var all []testCase
	for _, table := range [][]testCase{
		createCases, destroyCases, lifecycleCases, extendCases, pauseCases,
		outcomeCases, notStartedCases, surroundingCases,
		clockCases, treeCases, limitCases, atLimitCases, execCases,
		outputCases, inputCases, ttyCases,
		putCases, hostileArchiveCases, getCases,
		isolationCases, networkCases, concurrencyCases,
	} {
		all = append(all, table...)
	}
	sort.SliceStable(all, func(i, j int) bool { return clauseLess(all[i].clause, all[j].clause) })
	return all
}

// clauseLess orders clauses as the protocol does: P, X, O, A, G, by number.
func clauseLess(a, b string) bool {
	const order = "PXOAG"
	if a[0] != b[0] {
		return strings.IndexByte(order, a[0]) < strings.IndexByte(order, b[0])
	}
	if len(a) != len(b) {
		return len(a) < len(b)
	}
	return a < b
}

// Cases lists the suite, in the protocol's order.
func Cases() []clauses.Case {
	var infos []clauses.Case
	for _, c := range tables() {
		infos = append(infos, clauses.Case{Clause: c.clause, Name: c.name})
	}
	return infos
}

// NotEnforceable begins the message of every case that is skipped because the
// environment declares that it cannot hold what the case is about.
const NotEnforceable = "not enforceable here: "

// Run runs the suite. Each case is a subtest, named by its clause.
func Run(t *testing.T, h Harness) {
	if h.Patience == 0 {
		h.Patience = time.Minute
	}
	before := goroutines()
	var ran, skipped, partly atomic.Int32
	t.Run("cases", func(t *testing.T) {
		for _, tc := range tables() {
			if h.Only != nil && !h.Only(clauses.Case{Clause: tc.clause, Name: tc.name}) {
				continue
			}
			t.Run(tc.clause+"_"+tc.name, func(t *testing.T) {
				if !tc.alone {
					t.Parallel()
				}
				c := newCase(t, h)
				if tc.needs != nil {
					if missing := tc.needs(c.caps, h); missing != "" {
						skipped.Add(1)
						t.Skip(NotEnforceable + missing)
					}
				}
				ran.Add(1)
				c.watch(tc.run)
				if len(c.unknown) > 0 {
					partly.Add(1)
				}
			})
		}
	})
	noGoroutinesLeft(t, before)
	t.Logf("%d cases ran, %d of them in part; %d not enforceable here", ran.Load(), partly.Load(), skipped.Load())
}

// notKnown notes that a part of the case is left out, because the environment
// declares that it cannot tell when a command reaches that limit.
func (c *C) notKnown(l run.Limit) {
	c.Helper()
	what := "telling that a command reached its " + string(l) + " limit"
	if !c.unknown[what] {
		c.unknown[what] = true
		c.Log("in part " + NotEnforceable + what)
	}
}

// What a case may need.

func needsTTY(caps execenv.Capabilities, _ Harness) string { return unless(caps.TTY, "terminals") }

func needsMemory(caps execenv.Capabilities, _ Harness) string {
	return unless(caps.Enforces.Memory, "memory limit")
}

func needsPIDs(caps execenv.Capabilities, _ Harness) string {
	return unless(caps.Enforces.PIDs, "pids limit")
}

func needsDisk(caps execenv.Capabilities, _ Harness) string {
	return unless(caps.Enforces.Disk, "disk limit")
}

func needsDiskBeyondMemory(caps execenv.Capabilities, _ Harness) string {
	return unless(caps.Enforces.Disk && caps.Enforces.Memory && caps.DiskBeyondMemory, "disk limit above the memory limit")
}

func needsDiskReport(caps execenv.Capabilities, _ Harness) string {
	return unless(caps.Enforces.Disk && caps.Reports.Disk, "telling that a command reached its disk limit")
}

func needsInodes(caps execenv.Capabilities, _ Harness) string {
	return unless(caps.Enforces.Inodes, "inode limit")
}

func needsOutput(caps execenv.Capabilities, _ Harness) string {
	return unless(caps.Enforces.Output, "output limit")
}

func needsClock(caps execenv.Capabilities, _ Harness) string {
	return unless(caps.Enforces.WallClock, "wall clock limit")
}

func needsUnprivileged(caps execenv.Capabilities, _ Harness) string {
	return unless(caps.Unprivileged, "unprivileged user")
}

func needsReadOnlyRoot(caps execenv.Capabilities, _ Harness) string {
	return unless(caps.ReadOnlyRoot, "read-only root")
}

func needsNoNetwork(caps execenv.Capabilities, _ Harness) string {
	return unless(caps.NetworkNone, "no network")
}

func needsWayOut(caps execenv.Capabilities, _ Harness) string {
	return unless(caps.NetworkAllow, "a way out")
}

func needsKill(_ execenv.Capabilities, h Harness) string {
	return unless(h.KillInfrastructure != nil, "killing a sandbox from outside")
}

func needsRestart(_ execenv.Capabilities, h Harness) string {
	return unless(h.Restart != nil, "restart of the owner")
}

func needsFailCreate(_ execenv.Capabilities, h Harness) string {
	return unless(h.FailCreate != nil, "making Create fail half-way")
}

func needsFailDestroy(_ execenv.Capabilities, h Harness) string {
	return unless(h.FailDestroy != nil, "making Destroy fail")
}

func unless(ok bool, missing string) string {
	if ok {
		return ""
	}
	return missing
}
