package cgroup2

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/cgroup"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/execenvtest"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/testenv"
)

const mountPoint = "/sys/fs/cgroup"

// runInside is what TestPureV2 is in the machine: what only a kernel with pure
// cgroup v2 can show.
func runInside(t *testing.T) {
	h, err := cgroup.Detect()
	if err != nil || h.Version() != 2 {
		t.Fatalf("this machine is not one with cgroup v2: %v", err)
	}
	t.Run("own_group_makes_way", func(t *testing.T) { ownGroupMakesWay(t, h) })
	t.Run("groups_of_others_are_refused", func(t *testing.T) { groupsOfOthersAreRefused(t, h) })
	t.Run("delegated_service", func(t *testing.T) { delegatedService(t, h) })
}

// groupOf is the control group of a process.
func groupOf(t *testing.T, pid int) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(strings.TrimSpace(string(text)), "0::/")
}

func setting(t *testing.T, group, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(mountPoint, group, file))
	if err != nil {
		t.Error(err)
	}
	return strings.TrimSpace(string(text))
}

func destroy(t *testing.T, g *cgroup.Group) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := g.Destroy(ctx); err != nil {
		t.Error(err)
	}
}

// A process in the group that is to hand controllers on moves out of the way,
// with all its threads and whoever else is in the group.
func ownGroupMakesWay(t *testing.T, h *cgroup.Hierarchy) {
	own, leaf := h.Group("own.slice/own.service"), h.Group("own.slice/own.service/agentdock-service")
	if err := own.Create(cgroup.Limits{}); err != nil {
		t.Fatal(err)
	}
	other := exec.Command("/test/probe", "hold")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Wait() }()
	for _, pid := range []int{os.Getpid(), other.Process.Pid} {
		if err := own.Add(pid); err != nil {
			t.Fatal(err)
		}
	}
	defer func() {
		if err := writeTo("cgroup.procs", fmt.Sprint(os.Getpid())); err != nil {
			t.Error(err)
		}
		destroy(t, leaf)
		destroy(t, own)
		own.RemoveEmptyParents()
		if h.Group("own.slice").Exists() {
			t.Error("own.slice is left")
		}
	}()
	box := h.Group("own.slice/own.service/box")
	if err := box.Create(cgroup.Limits{MemoryBytes: 64 << 20, MilliCPU: 100, PIDs: 9}); err != nil {
		t.Fatal(err)
	}
	destroy(t, box)
	for _, pid := range []int{os.Getpid(), other.Process.Pid} {
		if got := groupOf(t, pid); got != "own.slice/own.service/agentdock-service" {
			t.Errorf("process %d is in %s", pid, got)
		}
	}
}

func writeTo(file, text string) error {
	return os.WriteFile(filepath.Join(mountPoint, file), []byte(text), 0)
}

func groupsOfOthersAreRefused(t *testing.T, h *cgroup.Hierarchy) {
	foreign := h.Group("foreign.service")
	if err := foreign.Create(cgroup.Limits{}); err != nil {
		t.Fatal(err)
	}
	defer destroy(t, foreign)
	other := exec.Command("/test/probe", "hold")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	if err := foreign.Add(other.Process.Pid); err != nil {
		t.Fatal(err)
	}
	err := h.Group("foreign.service/agentdock").Prepare()
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("it holds processes (%d)", other.Process.Pid)) {
		t.Errorf("got %v", err)
	}
	if got := groupOf(t, other.Process.Pid); got != "foreign.service" {
		t.Errorf("a process of somebody else was moved to %s", got)
	}
	destroy(t, foreign)
	if err := other.Wait(); err == nil {
		t.Error("it was not killed")
	}
}

