package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
)

func TestOnlyAProvenHostIsOK(t *testing.T) {
	for name, tc := range map[string]struct {
		statuses []Status
		ok       bool
	}{
		"all hold":            {[]Status{Holds, Holds}, true},
		"some left out":       {[]Status{Holds, Skipped}, true},
		"nothing looked at":   {nil, false},
		"everything left out": {[]Status{Skipped}, false},
		"one broken":          {[]Status{Holds, Broken}, false},
		"one unproven":        {[]Status{Holds, Unproven}, false},
	} {
		r := Report{}
		for _, s := range tc.statuses {
			r.Guarantees = append(r.Guarantees, Guarantee{ID: "A1", Name: "kernel isolation", Status: s})
		}
		r.judge()
		if want := map[bool]int{true: 0, false: 1}[tc.ok]; r.OK != tc.ok || r.ExitStatus() != want {
			t.Errorf("%s: ok %v, exit status %d", name, r.OK, r.ExitStatus())
		}
	}
}

// An attack that is refused counts only if its control comes through.
func TestVerdicts(t *testing.T) {
	for name, tc := range map[string]struct {
		finding finding
		err     error
		want    Status
		do      string
	}{
		"refused, and the control bites": {finding{refused: true, bites: true}, nil, Holds, ""},
		"refused, as is the control":     {finding{refused: true}, nil, Unproven, "control"},
		"came through":                   {finding{bites: true}, nil, Broken, "mend it"},
		"came through, control failed":   {finding{}, nil, Broken, "mend it"},
		"not tried":                      {finding{refused: true, bites: true}, errors.New("no"), Unproven, "run it again"},
	} {
		c := check{id: "A1", name: "x", do: "mend it", run: func(context.Context, *session) (finding, error) { return tc.finding, tc.err }}
		g := c.examine(t.Context(), nil)
		if g.Status != tc.want || !strings.Contains(g.Do, tc.do) || (tc.do == "") != (g.Do == "") {
			t.Errorf("%s: %+v", name, g)
		}
	}
}

func TestTheTextSaysWhatToDo(t *testing.T) {
	r := Report{
		Host:         []Fact{{Name: "kernel", Value: "Linux 6", OK: true}, {Name: "user", Value: "uid 7", Do: "run this as root"}},
		Environments: []EnvironmentReport{{Name: "gvisor", Version: "v1", Runs: true}, {Name: "other", Reason: "it is\nnot there"}},
		Guarantees: []Guarantee{
			{ID: "A1", Name: "kernel isolation", Status: Holds, Evidence: "refused", Control: "came through"},
			{ID: "A5a", Name: "no network", Status: Broken, Evidence: "reached \x1b[31mit", Do: "do not run here"},
			{ID: "C3", Name: "nothing left", Status: Skipped},
		},
	}
	r.judge()
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"ok  kernel", "!!  user", "-> run this as root", "ok  gvisor v1", "!!  other cannot run: it is not there",
		"refused (control: came through)", "-> do not run here",
		"1 of 3 guarantees do not hold here: A5a no network (broken); 1 left out by --quick.",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, text.String())
		}
	}
	if strings.ContainsRune(text.String(), 0x1b) {
		t.Error("a control character came through")
	}
	var object bytes.Buffer
	if err := r.WriteJSON(&object); err != nil {
		t.Fatal(err)
	}
	var back map[string]any
	if err := json.Unmarshal(object.Bytes(), &back); err != nil || back["ok"] != false || strings.Count(object.String(), "\n") != 1 {
		t.Errorf("JSON is %s, %v", object.String(), err)
	}
}

func TestWithoutRootTheHostIsStillDescribed(t *testing.T) {
	if os.Geteuid() == 0 {
		r := Report{}
		r.cannotRun("gvisor", "not root", "run this as root")
		if r.judge(); r.OK || len(r.Guarantees) != len(checks) || r.Guarantees[0].Do != "run this as root" {
			t.Errorf("report is %+v", r)
		}
		return
	}
	r, err := Run(t.Context(), Options{ImageDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if r.ExitStatus() != 1 || len(r.Host) < 8 || len(r.Environments) != 1 || r.Environments[0].Runs {
		t.Errorf("report is %+v", r)
	}
}

// Every check cites a requirement that SECURITY.md explains and says what to do.
func TestChecksCiteRequirements(t *testing.T) {
	doc, err := os.ReadFile("../../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range checks {
		if !strings.Contains(string(doc), "| "+c.id+" |") {
			t.Errorf("%s: SECURITY.md has no row %s", c.name, c.id)
		}
		if c.do == "" {
			t.Errorf("%s: nothing is said to do", c.name)
		}
	}
}
