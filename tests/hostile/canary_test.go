package hostile

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// canaryVariable carries the canary in the environment of the test process,
// which is the service's parent.
const canaryVariable = "HOSTILE_CANARY"

// TestMain starts this program again with a canary in its environment and in its
// arguments: setting a variable later would not put it where another process
// could read it.
func TestMain(m *testing.M) {
	if os.Getenv(canaryVariable) == "" {
		self, err := os.Executable()
		if err != nil {
			panic(err)
		}
		secret := "canary-" + rand.Text()
		args := append(append([]string{}, os.Args...), "--", secret)
		env := append(os.Environ(), canaryVariable+"="+secret)
		panic(syscall.Exec(self, args, env))
	}
	os.Exit(m.Run())
}

// canary is what must be nowhere in a sandbox, and in nothing that comes out.
func canary() string { return os.Getenv(canaryVariable) }

// noCanaryIn fails the test if the canary is in a text.
func noCanaryIn(t testing.TB, what, text string) {
	t.Helper()
	if strings.Contains(text, canary()) {
		t.Errorf("the canary is in %s", what)
	}
}

// leaked remembers output that the canary was in, of any case.
var leaked struct {
	sync.Mutex
	in []string
}

func seenOutput(texts ...string) {
	for _, text := range texts {
		if strings.Contains(text, canary()) {
			leaked.Lock()
			leaked.in = append(leaked.in, clip(text))
			leaked.Unlock()
		}
	}
}

// plant puts the canary where a host has its secrets: a file for everybody, and
// a process of the user that a sandbox's programs have, with the canary in its
// arguments, environment, directory name and memory.
func plant(t testing.TB, program string) (dir string, pid int) {
	t.Helper()
	dir, err := os.MkdirTemp("", canary())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"credentials", "config.json"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("token="+canary()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, program, "hold", canary())
	cmd.Env = []string{"DATABASE_URL=postgres://user:" + canary() + "@db/agentdock", "GITHUB_TOKEN=" + canary()}
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 10001, Gid: 10001}, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if _, err := out.Read(make([]byte, 6)); err != nil {
		t.Fatal(fmt.Errorf("the process with the canary did not start: %w", err))
	}
	return dir, cmd.Process.Pid
}
