package posture

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/execd"
	"github.com/agentdock/agentdock/internal/testenv"
)

// TestTheTablesBite holds the tables against a process that is confined in no
// way: this one. Each line must find something, or it finds nothing elsewhere.
func TestTheTablesBite(t *testing.T) {
	testenv.RequireRoot(t)
	stray, err := os.Open("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	defer stray.Close()
	group, err := os.Open("/sys/fs/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	p := look(t, os.Getpid())
	for name, table := range map[string]map[string]allowed{"service": serviceFiles, "sentry": sentryFiles} {
		problems := strings.Join(wrongFiles(p, map[string]string{os.DevNull: "null device"}, table), "\n")
		for _, want := range []string{"/etc/passwd", "/sys/fs/cgroup", "socket that is no unix socket", "0 of \"memfd:empty\""} {
			if !strings.Contains(problems, want) {
				t.Errorf("%s: %s is not found:\n%s", name, want, problems)
			}
		}
	}
	found := strings.Join(append(wrongStatus(p.status, serviceStatus), wrongStatus(p.status, sentryStatus("1879048192"))...), "\n")
	for _, want := range []string{"CapPrm", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp is", "Uid is"} {
		if !strings.Contains(found, want) {
			t.Errorf("%s is not found:\n%s", want, found)
		}
	}
	if problems := wrongStatus(map[string]string{}, []field{{"Groups", "", "none"}}); len(problems) == 0 {
		t.Error("a line that is not there is taken for an empty one")
	}
}

// A service that has not what it needs says so at once, not at the first
// sandbox.
func TestAMissingCapabilityIsNamed(t *testing.T) {
	testenv.RequireRoot(t)
	for capability, name := range map[uintptr]string{
		unix.CAP_SYS_ADMIN: "CAP_SYS_ADMIN", unix.CAP_SETUID: "CAP_SETUID", unix.CAP_SETGID: "CAP_SETGID", unix.CAP_DAC_OVERRIDE: "CAP_DAC_OVERRIDE",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			cmd := exec.Command(filepath.Join(testenv.Binaries(t), "agentdock-execd"),
				"--socket", filepath.Join(dir, "s"), "--state-dir", filepath.Join(dir, "state"), "--cgroup-parent", testenv.CgroupParent)
			cmd.Env = []string{}
			var said bytes.Buffer
			cmd.Stderr = &said
			err := withoutCapability(capability, cmd.Run)
			if err == nil || !strings.Contains(said.String(), name) || !strings.Contains(said.String(), "cannot start: ") {
				t.Errorf("%v, it says %q", err, said.String())
			}
		})
	}
}

// What says that the capabilities are given up is an environment variable; the
// service believes the kernel.
func TestTheMarkDoesNotReplaceTheGivingUp(t *testing.T) {
	testenv.RequireRoot(t)
	dir := t.TempDir()
	said := refused(t, []string{"AGENTDOCK_EXECD_STAGE=isolated", "PATH=" + execd.Path},
		"--socket", filepath.Join(dir, "s"), "--state-dir", filepath.Join(dir, "state"))
	if !strings.Contains(said, "cannot start: capabilities are") {
		t.Errorf("it says %q", said)
	}
}

// A service whose sandboxes do not start serves nobody (C2), and leaves nothing.
func TestAServiceThatCannotConfineDoesNotServe(t *testing.T) {
	testenv.RequireRoot(t)
	dir := t.TempDir()
	// A program, but not the helper.
	said := refused(t, nil, "--socket", filepath.Join(dir, "s"), "--state-dir", filepath.Join(dir, "state"),
		"--cgroup-parent", testenv.CgroupParent, "--guest", filepath.Join(testenv.Binaries(t), "agentdock"))
	if !strings.Contains(said, "cannot start: a guarantee does not hold: a sandbox does not start on this host") || !strings.Contains(said, "see agentdock doctor") {
		t.Errorf("it says %q", said)
	}
	left, err := filepath.Glob(dir + "/*/*")
	if err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}

// refused starts a service that must exit with 1, and returns what it says.
func refused(t *testing.T, environ []string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(testenv.Binaries(t), "agentdock-execd"), args...)
	cmd.Env = append([]string{}, environ...)
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Run(); err == nil || cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("it ended with %v", err)
	}
	return said.String()
}

// withoutCapability runs f on a thread that what it starts inherits from. The
// thread ends with it.
func withoutCapability(capability uintptr, f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}
