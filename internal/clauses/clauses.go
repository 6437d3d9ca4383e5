// Package clauses holds a contract suite to the protocol of its port.
//
// A port's protocol is its package comment: a list of clauses, each with a
// letter and a number ("P1"). A suite is a table of cases, each about one
// clause.
package clauses

import (
	"fmt"
	"go/parser"
	"go/token"
	"regexp"
	"testing"
)

// Case says which clause a case is about ("P1"), and what it shows
// ("create_is_idempotent").
type Case struct{ Clause, Name string }

// Test is the case's subtest: "P1_create_is_idempotent".
func (c Case) Test() string { return c.Clause + "_" + c.Name }

var clause = regexp.MustCompile(`(?m)^ *- ([A-Z]\d+)\. `)

// Read finds the clauses in the package comment of a Go file, in their order.
func Read(file string) ([]string, error) {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.PackageClauseOnly)
	if err != nil {
		return nil, fmt.Errorf("cannot read the protocol: %w", err)
	}
	var names []string
	for _, m := range clause.FindAllStringSubmatch(f.Doc.Text(), -1) {
		names = append(names, m[1])
	}
	return names, nil
}

// Hold fails the test for every clause of the protocol that no case is about,
// every case about a clause that is not there, and every name given twice.
func Hold(t testing.TB, file string, cases []Case) {
	t.Helper()
	protocol, err := Read(file)
	if err != nil {
		t.Fatal(err)
	}
	about := map[string]int{}
	for _, name := range protocol {
		if _, twice := about[name]; twice {
			t.Errorf("the protocol has two clauses %s", name)
		}
		about[name] = 0
	}
	named := map[string]bool{}
	for _, c := range cases {
		if _, ok := about[c.Clause]; !ok {
			t.Errorf("case %s is about a clause that the protocol does not have", c.Test())
		}
		about[c.Clause]++
		if named[c.Test()] {
			t.Errorf("two cases are named %s", c.Test())
		}
		named[c.Test()] = true
	}
	for _, name := range protocol {
		if about[name] == 0 {
			t.Errorf("clause %s has no case", name)
		}
	}
}
