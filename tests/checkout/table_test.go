package checkout

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the tables into docs/checkout.md")

const document = "../../docs/checkout.md"

// tables are what the document says of this package.
func tables() map[string]string {
	var hostile, canary strings.Builder
	hostile.WriteString("| what | what it tries | what it got | reason |\n|---|---|---|---|\n")
	for _, h := range cases() {
		why := ""
		if h.want != "" {
			why = "`" + string(h.want) + "`"
		}
		fmt.Fprintf(&hostile, "| %s | %s | %s | %s |\n", h.name, h.tries, h.got, why)
	}
	canary.WriteString("| place | what is searched | secrets found | planted ones found |\n|---|---|---|---|\n")
	for _, p := range slices.Concat(places, []place{record}, onServers) {
		fmt.Fprintf(&canary, "| %s | %s | 0 | yes |\n", p.name, p.what)
	}
	return map[string]string{"hostile repositories": hostile.String(), "canary": canary.String()}
}

// TestTablesAreCurrent: the document says what the cases say, and TestCanary and
// TestHostileRepositories hold the cases to it.
func TestTablesAreCurrent(t *testing.T) {
	data, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for name, table := range tables() {
		begin, end := "<!-- table of "+name+": begin -->\n", "<!-- table of "+name+": end -->"
		before, rest, ok := strings.Cut(text, begin)
		old, after, ok2 := strings.Cut(rest, end)
		if !ok || !ok2 {
			t.Fatalf("%s has no place for the table of %s", document, name)
		}
		if old != table && !*update {
			t.Errorf("the table of %s in %s is not current; write it with: go test ./tests/checkout -run TestTablesAreCurrent -update", name, document)
		}
		text = before + begin + table + end + after
	}
	if *update {
		if err := os.WriteFile(document, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
