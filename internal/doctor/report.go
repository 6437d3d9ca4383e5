// Package doctor finds out what a host gives. It looks at the host, starts an
// execution service of its own, and attacks a real sandbox with the probes of
// the guest helper (REQUIREMENTS C2).
//
// A probe that is refused proves nothing by itself: it may be broken, or try
// the wrong thing. So each has a control: the same attempt where the guarantee
// is absent, which must succeed. A guarantee holds here only if both came out.
package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Status of a guarantee.
type Status string

const (
	// Holds: the attack was refused, and the control shows that it is one.
	Holds Status = "holds"
	// Broken: the attack came through.
	Broken Status = "broken"
	// Unproven: it was not tried, or the control did not bite.
	Unproven Status = "unproven"
	// Declared: the environment says that it gives this. It is not attacked here.
	Declared Status = "declared"
	// NotEnforced: the environment declares that it does not give this.
	NotEnforced Status = "not enforced"
	// Skipped: Options.Quick left it out.
	Skipped Status = "skipped"
)

// Fact is something about the host.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// OK is false where it keeps something from working; Do says what to do.
	OK bool   `json:"ok"`
	Do string `json:"do,omitempty"`
}

// EnvironmentReport says whether an execution environment can run here.
type EnvironmentReport struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	Runs    bool   `json:"runs"`
	// Reason says why not, or what it lacks.
	Reason string `json:"reason,omitempty"`
}

// Guarantee is one line of the answer.
type Guarantee struct {
	// ID is the requirement's.
	ID     string `json:"id"`
	Name   string `json:"name"`
	Status Status `json:"status"`
	// Evidence is what came of the attack, Control what came of the same
	// attempt where the guarantee is absent.
	Evidence string `json:"evidence,omitempty"`
	Control  string `json:"control,omitempty"`
	// Do says what to do about one that does not hold.
	Do         string `json:"do,omitempty"`
	DurationMS int64  `json:"duration_ms"`
}

// Report is the whole answer.
type Report struct {
	// OK: every guarantee that was not skipped holds.
	OK    bool `json:"ok"`
	Quick bool `json:"quick"`
	// Development says that sandboxes are the development fallback.
	Development  bool                `json:"development"`
	Host         []Fact              `json:"host"`
	Environments []EnvironmentReport `json:"environments"`
	Guarantees   []Guarantee         `json:"guarantees"`
}

// judge sets OK: nothing that must hold is broken or unproven, and something
// was looked at.
func (r *Report) judge() {
	holds := 0
	r.OK = true
	for _, g := range r.Guarantees {
		switch g.Status {
		case Holds:
			holds++
		case Skipped:
		default:
			r.OK = false
		}
	}
	r.OK = r.OK && holds > 0
}

// ExitStatus is 0 only if all that must hold does.
func (r *Report) ExitStatus() int {
	if r.OK {
		return 0
	}
	return 1
}

// WriteJSON writes one object on one line.
func (r *Report) WriteJSON(w io.Writer) error { return json.NewEncoder(w).Encode(r) }

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "HOST")
	for _, f := range r.Host {
		mark := "ok"
		if !f.OK {
			mark = "!!"
		}
		fmt.Fprintf(table, "  %s\t%s\t%s\n", mark, f.Name, oneLine(f.Value))
		if !f.OK && f.Do != "" {
			fmt.Fprintf(table, "  \t\t-> %s\n", oneLine(f.Do))
		}
	}
	_ = table.Flush() // into memory
	b.WriteString("\nENVIRONMENTS\n")
	for _, e := range r.Environments {
		if e.Runs && e.Reason != "" {
			fmt.Fprintf(&b, "  !!  %s %s: %s\n", e.Name, e.Version, oneLine(e.Reason))
		} else if e.Runs {
			fmt.Fprintf(&b, "  ok  %s %s\n", e.Name, e.Version)
		} else {
			fmt.Fprintf(&b, "  !!  %s cannot run: %s\n", e.Name, oneLine(e.Reason))
		}
	}
	b.WriteString("\nGUARANTEES\n")
	for _, g := range r.Guarantees {
		fmt.Fprintf(table, "  %s\t%s\t%s\t%s\n", g.ID, g.Status, g.Name, oneLine(g.explanation()))
		if g.Status != Holds && g.Status != Skipped && g.Status != Declared && g.Do != "" {
			fmt.Fprintf(table, "  \t\t\t-> %s\n", oneLine(g.Do))
		}
	}
	_ = table.Flush()
	fmt.Fprintf(&b, "\n%s\n", r.Summary())
	_, err := io.WriteString(w, b.String())
	return err
}

func (g Guarantee) explanation() string {
	if g.Control == "" {
		return g.Evidence
	}
	return g.Evidence + " (control: " + g.Control + ")"
}

// Summary is the last line.
func (r *Report) Summary() string {
	if runs := slices.ContainsFunc(r.Environments, func(e EnvironmentReport) bool { return e.Runs }); !runs && len(r.Environments) > 0 {
		return "No sandbox can be started here, so no guarantee holds."
	}
	if r.Development {
		return r.fallbackSummary()
	}
	var holds, skipped int
	var not []string
	for _, g := range r.Guarantees {
		switch g.Status {
		case Holds:
			holds++
		case Skipped:
			skipped++
		default:
			not = append(not, fmt.Sprintf("%s %s (%s)", g.ID, g.Name, g.Status))
		}
	}
	text := fmt.Sprintf("All %d guarantees hold here", holds)
	if !r.OK {
		text = fmt.Sprintf("%d of %d guarantees do not hold here: %s", len(not), len(r.Guarantees), strings.Join(not, ", "))
	}
	if skipped > 0 {
		text += fmt.Sprintf("; %d left out by --quick", skipped)
	}
	return text + "."
}

func (r *Report) fallbackSummary() string {
	var not []string
	for _, g := range r.Guarantees {
		if g.Status != Declared {
			not = append(not, g.ID+" "+g.Name)
		}
	}
	return fmt.Sprintf("Sandboxes can be started here, for development only: %d of %d guarantees are declared, and none is attacked; %d are not given here: %s.",
		len(r.Guarantees)-len(not), len(r.Guarantees), len(not), strings.Join(not, ", "))
}

// oneLine keeps what programs and kernels say from breaking the table, or the
// terminal.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0) {
			return ' '
		}
		return r
	}, strings.TrimSpace(text))
}
