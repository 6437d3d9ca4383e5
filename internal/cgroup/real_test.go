package cgroup_test

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

	"github.com/agentdock/agentdock/internal/cgroup"
	"github.com/agentdock/agentdock/internal/testenv"
)

// These run on the host's own groups, whichever version it has; tests/cgroup2
// runs them again on the other.

func hierarchy(t *testing.T) *cgroup.Hierarchy {
	t.Helper()
	testenv.RequireRoot(t)
	h, err := cgroup.Detect()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// parent names a group that is this test's own, and checks that nothing of it
// stays.
func parent(t *testing.T, h *cgroup.Hierarchy) string {
	t.Helper()
	name := filepath.Join(testenv.CgroupParent, fmt.Sprintf("%s-%d", strings.ReplaceAll(t.Name(), "/", "-"), os.Getpid()))
	t.Cleanup(func() {
		h.Group(filepath.Join(name, "any")).RemoveEmptyParents()
		if h.Group(name).Exists() {
			t.Errorf("%s is left", name)
		}
	})
	return name
}

func destroy(t *testing.T, g *cgroup.Group) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := g.Destroy(ctx); err != nil {
		t.Error(err)
	}
	if g.Exists() {
		t.Errorf("it exists after Destroy: %q", g.Dirs())
	}
}

// child starts this test program again as something that lives in a group.
func child(t *testing.T, as string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "CGROUP_TEST_CHILD="+as)
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
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if _, err := out.Read(make([]byte, 1)); err != nil { // it is up
		t.Fatal(err)
	}
	return cmd
}

func TestMain(m *testing.M) {
	as := os.Getenv("CGROUP_TEST_CHILD")
	if as == "" {
		os.Exit(m.Run())
	}
	for range 8 { // a process of several threads
		go func() { time.Sleep(time.Hour) }()
	}
	_, _ = os.Stdout.WriteString("+")
	os.Stdout.Close()
	if as == "busy" {
		for until := time.Now().Add(300 * time.Millisecond); time.Now().Before(until); {
		}
	}
	_, _ = os.Stdin.Read(make([]byte, 1))
}

// setting reads what the kernel has for a limit; the names differ by version.
func setting(t *testing.T, g *cgroup.Group, h *cgroup.Hierarchy, v1, v2 string) string {
	t.Helper()
	file := filepath.Join("/sys/fs/cgroup", v2)
	for _, d := range g.Dirs() {
		if h.Version() == 2 {
			file = filepath.Join(d, v2)
		} else if strings.HasPrefix(d, "/sys/fs/cgroup/"+filepath.Dir(v1)+"/") {
			file = filepath.Join(d, filepath.Base(v1))
		}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

func TestLimitsAreSet(t *testing.T) {
	h := hierarchy(t)
	g := h.Group(filepath.Join(parent(t, h), "one"))
	if err := g.Create(cgroup.Limits{MilliCPU: 1500, MemoryBytes: 64 << 20, PIDs: 99}); err != nil {
		t.Fatal(err)
	}
	defer destroy(t, g)
	for _, tc := range []struct{ v1, v2, want1, want2 string }{
		{"memory/memory.limit_in_bytes", "memory.max", "67108864", "67108864"},
		{"cpu/cpu.cfs_quota_us", "cpu.max", "150000", "150000 100000"},
		{"cpu/cpu.cfs_period_us", "cpu.max", "100000", "150000 100000"},
		{"pids/pids.max", "pids.max", "99", "99"},
	} {
		want := tc.want1
		if h.Version() == 2 {
			want = tc.want2
		}
		if got := setting(t, g, h, tc.v1, tc.v2); got != want {
			t.Errorf("%s, %s: got %q, want %q", tc.v1, tc.v2, got, want)
		}
	}
	if h.Version() == 2 {
		if got := setting(t, g, h, "", "memory.oom.group"); got != "1" {
			t.Errorf("memory.oom.group is %q", got)
		}
	}
}

func TestLimitThatCannotBeSetLeavesNothing(t *testing.T) {
	h := hierarchy(t)
	g := h.Group(filepath.Join(parent(t, h), "one"))
	err := g.Create(cgroup.Limits{MilliCPU: 1, MemoryBytes: 1 << 20}) // the kernel's least quota is ten times that
	if err == nil {
		t.Error("a quota below the kernel's least was accepted")
	}
	if g.Exists() {
		t.Errorf("left: %q", g.Dirs())
	}
}

func TestProcessesAreMovedCountedAndKilled(t *testing.T) {
	h := hierarchy(t)
	g := h.Group(filepath.Join(parent(t, h), "one"))
	if err := g.Create(cgroup.Limits{MilliCPU: 1000, MemoryBytes: 256 << 20, PIDs: 100}); err != nil {
		t.Fatal(err)
	}
	var last *exec.Cmd
	for range 3 {
		last = child(t, "busy")
		if err := g.Add(last.Process.Pid); err != nil {
			t.Fatal(err)
		}
	}
	pids, err := g.Procs()
	if err != nil || len(pids) != 3 {
		t.Errorf("Procs: %v, %v", pids, err)
	}
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", last.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		where, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/cgroup", last.Process.Pid, task.Name()))
		if err != nil || !strings.Contains(string(where), "/one\n") {
			t.Errorf("thread %s is in %q, %v", task.Name(), where, err)
		}
	}
	var s cgroup.Stats
	for deadline := time.Now().Add(20 * time.Second); s.CPU == 0 && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if s, err = g.Stats(); err != nil {
			t.Fatal(err)
		}
	}
	if s.CPU == 0 || s.OOMKills != 0 {
		t.Errorf("Stats: %+v", s)
	}
	destroy(t, g)
	destroy(t, g) // once more is no error
	if err := last.Wait(); err == nil {
		t.Error("it ended well, and should have been killed")
	}
}

