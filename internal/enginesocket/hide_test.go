package enginesocket

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/agentdock/agentdock/internal/testenv"
)

// hiding is set where the test binary is the process that hides engines.
const hiding = "ENGINESOCKET_TEST_HIDING"

func TestMain(m *testing.M) {
	if os.Getenv(hiding) != "" {
		hideWhenTold()
		return
	}
	os.Exit(m.Run())
}

// hideWhenTold hides once for each line it reads, and answers with what could be
// found before, what was hidden and what can be found after.
func hideWhenTold() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		before, err := Here().Find()
		hidden, hideErr := Here().Hide()
		after, afterErr := Here().Find()
		fmt.Printf("%q %q %q %v\n", before, hidden, after, firstOf(err, hideErr, afterErr, Here().Refuse()))
	}
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// engine listens at a place where engines are looked for.
func engine(t *testing.T, place string) net.Listener {
	t.Helper()
	_ = os.Remove(place) // as an engine does that starts again
	l, err := net.Listen("unix", place)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	return l
}

func mustConnect(t *testing.T, place string) {
	t.Helper()
	c, err := net.Dial("unix", place)
	if err != nil {
		t.Fatalf("for everybody else it must go on: %v", err)
	}
	c.Close()
}

// TestHide hides real sockets from a process in a mount namespace of its own.
func TestHide(t *testing.T) {
	testenv.RequireRoot(t)
	dir, err := os.MkdirTemp("", "es") // short: a socket's path has a limit
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	docker, podman := filepath.Join(dir, "docker.sock"), filepath.Join(dir, "podman/podman.sock")
	if err := os.Mkdir(filepath.Dir(podman), 0o755); err != nil {
		t.Fatal(err)
	}
	first := engine(t, docker)
	// A second name of the same socket.
	if err := os.Link(docker, podman); err != nil {
		t.Fatal(err)
	}
	ask := hider(t, dir)

	if got, want := ask(), fmt.Sprintf("%q %q [] <nil>", []string{docker}, []string{docker, podman}); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	mustConnect(t, docker)
	if got, want := ask(), "[] [] [] <nil>"; got != want {
		t.Errorf("again: got %s, want %s", got, want)
	}
	// The engine is started again: its socket is another file, without a cover.
	first.Close()
	engine(t, docker)
	if got, want := ask(), fmt.Sprintf("%[1]q %[1]q [] <nil>", []string{docker}); got != want {
		t.Errorf("after it has started again: got %s\nwant %s", got, want)
	}
	mustConnect(t, docker)
}

// TestHideFailsWhereItCannot: without the right to mount, the way stays open and
// is named.
func TestHideFailsWhereItCannot(t *testing.T) {
	testenv.RequireRoot(t)
	dir, err := os.MkdirTemp("", "es")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	place := filepath.Join(dir, "docker.sock")
	engine(t, place)
	for _, name := range []string{dir, place} {
		if err := os.Chmod(name, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	ask := hider(t, dir, func(a *syscall.SysProcAttr) { a.Credential = &syscall.Credential{Uid: 65534, Gid: 65534} })
	if got := ask(); !strings.HasPrefix(got, fmt.Sprintf("%[1]q [] %[1]q", []string{place})) || !strings.Contains(got, "cannot be hidden") {
		t.Errorf("got %s", got)
	}
}

// hider starts a process that hides whenever it is asked to, in a mount
// namespace of its own.
func hider(t *testing.T, runtimeDir string, change ...func(*syscall.SysProcAttr)) (ask func() string) {
	t.Helper()
	self, err := os.Open("/proc/self/exe") // which another user can execute, wherever it lies
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { self.Close() })
	cmd := exec.Command("/proc/self/fd/3")
	cmd.ExtraFiles = []*os.File{self}
	cmd.Dir = "/"
	cmd.Env = []string{hiding + "=1", "XDG_RUNTIME_DIR=" + runtimeDir}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	for _, f := range change {
		f(cmd.SysProcAttr)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	answers := bufio.NewReader(out)
	return func() string {
		t.Helper()
		fmt.Fprintln(in)
		answer, err := answers.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSuffix(answer, "\n")
	}
}
