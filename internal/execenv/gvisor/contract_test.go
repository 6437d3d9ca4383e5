package gvisor

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
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/image"
	"github.com/agentdock/agentdock/internal/testenv"
)

func TestContract(t *testing.T) {
	testenv.RequireRoot(t)
	execenvtest.Run(t, execenvtest.Harness{
		New:                newTestEnvironment,
		Image:              "bare",
		Leftovers:          leftovers,
		KillInfrastructure: killSentry,
		SpoilPaused:        spoilPaused,
		Restart:            restart,
		FailCreate:         failCreate,
		FailDestroy:        failDestroy,
	})
}

// testEnvironment is the real one with a way to break the creation of chosen
// sandboxes: they get an image that is none.
type testEnvironment struct {
	*Environment
	broken sync.Map
}

func (e *testEnvironment) Create(ctx context.Context, spec execenv.Spec) (execenv.Sandbox, error) {
	if _, ok := e.broken.Load(spec.ID); ok {
		spec.Image = "corrupt"
	}
	return e.Environment.Create(ctx, spec)
}

func newTestEnvironment(t *testing.T) execenv.Environment {
	t.Helper()
	return openTestEnvironment(t, t.TempDir(), withGateway(t))
}

func openTestEnvironment(t *testing.T, stateDir string, changes ...func(*Config)) *testEnvironment {
	t.Helper()
	files, err := testFiles()
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{StateDir: stateDir, Guest: files.guest, Images: files, CgroupParent: testenv.CgroupParent}
	for _, change := range changes {
		change(&cfg)
	}
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	e.freeTimeout = 2 * time.Second
	t.Cleanup(func() {
		if e.lock == nil {
			return
		}
		if err := e.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return &testEnvironment{Environment: e}
}

// fixtureFiles are what every test environment needs, made once in a process.
type fixtureFiles struct{ guest, bare, corrupt string }

func (f fixtureFiles) Resolve(name string) (path, digest string, err error) {
	switch name {
	case "bare":
		return f.bare, "sha256:bare", nil
	case "corrupt":
		return f.corrupt, "sha256:corrupt", nil
	}
	return "", "", fault.New(fault.NotFound, "image %s does not exist", name)
}

var testDir = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "gvisor-test") })

var testFiles = sync.OnceValues(func() (fixtureFiles, error) {
	dir, err := testDir()
	if err != nil {
		return fixtureFiles{}, err
	}
	f := fixtureFiles{
		guest: filepath.Join(dir, "agentdock-guest"), bare: filepath.Join(dir, "bare.erofs"),
		corrupt: filepath.Join(dir, "corrupt.erofs"),
	}
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", f.guest, "github.com/agentdock/agentdock/cmd/agentdock-guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return f, fmt.Errorf("cannot build the guest helper: %w\n%s", err, out)
	}
	if err := os.WriteFile(f.corrupt, make([]byte, 1<<16), 0o600); err != nil {
		return f, err
	}
	return f, image.WriteBare(f.bare)
})

func inner(env execenv.Environment) *testEnvironment { return env.(*testEnvironment) }

// leftovers names what an environment without sandboxes still has on the host.
func leftovers(t *testing.T, env execenv.Environment) []string {
	e := inner(env)
	var left []string
	groups, err := e.hierarchy.Group(e.group).Children()
	if err != nil {
		t.Error(err)
	}
	for _, g := range groups {
		left = append(left, "cgroup "+g)
	}
	for _, pattern := range []string{e.sandboxesDir() + "/*", e.cfg.StateDir + "/runsc/*"} {
		files, _ := filepath.Glob(pattern)
		left = append(left, files...)
	}
	for _, pid := range testenv.Descendants(os.Getpid()) {
		cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if strings.Contains(string(cmdline), e.cfg.StateDir+"/") {
			left = append(left, fmt.Sprintf("process %d: %q", pid, cmdline))
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Error(err)
	}
	for _, m := range strings.Split(string(mounts), "\n") {
		if strings.Contains(m, e.cfg.StateDir) {
			left = append(left, "mount "+m)
		}
	}
	return left
}

func killSentry(t *testing.T, env execenv.Environment, id string) {
	b, ok := inner(env).boxes.Find(id)
	if !ok {
		t.Fatalf("sandbox %s does not exist", id)
	}
	if err := unix.Kill(b.sentry.Getpid(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// spoilPaused changes one bit of a state in the middle of it.
func spoilPaused(t *testing.T, env execenv.Environment, id string) {
	b, ok := inner(env).boxes.Find(id)
	if !ok {
		t.Fatalf("sandbox %s does not exist", id)
	}
	f := b.saved.file
	at, one := b.saved.bytes/2, make([]byte, 1)
	if _, err := f.ReadAt(one, at); err != nil {
		t.Fatal(err)
	}
	one[0] ^= 1
	if _, err := f.WriteAt(one, at); err != nil {
		t.Fatal(err)
	}
}

// restart starts an environment on the state of another that is just dropped,
// its sandboxes running: what a crash leaves, and worse, since the kernel would
// have ended them.
func restart(t *testing.T, env execenv.Environment) execenv.Environment {
	e := inner(env)
	if err := e.lock.Close(); err != nil {
		t.Fatal(err)
	}
	e.lock = nil
	return openTestEnvironment(t, e.cfg.StateDir)
}

func failCreate(_ *testing.T, env execenv.Environment, id string) (heal func()) {
	inner(env).broken.Store(id, true)
	return func() { inner(env).broken.Delete(id) }
}

// failDestroy puts a group below the sandbox's, which therefore cannot be removed.
func failDestroy(t *testing.T, env execenv.Environment, id string) (heal func()) {
	e := inner(env)
	child := e.hierarchy.Group(filepath.Join(e.group, id, "in-the-way"))
	if _, err := e.Attach(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	for _, d := range child.Dirs() {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		if err := child.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	}
}
