package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/agentdock/agentdock/internal/execd"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execrpc"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/settings"
)

// underTest is the name under which the test binary is the service, with an
// environment that has nothing.
const underTest = "execd-under-test"

func TestMain(m *testing.M) {
	if os.Args[0] == underTest {
		os.Exit(execute(os.Args, os.Environ(), os.Stdout, os.Stderr, func(config, *slog.Logger) (execenv.Environment, func() error, error) {
			return nothing{}, func() error { return nil }, nil
		}))
	}
	os.Exit(m.Run())
}

type nothing struct{ execenv.Environment }

func (nothing) Capabilities() execenv.Capabilities {
	return execenv.Capabilities{Name: "nothing", Isolation: execenv.IsolationNone}
}
func (nothing) List(context.Context) ([]execenv.Info, error) { return nil, nil }

type child struct {
	cmd    *exec.Cmd
	socket string
	ready  *bufio.Reader
	alive  *os.File // closing it ends the service
	stderr bytes.Buffer
}

// launch starts the real process, with a stray descriptor it must not keep.
func launch(t *testing.T, environ ...string) *child {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("missing: root, to start the service as it is")
	}
	readyR, readyW, err1 := os.Pipe()
	aliveR, aliveW, err2 := os.Pipe()
	stray, err3 := os.Open("/dev/null")
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	c := &child{socket: filepath.Join(t.TempDir(), "d", "s"), ready: bufio.NewReader(readyR), alive: aliveW}
	c.cmd = exec.Command("/proc/self/exe", "--socket", c.socket, "--ready-fd", "3", "--exit-with-fd", "4")
	c.cmd.Args[0] = underTest
	c.cmd.Env = append([]string{"PATH=/odd", "LD_LIBRARY_PATH=/odd", "TZ=UTC"}, environ...)
	c.cmd.ExtraFiles = []*os.File{readyW, aliveR, stray}
	c.cmd.Stderr = &c.stderr
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, f := range []*os.File{readyW, aliveR, stray} {
		f.Close()
	}
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
		aliveW.Close()
		readyR.Close()
	})
	return c
}

func (c *child) waitReady(t *testing.T) {
	t.Helper()
	if line, err := c.ready.ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("ready line is %q, %v", line, err)
	}
	if _, err := c.ready.ReadByte(); err != io.EOF {
		t.Errorf("after the ready line: %v, want the end", err)
	}
}

func (c *child) ended(t *testing.T, status int) {
	t.Helper()
	_ = c.cmd.Wait()
	if got := c.cmd.ProcessState.ExitCode(); got != status {
		t.Errorf("exit status %d, want %d; stderr: %s", got, status, c.stderr.String())
	}
	if _, err := os.Lstat(c.socket); err == nil {
		t.Error("the socket file is left")
	}
}

