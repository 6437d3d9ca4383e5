package fallback

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/client"
	"github.com/agentdock/agentdock/internal/testenv"
)

const guest = "/.agentdock/agentdock-guest"

// A worker in production asks a service what it is, for each job anew: one that is
// restarted with containers under a running worker gets nothing.
func TestAWorkerInProductionGivesContainersNothing(t *testing.T) {
	daemon := testenv.StartDockerd(t)
	daemon.ImportBare()
	p := testenv.StartPlatform(t, testenv.PlatformConfig{ImageDir: testenv.BareStore(t)})
	c, err := client.New(p.URL, client.WithAPIKey(p.Key))
	if err != nil {
		t.Fatal(err)
	}
	first := submit(t, c, "id")
	if job := finished(t, c, first); job.State != "succeeded" {
		t.Fatalf("with gVisor the job ended as %s: %+v", job.State, job.Outcome)
	}

	// The same socket, another runtime.
	p.Execd.Stop()
	containers := testenv.StartDockerExecd(t, daemon)
	if err := os.Symlink(containers.Socket, p.Execd.Socket); err != nil {
		t.Fatal(err)
	}
	second := submit(t, c, "id")
	const says = "SANDBOX_RUNTIME is gvisor"
	for deadline := time.Now().Add(time.Minute); !strings.Contains(p.Worker.Log(), says); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the worker does not say why it gives the job to nobody:\n%s", p.Worker.Log())
		}
	}
	if job, err := c.Job(t.Context(), second); err != nil || job.State != "queued" && job.State != "starting" {
		t.Errorf("the job is %s, %v", job.State, err)
	}
	if made := daemon.Containers("agentdock.sandbox=true"); len(made) > 0 {
		t.Errorf("there are containers: %q", made)
	}

	// And back: nothing was lost.
	containers.Stop()
	if err := os.Remove(p.Execd.Socket); err != nil {
		t.Fatal(err)
	}
	p.Execd.Start()
	if job := finished(t, c, second); job.State != "succeeded" {
		t.Errorf("with gVisor again the job ended as %s: %+v", job.State, job.Outcome)
	}
}

func submit(t *testing.T, c *client.Client, probe string) string {
	t.Helper()
	job, err := c.CreateJob(t.Context(), api.JobSpec{
		Source: api.Source{Kind: "none"}, Image: testenv.BareImage, Commands: []api.Command{{Argv: []string{guest, "probe", probe}}},
	}, "")
	if err != nil {
		t.Fatal(err)
	}
	return job.ID
}

func finished(t *testing.T, c *client.Client, id string) *api.Job {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		job, err := c.Job(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		switch job.State {
		case "succeeded", "failed", "cancelled":
			return job
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// The whole platform on one machine: up is root, only the execution service is the
// daemon's user and speaks to the daemon.
func TestUpWithDocker(t *testing.T) {
	daemon := testenv.StartDockerd(t)
	daemon.ImportBare()
	address := freeAddress(t)
	data := t.TempDir()
	run, err := os.MkdirTemp("", "run") // reached by the daemon's user
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(run) })
	if err := os.Chmod(run, 0o755); err != nil {
		t.Fatal(err)
	}
	up := testenv.StartProgram(t, []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + data, "SANDBOX_RUNTIME=docker", "AGENTDOCK_LOG_LEVEL=info",
		"AGENTDOCK_EXECD_DOCKER_SOCKET=" + daemon.Socket, "AGENTDOCK_RUNTIME_DIR=" + run,
		"AGENTDOCK_EXECD_BINARY=" + daemon.Programs() + "/agentdock-execd",
	}, "", filepath.Join(testenv.Binaries(t), "agentdock"), "up", "--listen", address, "--data", data)
	c, err := client.New("http://" + address)
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if listens(data, address) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("it does not serve:\n%s", up.Log())
		}
	}
	id := submit(t, c, "id")
	job := finished(t, c, id)
	if job.State != "succeeded" || job.Resolved.Isolation != "container" {
		t.Errorf("the job ended as %s: %+v, in %+v", job.State, job.Outcome, job.Resolved)
	}
	var out bytes.Buffer
	if _, err := c.CopyLog(t.Context(), id, &out, &out); err != nil || !strings.Contains(out.String(), "uid 10001\n") {
		t.Errorf("it printed %q, %v", out.String(), err)
	}
	// A limit that cannot be had is refused, with its name.
	insists, err := c.CreateJob(t.Context(), api.JobSpec{
		Source: api.Source{Kind: "none"}, Image: testenv.BareImage, Commands: []api.Command{{Argv: []string{guest, "probe", "id"}}},
		Limits: api.Limits{MemoryBytes: 128 << 20},
	}, "")
	if err != nil {
		t.Fatal(err)
	}
	if job := finished(t, c, insists.ID); job.State != "failed" || job.Outcome == nil || job.Outcome.Kind != "policy_denied" || !strings.Contains(fmt.Sprint(job.Outcome), "memory") {
		t.Errorf("a job that insists on a memory limit ended as %s: %+v", job.State, job.Outcome)
	}
	// What speaks to the daemon is the daemon's user's, and up holds no connection.
	for _, pid := range append(testenv.Descendants(up.Pid()), up.Pid()) {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		owner := strings.Contains(string(status), fmt.Sprintf("Uid:\t%d\t", daemon.Credential.Uid))
		if owner != (pid != up.Pid()) {
			t.Errorf("process %d is another user's than it should be:\n%s", pid, status)
		}
	}
	up.Stop()
	if left := daemon.Containers(""); len(left) > 0 {
		t.Errorf("containers are left: %q", left)
	}
}

