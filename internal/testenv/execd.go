package testenv

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/cgroup"
	"github.com/agentdock/agentdock/internal/execrpc"
	"github.com/agentdock/agentdock/internal/testenv/capture"
)

// CgroupParent is where tests make their control groups.
const CgroupParent = "agentdock-test"

// RequireRoot skips where sandboxes cannot be made, unless they must be.
func RequireRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	const missing = "sandboxes need root"
	if os.Getenv("AGENTDOCK_TEST_REQUIRE_REAL") == "1" {
		t.Fatal(missing)
	}
	t.Skip(missing)
}

// Execd is a real execution service, in a process of its own.
type Execd struct {
	// Socket, StateDir and Images are its own and private.
	Socket, StateDir, Images string

	t    testing.TB
	bin  string
	cmd  *exec.Cmd
	args []string
	// group is where this service makes its control groups.
	group string
	// delegated says that the service itself starts in that group.
	delegated bool
	// docker is the daemon that this service uses, or nil: then it has sandboxes of
	// its own. environ is added to its environment.
	docker  *Dockerd
	environ []string
	log     capture.Buffer
	gone    chan struct{}
}

// StartExecd starts a service; the test's clean-up stops it and fails the test
// if anything is left. Further flags may be given.
func StartExecd(t testing.TB, imageDir string, flags ...string) *Execd {
	t.Helper()
	RequireRoot(t)
	dir, err := os.MkdirTemp("", "execd") // short: a socket's path has a limit
	if err != nil {
		t.Fatal(err)
	}
	e := &Execd{t: t, bin: Binaries(t), group: filepath.Join(CgroupParent, filepath.Base(dir))}
	e.run(dir, imageDir, flags)
	return e
}

// StartExecdIn is StartExecd for a service that a service manager starts in a
// control group which it has delegated (cgroup v2 only): the service makes its
// own below that one.
func StartExecdIn(t testing.TB, group, imageDir string, flags ...string) *Execd {
	t.Helper()
	RequireRoot(t)
	dir, err := os.MkdirTemp("", "execd")
	if err != nil {
		t.Fatal(err)
	}
	e := &Execd{t: t, bin: Binaries(t), group: group, delegated: true}
	e.run(dir, imageDir, flags)
	return e
}

// StartDockerExecd starts a service whose sandboxes are containers of a daemon, as
// the user who owns that.
func StartDockerExecd(t testing.TB, daemon *Dockerd, flags ...string) *Execd {
	t.Helper()
	dir, err := os.MkdirTemp(daemon.Dir, "e")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, int(daemon.Credential.Uid), int(daemon.Credential.Gid)); err != nil {
		t.Fatal(err)
	}
	e := &Execd{
		t: t, bin: daemon.Programs(), docker: daemon, environ: []string{"SANDBOX_RUNTIME=docker", "AUTH_MODE=dev"},
		group: filepath.Join(CgroupParent, filepath.Base(dir)),
	}
	e.run(dir, dir, append([]string{"--docker-socket", daemon.Socket}, flags...))
	return e
}

func (e *Execd) run(dir, imageDir string, flags []string) {
	t := e.t
	t.Helper()
	e.Socket, e.StateDir, e.Images = filepath.Join(dir, "execd.sock"), filepath.Join(dir, "state"), imageDir
	e.args = append([]string{"--socket", e.Socket, "--state-dir", e.StateDir, "--image-dir", imageDir,
		"--cgroup-parent", e.group, "--ready-fd", "3"}, flags...)
	e.Start()
	t.Cleanup(func() {
		e.Stop()
		if left := e.Leftovers(); len(left) > 0 {
			t.Errorf("left over: %q", left)
		}
		_ = os.RemoveAll(dir)
		if t.Failed() {
			t.Logf("the service's log:\n%s", e.log.String())
		}
	})
}

// Start starts the service again after Kill or Stop.
func (e *Execd) Start() {
	e.t.Helper()
	ready, theirs, err := os.Pipe()
	if err != nil {
		e.t.Fatal(err)
	}
	defer ready.Close()
	cmd := exec.Command(filepath.Join(e.bin, "agentdock-execd"), e.args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, e.environ...)
	cmd.Stderr = &e.log
	cmd.ExtraFiles = []*os.File{theirs}
	// A test that is killed must leave no service.
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGTERM}
	if e.docker != nil {
		cmd.SysProcAttr.Credential = e.docker.Credential
		cmd.Dir = "/"
	}
	if e.delegated {
		group, err := os.Open(filepath.Join("/sys/fs/cgroup", e.group))
		if err != nil {
			e.t.Fatal(err)
		}
		defer group.Close()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(group.Fd())
	}
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		e.t.Fatal(err)
	}
	gone := make(chan struct{})
	e.cmd, e.gone = cmd, gone
	go func() {
		_ = cmd.Wait()
		close(gone)
	}()
	if line, err := bufio.NewReader(ready).ReadString('\n'); err != nil || line != "ready\n" {
		e.t.Fatalf("the service did not start: %q, %v\n%s", line, err, e.log.String())
	}
}

