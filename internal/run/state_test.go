package run

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/run-states.md")

const statesDoc = "../../docs/run-states.md"

func TestNothingLeavesATerminalState(t *testing.T) {
	for _, m := range Moves() {
		if m.From.Terminal() {
			t.Errorf("%s → %s leaves a terminal state", m.From, m.To)
		}
	}
}

func TestEveryStateCanEnd(t *testing.T) {
	for _, from := range States() {
		if from.Terminal() {
			continue
		}
		for _, to := range []State{Failed, StateCancelled} {
			if !from.CanMove(to) {
				t.Errorf("a job that is %s cannot become %s", from, to)
			}
		}
	}
}

func TestEveryStateCanBeReached(t *testing.T) {
	reached := map[State]bool{Queued: true}
	for range States() {
		for _, m := range Moves() {
			if reached[m.From] {
				reached[m.To] = true
			}
		}
	}
	for _, s := range States() {
		if !reached[s] {
			t.Errorf("no way leads to %s", s)
		}
	}
}

func TestStatesDocumentIsCurrent(t *testing.T) {
	want := renderStates()
	if *update {
		if err := os.WriteFile(statesDoc, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(statesDoc)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/run-states.md is not what the table says; run go test ./internal/run -update")
	}
}

func renderStates() string {
	var b strings.Builder
	b.WriteString("# States of a job\n\nGenerated from `run.Moves` (`internal/run/state.go`). A store refuses every other move.\n\n")
	b.WriteString("```mermaid\nstateDiagram-v2\n    [*] --> queued\n")
	for _, m := range Moves() {
		fmt.Fprintf(&b, "    %s --> %s\n", m.From, m.To)
	}
	for _, s := range States() {
		if s.Terminal() {
			fmt.Fprintf(&b, "    %s --> [*]\n", s)
		}
	}
	b.WriteString("```\n\n| from | to | when |\n|---|---|---|\n")
	for _, m := range Moves() {
		fmt.Fprintf(&b, "| `%s` | `%s` | %s |\n", m.From, m.To, m.When)
	}
	return b.String()
}
