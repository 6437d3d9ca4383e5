package queuetest

import (
	"go/parser"
	"go/token"
	"regexp"
	"testing"
)

// TestEveryClauseHasACase reads the protocol from the port's package comment.
func TestEveryClauseHasACase(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "../queue.go", nil, parser.ParseComments|parser.PackageClauseOnly)
	if err != nil {
		t.Fatal(err)
	}
	clauses := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^ *- ([A-Z]\d+)\. `).FindAllStringSubmatch(f.Doc.Text(), -1) {
		clauses[m[1]] = 0
	}
	if len(clauses) < 6 {
		t.Fatalf("found %d clauses in the package comment: %v", len(clauses), clauses)
	}
	for _, c := range Cases() {
		if _, ok := clauses[c.Clause]; !ok {
			t.Errorf("case %s is about a clause that the protocol does not have", c.Name)
		}
		clauses[c.Clause]++
	}
	for clause, n := range clauses {
		if n == 0 {
			t.Errorf("clause %s has no case", clause)
		}
	}
}