// asUser runs the command line as the daemon's user, and wants nothing left of it.
func asUser(t *testing.T, daemon *testenv.Dockerd, args ...string) (string, error) {
	t.Helper()
	out, err := commandLine(t, daemon, args...).CombinedOutput()
	if left := leftOfRuns(daemon); len(left) > 0 {
		t.Errorf("%q left %q", args, left)
	}
	return string(out), err
}

func leftOfRuns(daemon *testenv.Dockerd) []string {
	left, _ := filepath.Glob(daemon.Dir + "/run/agentdock/*")
	return left
}

// commandLine is the command line of the daemon's user, who finds the daemon as
// everybody finds his own.
func commandLine(t *testing.T, daemon *testenv.Dockerd, args ...string) *exec.Cmd {
	t.Helper()
	runtime := filepath.Join(daemon.Dir, "run")
	if err := os.Symlink(daemon.Socket, filepath.Join(runtime, "docker.sock")); err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(daemon.Programs("agentdock"), "agentdock"), args...)
	cmd.Dir = daemon.Dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Join(daemon.Dir, "home"), "SANDBOX_RUNTIME=docker", "AUTH_MODE=dev",
		"XDG_RUNTIME_DIR=" + runtime,
	}
	cmd.SysProcAttr = &unix.SysProcAttr{Credential: daemon.Credential}
	return cmd
}

// TestRunWhoseDaemonIsLost: it says so soon, and what the daemon has of it is
// removed by the next run that finds the daemon.
func TestRunWhoseDaemonIsLost(t *testing.T) {
	daemon := testenv.StartDockerd(t)
	daemon.ImportBare()
	var out bytes.Buffer
	cmd := commandLine(t, daemon, "run", "--image", testenv.BareImage, "--", guest, "probe", "hold", "held")
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); !runsProbe("held"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the program does not run: %s", &out)
		}
	}
	daemon.Kill()
	killed := time.Now()
	err := cmd.Wait()
	if took := time.Since(killed); err == nil || took > 25*time.Second || !strings.Contains(out.String(), "lost") {
		t.Errorf("it ended after %s, %v: %s", took, err, &out)
	}
	daemon.Start()
	if out, err := asUser(t, daemon, "run", "--image", testenv.BareImage, "--", guest, "probe", "id"); err != nil {
		t.Errorf("with the daemon back: %v: %s", err, out)
	}
	if left := daemon.Containers(""); len(left) > 0 {
		t.Errorf("containers are left: %q", left)
	}
}

// runsProbe says whether a process of this host is a probe with that argument.
func runsProbe(mark string) bool {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range all {
		if data, _ := os.ReadFile(file); string(data) == guest+"\x00probe\x00hold\x00"+mark+"\x00" {
			return true
		}
	}
	return false
}

// One command as an ordinary user: no root anywhere.
func TestRunWithoutRoot(t *testing.T) {
	daemon := testenv.StartDockerd(t)
	daemon.ImportBare()
	out, err := asUser(t, daemon, "run", "--image", testenv.BareImage, "--", guest, "probe", "id")
	if err != nil || !strings.Contains(out, "uid 10001\n") || !strings.Contains(out, "agentdock: exited 0") {
		t.Errorf("%v: %s", err, out)
	}
	if left := daemon.Containers(""); len(left) > 0 {
		t.Errorf("containers are left: %q", left)
	}
	out, err = asUser(t, daemon, "run", "--image", "nothing", "--", guest)
	if err == nil || !strings.Contains(out, "docs/docker.md") || strings.Contains(out, "agentdock image build") {
		t.Errorf("with an image that is not there: %v: %s", err, out)
	}
	// A daemon that is away, which could not be asked whether anything is left.
	daemon.Stop()
	out, err = asUser(t, daemon, "run", "--image", testenv.BareImage, "--", guest, "probe", "id")
	if err == nil || strings.Count(out, "cannot ask the Docker daemon") != 1 {
		t.Errorf("without a daemon: %v: %s", err, out)
	}
}

// What the daemon cannot enforce is said before anybody relies on it.
func TestDoctorSaysWhatIsNotEnforced(t *testing.T) {
	daemon := testenv.StartDockerd(t)
	out, err := asUser(t, daemon, "doctor")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("it ended with %v, want 1", err)
	}
	for _, says := range []string{"docker ", "for development only; limits that cannot be enforced here, and are refused: cpu, memory, pids", "A1   not enforced  kernel isolation",
		"for development only: 11 of 15 guarantees are declared"} {
		if !strings.Contains(out, says) {
			t.Errorf("it does not say %q:\n%s", says, out)
		}
	}
	for _, untrue := range []string{"as root", "15 of 15", "EROFS", "image store"} {
		if strings.Contains(out, untrue) {
			t.Errorf("where all is as it must be for the fallback, it says %q:\n%s", untrue, out)
		}
	}
}
