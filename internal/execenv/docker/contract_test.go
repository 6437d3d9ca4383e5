package docker

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/execenvtest"
	"github.com/agentdock/agentdock/internal/testenv"
)

func TestContract(t *testing.T) {
	daemon := testenv.StartDockerd(t)
	daemon.ImportBare()
	execenvtest.Run(t, execenvtest.Harness{
		New:                func(t *testing.T) execenv.Environment { return openTest(t, daemon, stateDir(t, daemon)) },
		Image:              testenv.BareImage,
		Many:               50, // each takes a daemon a quarter of a second
		Leftovers:          leftovers,
		KillInfrastructure: killSupervisor,
		Restart:            restart,
		FailCreate:         failCreate,
		FailDestroy:        failDestroy,
	})
}

// testEnvironment is the real one with ways to break it.
type testEnvironment struct {
	*Environment
	daemon *testenv.Dockerd
	broken sync.Map
}

func (e *testEnvironment) Create(ctx context.Context, spec execenv.Spec) (execenv.Sandbox, error) {
	if _, ok := e.broken.Load(spec.ID); ok {
		// The container is made, and cannot be started.
		_ = os.Rename(e.guest(), e.guest()+".away")
		defer func() { _ = os.Rename(e.guest()+".away", e.guest()) }()
	}
	return e.Environment.Create(ctx, spec)
}

// stateDir is a directory that the daemon's user can reach.
func stateDir(t *testing.T, daemon *testenv.Dockerd) string {
	t.Helper()
	dir, err := os.MkdirTemp(daemon.Dir, "state")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func openTest(t *testing.T, daemon *testenv.Dockerd, dir string, changes ...func(*Config)) *testEnvironment {
	t.Helper()
	guest, err := builtGuest()
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Socket: daemon.Socket, StateDir: dir, Guest: guest}
	for _, change := range changes {
		change(&cfg)
	}
	e, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	e.freeTimeout = 10 * time.Second
	t.Cleanup(func() {
		if e.lock == nil {
			return
		}
		if err := e.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return &testEnvironment{Environment: e, daemon: daemon}
}

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := testDir(); err == nil {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

var testDir = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "docker-test") })

var builtGuest = sync.OnceValues(func() (string, error) {
	dir, err := testDir()
	if err != nil {
		return "", err
	}
	guest := filepath.Join(dir, "agentdock-guest")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", guest, "github.com/agentdock/agentdock/cmd/agentdock-guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build the guest helper: %w\n%s", err, out)
	}
	return guest, nil
})

func inner(env execenv.Environment) *testEnvironment { return env.(*testEnvironment) }

// leftovers names what an environment without sandboxes still has on the host.
func leftovers(t *testing.T, env execenv.Environment) []string {
	e := inner(env)
	var left []string
	for _, id := range e.daemon.Containers(labelInstance + "=" + e.instance) {
		left = append(left, "container "+id)
	}
	files, _ := filepath.Glob(e.sandboxesDir() + "/*")
	left = append(left, files...)
	// A supervisor has nothing of its environment in its command line, but its
	// mounts have.
	mounts, _ := filepath.Glob("/proc/[0-9]*/mounts")
	for _, m := range mounts {
		data, _ := os.ReadFile(m)
		cmdline, _ := os.ReadFile(filepath.Join(filepath.Dir(m), "cmdline"))
		if strings.Contains(string(data), e.cfg.StateDir+"/") && strings.HasPrefix(string(cmdline), guestPath) {
			left = append(left, fmt.Sprintf("process %s: %q", m, cmdline))
		}
	}
	return left
}

func (e *testEnvironment) mustFind(t *testing.T, id string) *box {
	t.Helper()
	b, ok := e.boxes.Find(id)
	if !ok {
		t.Fatalf("sandbox %s does not exist", id)
	}
	return b
}

func killSupervisor(t *testing.T, env execenv.Environment, id string) {
	e := inner(env)
	b := e.mustFind(t, id)
	if err := unix.Kill(e.daemon.Pid(b.name()), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// restart starts an environment on the state of another that is just dropped, its
// sandboxes running.
func restart(t *testing.T, env execenv.Environment) execenv.Environment {
	e := inner(env)
	if err := e.lock.Close(); err != nil {
		t.Fatal(err)
	}
	e.lock = nil
	e.stop()
	e.watching.Wait()
	t.Cleanup(func() {
		for _, b := range e.boxes.All() {
			_ = b.Free()
		}
		_ = e.engine.Close()
	})
	return openTest(t, e.daemon, e.cfg.StateDir, func(c *Config) { c.AllowRootful = e.cfg.AllowRootful })
}

func failCreate(_ *testing.T, env execenv.Environment, id string) (heal func()) {
	inner(env).broken.Store(id, true)
	return func() { inner(env).broken.Delete(id) }
}

// failDestroy mounts something in the sandbox's directory, which can then not be
// removed.
func failDestroy(t *testing.T, env execenv.Environment, id string) (heal func()) {
	e := inner(env)
	b := e.mustFind(t, id)
	if _, err := e.Attach(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(b.controlDir(), b.controlDir(), "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := unix.Unmount(b.controlDir(), 0); err != nil {
			t.Error(err)
		}
	}
}