func TestTheRunningServiceHoldsNothingItWasGiven(t *testing.T) {
	c := launch(t, "AGENTDOCK_EXECD_MAX_CPU=2", "HOME=/root", "AGENTDOCK_OTHER=x")
	c.waitReady(t)
	proc := fmt.Sprintf("/proc/%d/", c.cmd.Process.Pid)

	raw, err := os.ReadFile(proc + "environ")
	if err != nil {
		t.Fatal(err)
	}
	environ := strings.Split(strings.TrimRight(string(raw), "\x00"), "\x00")
	slices.Sort(environ)
	if want := []string{"AGENTDOCK_EXECD_MAX_CPU=2", stageVariable, "PATH=" + execd.Path, "TZ=UTC"}; !slices.Equal(environ, want) {
		t.Errorf("environment is %q, want %q", environ, want)
	}
	ours, _ := os.Readlink("/proc/self/ns/mnt")
	its, _ := os.Readlink(proc + "ns/mnt")
	if its == "" || its == ours {
		t.Errorf("mount namespace %q is not its own", its)
	}
	mounts, _ := os.ReadFile(proc + "mountinfo")
	if bytes.Contains(mounts, []byte(" shared:")) {
		t.Error("a mount is shared with the host")
	}
	if _, err := os.Readlink(proc + "fd/5"); err == nil {
		if to, _ := os.Readlink(proc + "fd/5"); to == "/dev/null" {
			t.Error("the stray descriptor survived")
		}
	}
	client, err := execrpc.DialUnix(t.Context(), c.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if client.Capabilities().Name != "nothing" {
		t.Errorf("capabilities are %+v", client.Capabilities())
	}
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	c.ended(t, 0)
	for _, line := range strings.Split(strings.TrimSpace(c.stderr.String()), "\n") {
		if !strings.HasPrefix(line, "{") {
			t.Errorf("stderr holds %q, want JSON", line)
		}
	}
}

func TestAServiceWhoseParentDiedEnds(t *testing.T) {
	c := launch(t)
	c.waitReady(t)
	c.alive.Close()
	c.ended(t, 0)
}

func TestAForbiddenVariableRefusesTheStart(t *testing.T) {
	// The mark of the second life does not help.
	c := launch(t, "DOCKER_HOST=unix:///x", "GH_TOKEN=hunter2", stageVariable)
	if line, err := c.ready.ReadString('\n'); err != io.EOF || line != "" {
		t.Errorf("ready line is %q, %v", line, err)
	}
	c.ended(t, 1)
	if s := c.stderr.String(); !strings.Contains(s, "DOCKER_HOST, GH_TOKEN; unset them") || strings.Contains(s, "hunter2") {
		t.Errorf("stderr is %q", s)
	}
}

func TestTheMarkOfTheSecondLifeIsNotBelievedAlone(t *testing.T) {
	if _, isolated := stage([]string{stageVariable, "PATH=/odd"}); isolated {
		t.Error("believed with another PATH")
	}
	if _, isolated := stage([]string{"PATH=" + execd.Path}); isolated {
		t.Error("believed without the mark")
	}
	rest, isolated := stage([]string{"PATH=" + execd.Path, stageVariable})
	if !isolated || len(rest) != 1 {
		t.Errorf("not believed: %v", rest)
	}
}

func TestFlagsWinOverVariables(t *testing.T) {
	c, err := parse([]string{"--max-memory", "1g", "--allowed-uids", "7,8"}, []string{
		"AGENTDOCK_EXECD_MAX_MEMORY=512m", "AGENTDOCK_EXECD_MAX_DISK=2GiB", "AGENTDOCK_EXECD_MAX_LIFETIME=90s",
		"AGENTDOCK_EXECD_ALLOWED_UIDS=1,2", "AGENTDOCK_EXECD_ALLOWED_CLIENTS=a,b", "AGENTDOCK_EXECD_MAX_CPU=1.5",
	}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.service(nil)
	if err != nil {
		t.Fatal(err)
	}
	most := s.Policy.Ceiling
	if most.MemoryBytes != run.GiB || most.DiskBytes != 2*run.GiB || most.MilliCPU != 1500 || s.Policy.MaxLifetime != 90*time.Second ||
		!slices.Equal(s.AllowedUIDs, []uint32{7, 8}) || !slices.Equal(s.AllowedClients, []string{"a", "b"}) {
		t.Errorf("got %+v", s)
	}
}

func TestMalformedSettingsAreRefused(t *testing.T) {
	for _, tc := range []struct{ args, environ []string }{
		{args: []string{"--max-memory", "much"}},
		{args: []string{"--max-cpu", "NaN"}},
		{args: []string{"--max-pids", "0"}},
		{args: []string{"--max-lifetime", "-1s"}},
		{args: []string{"--ready-fd", "1"}},
		{args: []string{"--unknown"}},
		{args: []string{"serve"}},
		{environ: []string{"AGENTDOCK_EXECD_MAX_DISK=-1"}},
		{environ: []string{"AGENTDOCK_EXECD_MAX_WALL_CLOCK=5"}},
		{environ: []string{"AGENTDOCK_EXECD_ALLOWED_UIDS=root"}},
	} {
		if _, err := parse(tc.args, tc.environ, io.Discard); err == nil {
			t.Errorf("%v %v: accepted", tc.args, tc.environ)
		}
	}
	if _, err := parse([]string{"--help"}, nil, io.Discard); !errors.Is(err, pflag.ErrHelp) {
		t.Errorf("--help: %v", err)
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]settings.Size{"17": 17, "512m": 512 << 20, "4g": 4 << 30, "1KiB": 1024, "2TB": 2e12, "3B": 3} {
		var s, again settings.Size
		if err := s.Set(text); err != nil || s != want {
			t.Errorf("%s = %d, %v", text, s, err)
		}
		if err := again.Set(s.String()); err != nil || again != s {
			t.Errorf("%s is shown as %s", text, s.String())
		}
	}
	for _, text := range []string{"", "0", "m", "-1", "9999999999g", "1x"} {
		if err := new(settings.Size).Set(text); err == nil {
			t.Errorf("%q: accepted", text)
		}
	}
}
