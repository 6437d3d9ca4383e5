package docker

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/testenv"
)

// TestAStormTakesNoMoreThanItsShare: all sandboxes of a daemon are one user to the
// kernel, which bounds them together. One that forks as fast as it can leaves
// others what they need, and ends by its clock.
func TestAStormTakesNoMoreThanItsShare(t *testing.T) {
	daemon := testenv.StartDockerd(t)
	daemon.ImportBare()
	e := openTest(t, daemon, stateDir(t, daemon))
	if e.Environment.daemon.pids {
		t.Fatal("this daemon bounds the processes of each sandbox, so there is no storm to see")
	}
	bad, good := create(t, e, "bad"), create(t, e, "good")
	putProgram(t, bad, "storm", storm())
	const limit = 4 * time.Second
	const tooFar = 2 // as in the supervisor
	x, err := bad.Exec(t.Context(), execenv.ExecSpec{Argv: []string{"/workspace/storm"}, Timeout: limit})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan execenv.Result, 1)
	go func() { ended <- wait(t, x) }()
	supervisor, most, ran := daemon.Pid(e.mustFind(t, "bad").name()), 0, 0
	look := func() []int {
		now := testenv.Descendants(supervisor)
		most = max(most, len(now))
		return now
	}
	// Until it is noticed, it takes what it can get.
	var r execenv.Result
	for over := false; !over && !heldBack(look()); {
		select {
		case r = <-ended:
			over = true
		default:
		}
	}
	over := r.Duration > 0
	for {
		neighbour, err := good.Exec(t.Context(), execenv.ExecSpec{Argv: []string{guestPath, "probe", "fork", "8"}})
		if err != nil {
			t.Fatal(err)
		}
		if r := wait(t, neighbour); !r.Outcome.Success() {
			t.Errorf("after the storm was noticed, a command beside it ends as %v (%s)", r.Outcome, r.Outcome.Evidence)
		}
		ran++
		if over {
			break
		}
		if now := len(look()); now > tooFar*shareOfProcesses {
			t.Errorf("the storm has %d processes again", now)
		}
		select {
		case r = <-ended:
			over = true
		default:
		}
	}
	t.Logf("the storm had up to %d processes and ended as %s after %s: %s; %d commands ran beside it", most, r.Outcome, r.Duration, r.Outcome.Evidence, ran)
	// A storm can also have taken what its own shepherd needed.
	if !strings.Contains(r.Outcome.Evidence, "may have 512 here") && !strings.Contains(r.Outcome.Evidence, "could not go on") {
		t.Errorf("the storm had up to %d processes, its share is %d, and its evidence says %q", most, shareOfProcesses, r.Outcome.Evidence)
	}
	switch r.Outcome.Kind {
	case run.WallClock, run.Signalled:
	default:
		t.Errorf("the storm ended as %v", r.Outcome)
	}
	// What was taken from the storm is not taken from the sandbox.
	if r := wait(t, start(t, bad, guestPath, "probe", "fork", "8")); !r.Outcome.Success() || strings.Contains(r.Outcome.Evidence, "may have") {
		t.Errorf("after the storm, a command there ends as %v (%s)", r.Outcome, r.Outcome.Evidence)
	}
}

// heldBack says whether one of these processes may make no more.
func heldBack(pids []int) bool {
	for _, pid := range pids {
		limits, _ := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
		if _, most, ok := strings.Cut(string(limits), "Max processes"); ok && strings.HasPrefix(strings.TrimSpace(most), "0 ") {
			return true
		}
	}
	return false
}

// TestAProgramStopsAllThatStart: whoever is between two steps of a start is stopped
// too, and goes on. No command is without its limit for that, and nothing is lost.
func TestAProgramStopsAllThatStart(t *testing.T) {
	daemon := testenv.StartDockerd(t)
	daemon.ImportBare()
	e := openTest(t, daemon, stateDir(t, daemon))
	sb := create(t, e, "one")
	putProgram(t, sb, "stop-all", program86([]byte{
		0xbf, 0xff, 0xff, 0xff, 0xff, 0xbe, 19, 0, 0, 0, 0xb8, 62, 0, 0, 0, 0x0f, 0x05, 0xeb, 0xed, // kill(-1, SIGSTOP), again and again
	}))
	const limit = 500 * time.Millisecond
	bad, err := sb.Exec(t.Context(), execenv.ExecSpec{Argv: []string{"/workspace/stop-all"}, Timeout: 4 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		x, err := sb.Exec(t.Context(), execenv.ExecSpec{Argv: []string{guestPath, "probe", "hold"}, Timeout: limit})
		if err != nil {
			t.Fatal(err)
		}
		// How soon is up to the two of them: what stops it is as fast as what ends it.
		if r := wait(t, x); r.Outcome.Kind != run.WallClock {
			t.Errorf("command %d ended as %v (%s) after %s", i, r.Outcome, r.Outcome.Evidence, r.Duration)
		}
	}
	if r := wait(t, bad); r.Outcome.Kind != run.WallClock {
		t.Errorf("it ended as %v (%s)", r.Outcome, r.Outcome.Evidence)
	}
	if info, err := sb.Info(t.Context()); err != nil || info.State != execenv.StateRunning {
		t.Errorf("the sandbox is %+v, %v", info, err)
	}
}

func start(t *testing.T, sb execenv.Sandbox, argv ...string) execenv.Exec {
	t.Helper()
	x, err := sb.Exec(t.Context(), execenv.ExecSpec{Argv: argv})
	if err != nil {
		t.Fatal(err)
	}
	return x
}
