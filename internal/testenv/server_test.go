package testenv

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestServersLeaveNothing: servers are killed, started again, held and let go,
// and neither a process nor a directory is left of them.
func TestServersLeaveNothing(t *testing.T) {
	var dirs []string
	var gone []chan struct{}
	t.Run("servers", func(t *testing.T) {
		p := StartPostgres(t)
		back := p.Cut(p.Database())
		back()
		p.Crash()
		p.Start()
		p.Pause()
		p.Resume()
		p.Stop()
		p.Start()
		p.Pause() // the end of the test finds it so
		r := StartRedis(t)
		r.Kill()
		r.Start()
		dirs, gone = []string{p.dir, r.dir}, []chan struct{}{p.gone, r.gone}
	})
	if len(dirs) == 0 && !t.Failed() {
		t.Skip("no servers")
	}
	for i := range dirs {
		if _, err := os.Stat(dirs[i]); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", dirs[i], err)
		}
		select {
		case <-gone[i]:
		default:
			t.Errorf("the server in %s runs on", dirs[i])
		}
	}
}

// killedVar makes this binary the test that is killed.
const killedVar = "AGENTDOCK_TESTENV_KILLED"

// TestServersEndWithAKilledTest: a test is killed that has paused its servers.
func TestServersEndWithAKilledTest(t *testing.T) {
	if os.Getenv(killedVar) != "" {
		p, r := StartPostgres(t), StartRedis(t)
		pids := append(Descendants(os.Getpid()), p.cmd.Process.Pid, r.cmd.Process.Pid)
		p.Pause()
		r.Pause()
		fmt.Println("\nservers", p.dir, r.dir, pids)
		<-t.Context().Done() // until it is killed
		return
	}
	RequireRoot(t)
	requireProgram(t, "redis-server", "redis-server")
	cmd := exec.Command(os.Args[0], "-test.run=^TestServersEndWithAKilledTest$", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), killedVar+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var dirs []string
	var pids []int
	for lines := bufio.NewScanner(out); len(dirs) == 0 && lines.Scan(); {
		if said, ok := strings.CutPrefix(lines.Text(), "servers "); ok {
			names, numbers, _ := strings.Cut(said, " [")
			dirs = strings.Fields(names)
			for _, n := range strings.Fields(strings.TrimSuffix(numbers, "]")) {
				var pid int
				if _, err := fmt.Sscan(n, &pid); err != nil {
					t.Error(err)
				}
				pids = append(pids, pid)
			}
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
	if len(dirs) != 2 || len(pids) < 5 {
		t.Fatalf("the child said %q, %v", dirs, pids)
	}
	deadline := time.Now().Add(time.Minute)
	for _, pid := range pids {
		for alive(pid, dirs) {
			if time.Now().After(deadline) {
				t.Fatalf("process %d is left", pid)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	for _, dir := range dirs {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	}
}

// alive reports whether a process runs in one of the directories.
func alive(pid int, dirs []string) bool {
	cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	if err != nil {
		return false // it is gone, or nothing but its exit status is left
	}
	for _, dir := range dirs {
		if cwd == dir || strings.HasPrefix(cwd, filepath.Clean(dir)+"/") {
			return true
		}
	}
	return false
}