// delegatedService starts the service as systemd does with Delegate=yes.
func delegatedService(t *testing.T, h *cgroup.Hierarchy) {
	const unit = "system.slice/agentdock.service"
	startUnit := func() {
		if err := h.Group(unit).Create(cgroup.Limits{}); err != nil {
			t.Fatal(err)
		}
	}
	startUnit()
	t.Cleanup(func() { trim(t, h, unit) })
	s := testenv.StartExecdIn(t, unit, testenv.BareStore(t))
	if got := groupOf(t, s.Pid()); got != unit+"/agentdock-service" {
		t.Errorf("the service is in %s", got)
	}
	env := s.Dial()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	limits := run.DefaultLimits()
	limits.MilliCPU, limits.MemoryBytes, limits.PIDs, limits.DiskBytes = 1500, 600*run.MiB, 64, 32*run.MiB
	box, err := env.Create(ctx, execenv.Spec{ID: "one", Image: testenv.BareImage, Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	group := groupOf(t, s.Sentry("one"))
	t.Run("limits_are_set", func(t *testing.T) {
		if !strings.HasPrefix(group, unit+"/") || !strings.HasSuffix(group, "/one") {
			t.Fatalf("the sandbox is in %s", group)
		}
		for file, want := range map[string]string{
			"cpu.max": "150000 100000", "memory.max": fmt.Sprint(limits.MemoryBytes),
			"memory.oom.group": "1", "pids.max": fmt.Sprint(512 + 4*limits.PIDs),
		} {
			if got := setting(t, group, file); got != want {
				t.Errorf("%s is %q, want %q", file, got, want)
			}
		}
	})
	t.Run("usage_is_the_kernels", func(t *testing.T) {
		if err := box.PutArchive(ctx, "", probeArchive(t)); err != nil {
			t.Fatal(err)
		}
		r := wait(ctx, t, box, "alloc", fmt.Sprint(64*run.MiB))
		peak := setting(t, group, "memory.peak")
		if !r.Outcome.Success() || r.Usage.PeakMemoryBytes < 64*run.MiB || r.Usage.CPU == 0 {
			t.Errorf("%v with %+v; memory.peak is %s", r.Outcome, r.Usage, peak)
		}
		if events := setting(t, group, "memory.events"); !strings.Contains(events, "oom_kill 0") {
			t.Errorf("memory.events: %s", events)
		}
	})
	t.Run("fork_bomb_sees_EAGAIN", func(t *testing.T) {
		r := wait(ctx, t, box, "forkbomb")
		code := int(syscall.EAGAIN)
		if r.Outcome.ExitCode == nil || *r.Outcome.ExitCode != code || !r.Outcome.Touched(run.LimitPIDs) {
			t.Errorf("got %v (%s), want exit code %d and the limit named", r.Outcome, r.Outcome.Evidence, code)
		}
	})
	t.Run("nothing_left_after_destroy", func(t *testing.T) {
		if err := env.Destroy(ctx, "one"); err != nil {
			t.Fatal(err)
		}
		if h.Group(group).Exists() {
			t.Errorf("%s exists", group)
		}
	})
	t.Run("nothing_left_after_kill_and_restart", func(t *testing.T) {
		if _, err := env.Create(ctx, execenv.Spec{ID: "two", Image: testenv.BareImage, Limits: limits}); err != nil {
			t.Fatal(err)
		}
		group := groupOf(t, s.Sentry("two"))
		s.Kill()
		// Only a group that hands nothing on can be started in again.
		trim(t, h, unit)
		startUnit()
		s.Start()
		if h.Group(group).Exists() {
			t.Errorf("%s exists", group)
		}
		if left := s.Leftovers(); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	})
}

// trim removes a unit's group with all that is below, as systemd does when no
// process of the unit is left. What was killed with the service may take a moment.
func trim(t *testing.T, h *cgroup.Hierarchy, name string) {
	t.Helper()
	g := h.Group(name)
	children, err := g.Children()
	if err != nil {
		t.Error(err)
	}
	for _, c := range children {
		trim(t, h, filepath.Join(name, c))
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		pids, err := g.Procs()
		if err != nil {
			t.Error(err)
		}
		if len(pids) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Errorf("%s still holds %v", name, pids)
			break
		}
	}
	destroy(t, g)
}

func probeArchive(t *testing.T) *bytes.Reader {
	t.Helper()
	probe := execenvtest.BuildProbe(t)
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: "probe", Mode: 0o755, Size: int64(len(probe))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(probe); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(b.Bytes())
}

func wait(ctx context.Context, t *testing.T, box execenv.Sandbox, args ...string) execenv.Result {
	t.Helper()
	x, err := box.Exec(ctx, execenv.ExecSpec{Argv: append([]string{execenv.Workspace + "/probe"}, args...)})
	if err != nil {
		t.Fatal(err)
	}
	r, err := x.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
