package e2b

import (
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/fake"
	"github.com/agentdock/agentdock/internal/guest/filewire"
	"github.com/agentdock/agentdock/internal/interpreter"
	"github.com/agentdock/agentdock/internal/run"
)

// TestHostileKernels: whatever comes instead of events is an error, and only
// events are passed on.
func TestHostileKernels(t *testing.T) {
	const end = `{"type":"end_of_execution"}` + "\n"
	for name, c := range map[string]struct {
		says string
		ok   bool
		sent int
	}{
		"honest":            {`{"type":"stdout","text":"x"}` + "\n" + end, true, 2},
		"behind the end":    {end + `{"type":"stdout","text":"x"}` + "\n", true, 1},
		"nothing":           {"", false, 0},
		"no end":            {`{"type":"stdout","text":"x"}` + "\n", false, 1},
		"no JSON":           {"x\n" + end, false, 0},
		"another kind":      {`{"type":"order","text":"x"}` + "\n" + end, false, 0},
		"fields of its own": {`{"type":"stdout","text":"x","danger":1}` + "\n" + end, true, 2},
		"wrong types":       {`{"type":"stdout","text":{}}` + "\n" + end, false, 0},
		"an endless line":   {strings.Repeat("x", interpreter.MaxEvent+1), false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			env := fake.New(fake.Config{Programs: map[string]fake.Program{filewire.Program: func(p *fake.Proc) int {
				_, _ = io.WriteString(p.Stdout, c.says)
				return 0
			}}})
			t.Cleanup(env.Close)
			limits := run.DefaultLimits()
			limits.OutputBytes = 16 * run.MiB
			sandbox, err := env.Create(t.Context(), execenv.Spec{ID: "s", Image: "any", Limits: limits})
			if err != nil {
				t.Fatal(err)
			}
			relay, err := sandbox.Exec(t.Context(), execenv.ExecSpec{Argv: []string{filewire.Program, "relay", "/x"}})
			if err != nil {
				t.Fatal(err)
			}
			sent := 0
			err = passOn(t.Context(), relay, func(e interpreter.Event) error {
				if strings.Contains(string(ascii(e)), "danger") {
					t.Errorf("%+v", e)
				}
				sent++
				return nil
			})
			if (err == nil) != c.ok || sent != c.sent {
				t.Errorf("%d events, %v", sent, err)
			}
		})
	}
}

func TestLinesAreASCII(t *testing.T) {
	want := interpreter.Event{Type: "stdout", Text: "aé世🚀\x00\n\u2028"}
	line := ascii(want)
	for _, c := range line {
		if c > 127 {
			t.Fatalf("%q", line)
		}
	}
	var got interpreter.Event
	if err := json.Unmarshal(line, &got); err != nil || got.Text != want.Text || strings.Count(string(line), "\n") != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}