// Pid is the service's process.
func (e *Execd) Pid() int { return e.cmd.Process.Pid }

// Kill ends the service with SIGKILL and waits until it is gone.
func (e *Execd) Kill() { e.end(unix.SIGKILL) }

// Stop ends the service with SIGTERM and waits until it is gone. It may be
// called again.
func (e *Execd) Stop() { e.end(unix.SIGTERM) }

func (e *Execd) end(sig unix.Signal) {
	e.t.Helper()
	_ = e.cmd.Process.Signal(sig)
	select {
	case <-e.gone:
	case <-time.After(2 * time.Minute):
		_ = e.cmd.Process.Kill()
		e.t.Errorf("the service did not end after %v", sig)
		<-e.gone
	}
}

// Dial connects to the service. The test's clean-up closes the client.
func (e *Execd) Dial() *execrpc.Client {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := execrpc.DialUnix(ctx, e.Socket)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(c.Close)
	return c
}

// Sentry is the process that is the sandbox with that ID, or the first one in its
// container; 0 if there is none.
func (e *Execd) Sentry(id string) int {
	if e.docker != nil {
		for _, container := range e.docker.Containers("agentdock.sandbox_id=" + id) {
			return e.docker.Pid(container)
		}
		return 0
	}
	for _, pid := range Descendants(e.Pid()) {
		argv := commandLine(pid)
		if len(argv) > 0 && argv[0] == "runsc-sandbox" && argv[len(argv)-1] == id {
			return pid
		}
	}
	return 0
}

// HoldGroup keeps a sandbox from being freed: it puts a control group below the
// sandbox's, which therefore cannot be removed, until heal is called.
func (e *Execd) HoldGroup(id string) (heal func()) {
	e.t.Helper()
	h, err := cgroup.Detect()
	if err != nil {
		e.t.Fatal(err)
	}
	instances, err := h.Group(e.group).Children()
	if err != nil || len(instances) != 1 {
		e.t.Fatalf("want one service in %s, there are %q, %v", e.group, instances, err)
	}
	child := h.Group(filepath.Join(e.group, instances[0], id, "in-the-way"))
	for _, d := range child.Dirs() {
		if err := os.Mkdir(d, 0o755); err != nil {
			e.t.Fatal(err)
		}
	}
	return func() {
		if err := child.Destroy(context.Background()); err != nil {
			e.t.Error(err)
		}
	}
}

// Leftovers names what the host still holds for sandboxes of this service.
func (e *Execd) Leftovers() []string {
	var left []string
	if e.docker != nil && e.docker.Running() {
		for _, id := range e.docker.Containers("agentdock.sandbox=true") {
			var c struct{ Mounts []struct{ Source string } }
			e.docker.Inspect(id, &c)
			if len(c.Mounts) == 0 || strings.HasPrefix(c.Mounts[0].Source, e.StateDir+"/") {
				left = append(left, "container "+id)
			}
		}
	}
	if h, err := cgroup.Detect(); err != nil {
		left = append(left, err.Error())
	} else {
		instances, err := h.Group(e.group).Children()
		if err != nil {
			left = append(left, err.Error())
		}
		for _, i := range instances {
			groups, _ := h.Group(filepath.Join(e.group, i)).Children()
			for _, g := range groups {
				left = append(left, "cgroup "+i+"/"+g)
			}
		}
	}
	for _, pattern := range []string{"/sandboxes/*", "/runsc/*"} {
		files, _ := filepath.Glob(e.StateDir + pattern)
		left = append(left, files...)
	}
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range procs {
		var pid int
		if _, err := fmt.Sscanf(filepath.Base(p), "%d", &pid); err != nil || pid == e.Pid() {
			continue
		}
		if argv := strings.Join(commandLine(pid), " "); strings.Contains(argv, e.StateDir) {
			left = append(left, fmt.Sprintf("process %d: %s", pid, argv))
		}
	}
	mounts, _ := os.ReadFile("/proc/self/mounts")
	for _, m := range strings.Split(string(mounts), "\n") {
		if strings.Contains(m, e.StateDir) {
			left = append(left, "mount "+m)
		}
	}
	return left
}

// Descendants lists the processes below pid.
func Descendants(pid int) []int {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	var all []int
	for _, l := range lists {
		data, _ := os.ReadFile(l)
		for _, f := range strings.Fields(string(data)) {
			var child int
			if _, err := fmt.Sscanf(f, "%d", &child); err == nil {
				all = append(append(all, child), Descendants(child)...)
			}
		}
	}
	return all
}

func commandLine(pid int) []string {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")
}

// Log is what the service has written to stderr.
func (e *Execd) Log() string { return e.log.String() }
