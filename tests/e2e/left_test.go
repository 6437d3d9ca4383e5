package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

const patience = 20 * time.Second

// notes are what a script has seen while a run was going on.
type notes struct{ cgroups map[string]bool }

type notesKeyType struct{}

var notesKey = notesKeyType{}

// cmdKilled starts a command, waits until its program has printed "started",
// sends it signals, and wants it to end with a status, or by a signal:
// killed 130 INT command args…
func cmdKilled(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: killed STATUS SIGNAL[,SIGNAL…] command [args…]")
	}
	path, err := exec.LookPath(filepath.Join(strings.Split(ts.Getenv("PATH"), ":")[0], args[2]))
	ts.Check(err)
	cmd := exec.Command(path, args[3:]...)
	cmd.Env = []string{}
	for _, name := range []string{"PATH", "AGENTDOCK_RUNTIME_DIR", "AGENTDOCK_IMAGE_DIR", "AGENTDOCK_URL", "AGENTDOCK_API_KEY"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	out := &watched{word: []byte("started"), seen: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = time.Second
	ts.Check(cmd.Start())
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is in its ProcessState
		close(ended)
	}()
	select {
	case <-out.seen:
	case <-ended:
		ts.Fatalf("it ended before its program started: %s: %s", cmd.ProcessState, out)
	case <-time.After(patience):
		_ = cmd.Process.Kill()
		ts.Fatalf("its program did not start: %s", out)
	}
	note(ts)
	for _, name := range strings.Split(args[1], ",") {
		sig, ok := map[string]syscall.Signal{"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL, "HUP": syscall.SIGHUP}[name]
		if !ok {
			// A process of the run, not the command itself.
			victim, err := find(ts.Getenv("AGENTDOCK_RUNTIME_DIR"), name)
			ts.Check(err)
			ts.Check(syscall.Kill(victim, syscall.SIGKILL))
			continue
		}
		_ = cmd.Process.Signal(sig)
		time.Sleep(20 * time.Millisecond) // two Ctrl-C are never one
	}
	select {
	case <-ended:
	case <-time.After(patience):
		_ = cmd.Process.Kill()
		ts.Fatalf("it goes on after %s: %s", args[1], out)
	}
	ts.Logf("%s", out)
	got := strconv.Itoa(cmd.ProcessState.ExitCode())
	if st, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && st.Signaled() {
		got = "signal"
	}
	if got != args[0] {
		ts.Fatalf("it ended with %s, want %s: %s", got, args[0], out)
	}
}

// cmdNothingLeft wants that of all runs of this script nothing is left: no
// process, no control group, no file. "nothingleft groups" leaves files to the
// next run, "nothingleft processes" control groups as well.
func cmdNothingLeft(ts *testscript.TestScript, neg bool, args []string) {
	dir := ts.Getenv("AGENTDOCK_RUNTIME_DIR")
	var left []string
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		left = processes(dir)
		if len(args) == 0 {
			entries, err := os.ReadDir(dir)
			ts.Check(err)
			for _, e := range entries {
				left = append(left, filepath.Join(dir, e.Name()))
			}
		}
		if len(args) == 0 || args[0] == "groups" {
			for group := range seen(ts).cgroups {
				if _, err := os.Stat(group); !errors.Is(err, fs.ErrNotExist) {
					left = append(left, group)
				}
			}
		}
		if len(left) == 0 {
			return
		}
		// Only what was killed outright may take a moment.
		if time.Now().After(deadline) || len(seen(ts).cgroups) == 0 {
			ts.Fatalf("left: %q", left)
		}
	}
}

func seen(ts *testscript.TestScript) *notes { return ts.Value(notesKey).(*notes) }

// note is look, where there must be something to be seen.
func note(ts *testscript.TestScript) {
	if look(ts); len(seen(ts).cgroups) == 0 {
		ts.Fatalf("no process of the run is in a control group: the test looks in the wrong place")
	}
}

// look remembers the control groups of every process of the runs.
func look(ts *testscript.TestScript) {
	n := seen(ts)
	for _, p := range processes(ts.Getenv("AGENTDOCK_RUNTIME_DIR")) {
		text, err := os.ReadFile("/proc/" + strings.Fields(p)[0] + "/cgroup")
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
			if len(parts) != 3 || !strings.Contains(parts[2], "/agentdock/") {
				continue
			}
			if n.cgroups == nil {
				n.cgroups = map[string]bool{}
			}
			for _, controller := range strings.Split(parts[1], ",") {
				group := filepath.Join("/sys/fs/cgroup", controller, parts[2])
				n.cgroups[group], n.cgroups[filepath.Dir(group)] = true, true
			}
		}
	}
}

// processes lists those whose arguments name the directory: the execution
// service, and each sandbox.
func processes(dir string) []string {
	var found []string
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err == nil && bytes.Contains(text, []byte(dir+"/")) {
			found = append(found, fmt.Sprintf("%s %s", strings.Split(name, "/")[2], bytes.ReplaceAll(text, []byte{0}, []byte{' '})))
		}
	}
	return found
}

func find(dir, name string) (pid int, err error) {
	for _, p := range processes(dir) {
		fields := strings.Fields(p)
		if filepath.Base(fields[1]) == name {
			return strconv.Atoi(fields[0])
		}
	}
	return 0, fmt.Errorf("no process %s", name)
}

// watched keeps output and says when a word has been seen in it.
type watched struct {
	word []byte
	seen chan struct{}

	mu   sync.Mutex
	data []byte
	once sync.Once
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.data = append(w.data, p...)
	if bytes.Contains(w.data, w.word) {
		w.once.Do(func() { close(w.seen) })
	}
	return len(p), nil
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.data)
}