func TestManyAtOnceInOneParent(t *testing.T) {
	h := hierarchy(t)
	name := parent(t, h)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 5 {
				// Each round may remove the parent that another is about to use.
				g := h.Group(filepath.Join(name, fmt.Sprintf("%d-%d", i, j)))
				if err := g.Create(cgroup.Limits{MilliCPU: 100, MemoryBytes: 64 << 20, PIDs: 10}); err != nil {
					t.Error(err)
				}
				destroy(t, g)
				g.RemoveEmptyParents()
			}
		})
	}
	wg.Wait()
}

func TestParentsInUseStay(t *testing.T) {
	h := hierarchy(t)
	name := parent(t, h)
	one, two := h.Group(filepath.Join(name, "a", "one")), h.Group(filepath.Join(name, "b", "two"))
	for _, g := range []*cgroup.Group{one, two} {
		if err := g.Create(cgroup.Limits{PIDs: 10}); err != nil {
			t.Fatal(err)
		}
	}
	destroy(t, one)
	one.RemoveEmptyParents()
	if h.Group(filepath.Join(name, "a")).Exists() {
		t.Error("the empty parent is left")
	}
	if !two.Exists() {
		t.Error("the other group is gone")
	}
	if names, err := h.Group(name).Children(); err != nil || len(names) != 1 || names[0] != "b" {
		t.Errorf("Children: %q, %v", names, err)
	}
	destroy(t, two)
	two.RemoveEmptyParents()
}

func TestPrepareMakesAnEmptyGroup(t *testing.T) {
	h := hierarchy(t)
	g := h.Group(parent(t, h))
	for range 2 {
		if err := g.Prepare(); err != nil {
			t.Fatal(err)
		}
	}
	below := h.Group(filepath.Join(parent(t, h), "one"))
	if err := below.Create(cgroup.Limits{MilliCPU: 100, MemoryBytes: 64 << 20, PIDs: 10}); err != nil {
		t.Fatal(err)
	}
	destroy(t, below)
	destroy(t, g)
}

func TestGroupThatDoesNotExist(t *testing.T) {
	h := hierarchy(t)
	g := h.Group(filepath.Join(testenv.CgroupParent, "never-made"))
	if pids, err := g.Procs(); err != nil || len(pids) != 0 {
		t.Errorf("Procs: %v, %v", pids, err)
	}
	if names, err := g.Children(); err != nil || len(names) != 0 {
		t.Errorf("Children: %v, %v", names, err)
	}
	if _, err := g.Stats(); err == nil {
		t.Error("it has Stats")
	}
	destroy(t, g)
}

func TestKeepReadyMovesNothing(t *testing.T) {
	h := hierarchy(t)
	before, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	g := h.Group(filepath.Join(parent(t, h), "one"))
	if err := g.Create(cgroup.Limits{}); err != nil {
		t.Fatal(err)
	}
	defer destroy(t, g)
	first, second := h.KeepReady(), h.KeepReady()
	first()
	first() // again, which must not count
	c := child(t, "sleeper")
	if err := g.Add(c.Process.Pid); err != nil {
		t.Error(err)
	}
	second()
	if pids, err := g.Procs(); err != nil || len(pids) != 1 || pids[0] != c.Process.Pid {
		t.Errorf("%d moved, in the group are %d, %v", c.Process.Pid, pids, err)
	}
	after, err := os.ReadFile("/proc/self/cgroup")
	if err != nil || string(after) != string(before) {
		t.Errorf("this process was in\n%s and is in\n%s%v", before, after, err)
	}
}
