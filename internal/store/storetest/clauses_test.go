package storetest

import (
	"go/parser"
	"go/token"
	"regexp"
	"testing"
)

// TestEveryClauseHasACase reads the protocol from the port's package comment.
func TestEveryClauseHasACase(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "../store.go", nil, parser.ParseComments|parser.PackageClauseOnly)
	if err != nil {
		t.Fatal(err)
	}
	clauses := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^ *- ([A-Z]\d+)\. `).FindAllStringSubmatch(f.Doc.Text(), -1) {
		clauses[m[1]] = 0
	}
	if len(clauses) < 25 {
		t.Fatalf("found %d clauses in the package comment: %v", len(clauses), clauses)
	}
	names := map[string]bool{}
	for _, c := range Cases() {
		if _, ok := clauses[c.Clause]; !ok {
			t.Errorf("case %s is about a clause that the protocol does not have", c.Test())
		}
		clauses[c.Clause]++
		if names[c.Test()] {
			t.Errorf("two cases are named %s", c.Test())
		}
		names[c.Test()] = true
	}
	for clause, n := range clauses {
		if n == 0 {
			t.Errorf("clause %s has no case", clause)
		}
	}
}
