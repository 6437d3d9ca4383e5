package hostile

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table into SECURITY.md")

// The table stands between these lines of the document.
const (
	document   = "../../SECURITY.md"
	tableBegin = "<!-- table of tests/hostile: begin -->\n"
	tableEnd   = "<!-- table of tests/hostile: end -->"
)

// counts is a row of the table.
type counts struct {
	cases, controls, dangerous int
	accepted                   []string
}

func count(f family) (c counts) {
	for _, a := range f.cases {
		c.cases++
		if a.bites.how != "" {
			c.controls++
		}
		if a.dangerous {
			c.dangerous++
		}
		if a.accepted != "" {
			c.accepted = append(c.accepted, a.accepted)
		}
	}
	return c
}

// table is what SECURITY.md says about the suite.
func table() string {
	var b strings.Builder
	var sum counts
	var accepted []string
	b.WriteString("| family | cases | with a control | too dangerous for one | what is tried |\n|---|---|---|---|---|\n")
	for _, f := range families() {
		c := count(f)
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %s |\n", f.name, c.cases, c.controls, c.dangerous, f.about)
		sum.cases, sum.controls, sum.dangerous = sum.cases+c.cases, sum.controls+c.controls, sum.dangerous+c.dangerous
		for _, text := range c.accepted {
			if !slices.Contains(accepted, text) {
				accepted = append(accepted, text)
			}
		}
	}
	fmt.Fprintf(&b, "| all | %d | %d | %d | |\n\n", sum.cases, sum.controls, sum.dangerous)
	b.WriteString("What gets through and is left at that, because it is bounded or has no effect outside of the sandbox:\n\n")
	for _, text := range accepted {
		fmt.Fprintf(&b, "- %s.\n", strings.ToUpper(text[:1])+text[1:])
	}
	return b.String()
}

func TestTableIsCurrent(t *testing.T) {
	data, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(data), tableBegin)
	old, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", document)
	}
	if old == table() {
		return
	}
	if !*update {
		t.Fatalf("the table in %s is not current; write it with: go test ./tests/hostile -run TestTableIsCurrent -update\nwant\n%s", document, table())
	}
	if err := os.WriteFile(document, []byte(before+tableBegin+table()+tableEnd+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
