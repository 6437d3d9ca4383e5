// Package storetest is the contract suite of the port store: one case or more
// for every numbered clause of its protocol, run against every adapter. A case
// knows the port and nothing else.
package storetest

import (
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/clauses"
	"github.com/agentdock/agentdock/internal/store"
)

// Harness is what the suite needs to know about an adapter. Place and Open are
// required.
type Harness struct {
	// Place makes room for an empty record and returns its name. The test's
	// clean-up removes it.
	Place func(t *testing.T) string
	// Open opens the record at a place. The suite closes it.
	Open func(place string) (store.Store, error)
	// Shared says that a record may be open more than once.
	Shared bool
	// Outage takes the database away from a record that is open, until back is
	// called (G2).
	Outage func(t *testing.T, place string) (back func())
	// ClockBack steps the record's clock back. Where nothing can, it leaves
	// leases as such a step would (L5).
	ClockBack func(t *testing.T, place string, by time.Duration)
	// Tamper tries, as the owner of the database, to change and to delete what
	// is in the audit log, and returns how each try ended (A1).
	Tamper func(t *testing.T, place string, s store.Store) []error
	// Drift names the counters that are not what can be counted.
	Drift func(s store.Store) ([]string, error)
	// Child names what runs ChildMain in a process of its own (G3): arguments
	// of this test binary.
	Child []string
	// Backlog is how many queued jobs a tenant has that must not delay another
	// (L3); 0 is 10,000.
	Backlog int
	// Patience is how long a case waits for what must happen; 0 is a minute.
	Patience time.Duration
}

// testCase is a row of a case table.
type testCase struct {
	clause, name string
	// needs, if set, names what the harness lacks for the case.
	needs func(Harness) (missing string)
	run   func(*C)
}

func tables() []testCase {
	all := slices.Concat(createCases, readCases, listCases, cancelCases, moveCases,
		claimCases, fairCases, quotaCases, leaseCases, stepCases, logCases, endCases, artifactCases, sandboxCases,
		tenantCases, uploadCases, auditCases, afterCases, hintCases, alwaysCases)
	slices.SortStableFunc(all, func(a, b testCase) int { return clauseOrder(a.clause) - clauseOrder(b.clause) })
	return all
}

// clauseOrder orders clauses as the protocol does: by letter, then by number.
func clauseOrder(clause string) int {
	n, _ := strconv.Atoi(clause[1:])
	return strings.IndexByte("JLSTUARHG", clause[0])*100 + n
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
// harness cannot bring about what the case is about.
const NotEnforceable = "not enforceable here: "

// RunCase runs one case, named as in clauses.Case.Test.
func RunCase(t *testing.T, h Harness, name string) {
	t.Helper()
	for _, tc := range tables() {
		if tc.clause+"_"+tc.name == name {
			h.runCase(t, tc)
			return
		}
	}
	t.Fatalf("there is no case %s", name)
}

func (h Harness) runCase(t *testing.T, tc testCase) {
	if h.Patience == 0 {
		h.Patience = time.Minute
	}
	if h.Backlog == 0 {
		h.Backlog = 10_000
	}
	c := newCase(t, h)
	tc.run(c)
	c.whole()
}

// Run runs the suite. Each case is a subtest, named by its clause.
func Run(t *testing.T, h Harness) {
	var ran, skipped atomic.Int32
	t.Run("cases", func(t *testing.T) {
		for _, tc := range tables() {
			t.Run(tc.clause+"_"+tc.name, func(t *testing.T) {
				t.Parallel()
				if tc.needs != nil {
					if missing := tc.needs(h); missing != "" {
						skipped.Add(1)
						t.Skip(NotEnforceable + missing)
					}
				}
				ran.Add(1)
				h.runCase(t, tc)
			})
		}
	})
	t.Logf("%d cases ran, %d not enforceable here", ran.Load(), skipped.Load())
}

func needsOutage(h Harness) string { return unless(h.Outage != nil, "taking the database away") }

func needsClockBack(h Harness) string { return unless(h.ClockBack != nil, "a clock that steps back") }

func needsShared(h Harness) string { return unless(h.Shared, "several processes at once") }

func needsTamper(h Harness) string {
	return unless(h.Tamper != nil, "statements of the database's owner")
}

func needsChild(h Harness) string { return unless(h.Child != nil, "a process to kill") }

func unless(ok bool, missing string) string {
	if ok {
		return ""
	}
	return missing
}
