package reason

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table into docs/checkout.md")

// TestTheDocumentHasTheTable: docs/checkout.md says what Table says.
func TestTheDocumentHasTheTable(t *testing.T) {
	const (
		document = "../../../docs/checkout.md"
		begin    = "<!-- table of reasons: begin -->\n"
		end      = "<!-- table of reasons: end -->"
	)
	var want strings.Builder
	want.WriteString("| reason | |\n|---|---|\n")
	for _, a := range Table() {
		fmt.Fprintf(&want, "| `%s` | %s |\n", a.Code, a.Means)
	}
	data, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(data), begin)
	old, after, ok2 := strings.Cut(rest, end)
	switch {
	case !ok || !ok2:
		t.Fatalf("%s has no place for the table", document)
	case old == want.String():
	case !*update:
		t.Fatalf("the table in %s is not current; write it with: go test ./internal/checkout/reason -update", document)
	default:
		if err := os.WriteFile(document, []byte(before+begin+want.String()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
