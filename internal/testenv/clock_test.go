package testenv

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

const clockVar = "AGENTDOCK_TESTENV_CLOCK"

// TestSetClock: a program that looks at its clocks all the time sees the wall
// clock step, and the steady one go on.
func TestSetClock(t *testing.T) {
	if os.Getenv(clockVar) != "" {
		go func() {
			for {
				_ = time.Now()
			}
		}()
		for start := time.Now(); ; time.Sleep(time.Millisecond) {
			fmt.Println("clocks", time.Now().UnixNano(), int64(time.Since(start)))
		}
	}
	if !CanSetClocks {
		t.Log("not here: SetClock is written for amd64 alone")
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestSetClock$")
	cmd.Env = append(os.Environ(), clockVar+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	lines := bufio.NewScanner(out)
	var before int64 // of the clock that cannot be set
	// seen waits until the child says a time that is off by so much.
	seen := func(off time.Duration) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); lines.Scan() && time.Now().Before(deadline); {
			var wall, steady int64
			if _, err := fmt.Sscanf(lines.Text(), "clocks %d %d", &wall, &steady); err != nil {
				continue
			}
			if steady < before || steady-before > int64(time.Minute) {
				t.Fatalf("the steady clock went from %d to %d", before, steady)
			}
			before = steady
			if d := time.Until(time.Unix(0, wall)) - off; d > -time.Minute && d < time.Minute {
				return
			}
		}
		t.Fatalf("the process never saw its clock off by %v", off)
	}
	seen(0)
	for range 5 {
		for _, off := range []time.Duration{time.Hour, -24 * time.Hour, 0} {
			SetClock(t, cmd.Process.Pid, off)
			seen(off)
		}
	}
}
