package chaos

import (
	"errors"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/run"
)

// What the run reports as zero must be able to be more.
func TestTheJudgeBites(t *testing.T) {
	promised := planned{spec: execenv.ExecSpec{Timeout: time.Second}, code: 7, output: "exit 7\n"}
	holds := planned{spec: execenv.ExecSpec{Timeout: time.Second}, code: -1}
	exited := func(code int) execenv.Result { return execenv.Result{Outcome: run.ExitedWith(code, "")} }
	ended := func(k run.Kind, after time.Duration) execenv.Result {
		return execenv.Result{Outcome: run.Outcome{Kind: k}, Duration: after}
	}
	for name, c := range map[string]struct {
		p      planned
		r      execenv.Result
		out    string
		outErr error
		bad    bool
		excuse bool
	}{
		"its own code":             {p: promised, r: exited(7), out: "exit 7\n"},
		"a code nobody gave":       {p: promised, r: exited(0), out: "exit 7\n", bad: true},
		"128 and a signal":         {p: promised, r: exited(137), out: "exit 7\n", bad: true},
		"an end that cannot be":    {p: holds, r: exited(0), bad: true},
		"output lost":              {p: promised, r: exited(7), out: "ex", bad: true},
		"output lost with a word":  {p: promised, r: exited(7), out: "ex", outErr: errors.New("cut")},
		"output made up":           {p: promised, r: exited(7), out: "exit 8\n", bad: true},
		"the clock too early":      {p: holds, r: ended(run.WallClock, time.Millisecond), bad: true},
		"the clock":                {p: holds, r: ended(run.WallClock, time.Second)},
		"cancelled by nobody":      {p: holds, r: ended(run.Cancelled, 0), bad: true},
		"out of memory by nothing": {p: holds, r: ended(run.OutOfMemory, 0), bad: true},
		"lost":                     {p: holds, r: ended(run.InfrastructureLost, 0), excuse: true},
	} {
		bad, excuse := c.p.judge(c.r, c.out, c.outErr)
		if (bad != "") != c.bad || (excuse != nil) != c.excuse {
			t.Errorf("%s: %q, %v", name, bad, excuse)
		}
	}
}
