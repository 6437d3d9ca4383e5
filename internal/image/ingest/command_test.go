package ingest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// waitFor polls for what another process does.
func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out: %s", what)
		}
	}
}

// mentioned reports whether a process has text in its command line.
func mentioned(t *testing.T, text string) bool {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lines {
		if data, err := os.ReadFile(l); err == nil && strings.Contains(string(data), text) {
			return true
		}
	}
	return false
}

// treeScript starts a process in a session of its own, mounts something, says
// so, and then ignores every signal that can be ignored.
func treeScript(dir string) string {
	return "trap '' TERM INT HUP; mount -t tmpfs none " + dir + " && touch " + dir + "/mounted; " +
		"setsid sh -c 'trap \"\" TERM INT HUP; : " + dir + "; while :; do sleep 1; done' & " +
		"grep -q " + dir + " /proc/self/mounts && echo > " + dir + ".ready; wait"
}

// TestTreeEndsWithItsMounts is the case of a build that was killed and left
// its /proc mounted in the host's namespace.
func TestTreeEndsWithItsMounts(t *testing.T) {
	requireReal(t)
	point := filepath.Join(t.TempDir(), "tree-point")
	if err := os.Mkdir(point, 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- runTree(ctx, exec.Command("/bin/sh", "-c", treeScript(point)), true) }()
	waitFor(t, "the mount", func() bool { _, err := os.Stat(point + ".ready"); return err == nil })
	if _, err := os.Stat(filepath.Join(point, "mounted")); err == nil {
		t.Error("what the tree mounts is seen outside")
	}
	if !mentioned(t, point) {
		t.Fatal("the case proves nothing: no process is there")
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("error: %v", err)
	}
	if mentioned(t, point) {
		t.Error("a process outlives its tree")
	}
	if mounts, _ := os.ReadFile("/proc/self/mounts"); strings.Contains(string(mounts), point) {
		t.Error("a mount outlives its tree")
	}
}

const treeEnv = "AGENTDOCK_INGEST_TEST_TREE"

func TestMain(m *testing.M) {
	if point := os.Getenv(treeEnv); point != "" {
		_ = runTree(context.Background(), exec.Command("/bin/sh", "-c", treeScript(point)), true)
		return
	}
	os.Exit(m.Run())
}

func TestTreeEndsWithUsEvenWhenKilled(t *testing.T) {
	requireReal(t)
	point := filepath.Join(t.TempDir(), "tree-point")
	if err := os.Mkdir(point, 0o755); err != nil {
		t.Fatal(err)
	}
	parent := exec.Command("/proc/self/exe")
	parent.Env = append(os.Environ(), treeEnv+"="+point)
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the mount", func() bool { _, err := os.Stat(point + ".ready"); return err == nil })
	if err := parent.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	waitFor(t, "the end of the tree", func() bool { return !mentioned(t, point) })
}
