package cgroup

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// plain makes a hierarchy of plain files, which takes any text and enforces
// nothing: enough to see what is read and written. What only a kernel does is
// in tests/cgroup2.
func plain(t *testing.T, files map[string]string) *Hierarchy {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return &Hierarchy{root: root, v2: true}
}

func contents(t *testing.T, h *Hierarchy, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(h.root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestMissingControllerIsNamed(t *testing.T) {
	for name, tc := range map[string]struct{ have, lacks string }{
		"all there":    {"cpuset cpu io memory hugetlb pids\n", ""},
		"no memory":    {"cpuset cpu io pids\n", "lacks memory (it has: cpuset, cpu, io, pids)"},
		"a look-alike": {"cpuset memory pids\n", "lacks cpu (it has: cpuset"},
		"none":         {"\n", "lacks cpu, memory, pids"},
	} {
		t.Run(name, func(t *testing.T) {
			h := plain(t, map[string]string{"cgroup.controllers": tc.have})
			err := h.offers(h.root)
			if tc.lacks == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.lacks) || !strings.Contains(err.Error(), "Delegate=yes") {
				t.Errorf("got %v, want %q and what to do", err, tc.lacks)
			}
		})
	}
}

func TestOnlyMissingControllersAreHandedOn(t *testing.T) {
	for name, tc := range map[string]struct{ have, write string }{
		"all missing":  {"", "+cpu +memory +pids"},
		"one missing":  {"cpuset memory pids", "+cpu"},
		"none missing": {"cpu io memory pids\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := plain(t, map[string]string{
				"cgroup.controllers": "cpuset cpu io memory pids", "cgroup.subtree_control": "",
				"a/cgroup.controllers": "cpuset cpu io memory pids", "a/cgroup.subtree_control": tc.have,
			})
			if err := h.delegate("a"); err != nil {
				t.Fatal(err)
			}
			if got := contents(t, h, "cgroup.subtree_control"); got != "+cpu +memory +pids" {
				t.Errorf("the root hands on %q", got)
			}
			// A plain file keeps what the write did not cover.
			got := contents(t, h, "a/cgroup.subtree_control")
			if want := tc.write + tc.have[min(len(tc.write), len(tc.have)):]; got != want {
				t.Errorf("the group hands on %q, want %q", got, want)
			}
		})
	}
}

func TestMissingLimitFileIsMissing(t *testing.T) {
	h := plain(t, map[string]string{"g/memory.max": "max"})
	err := h.Group("g").limitV2(Limits{MilliCPU: 100, MemoryBytes: 1 << 20})
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "cpu.max") {
		t.Errorf("got %v", err)
	}
	if got := contents(t, h, "g/memory.max"); got != "1048576" {
		t.Errorf("memory.max is %q", got)
	}
}

func TestCountersOfVersion2(t *testing.T) {
	h := plain(t, map[string]string{
		"g/memory.current": "4096\n", "g/memory.peak": "8192\n",
		"g/memory.events": "low 0\nhigh 0\nmax 7\noom 2\noom_kill 3\noom_group_kill 1\n",
		"g/cpu.stat":      "usage_usec 1500\nuser_usec 1000\nsystem_usec 500\n",
		"g/pids.events":   "max 5\n",
	})
	got, err := h.Group("g").Stats()
	want := Stats{MemoryBytes: 4096, PeakMemoryBytes: 8192, CPU: 1500 * time.Microsecond, OOMKills: 3, OwnOOMs: 2, PIDsHits: 5}
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if err := os.Remove(filepath.Join(h.root, "g/memory.peak")); err != nil {
		t.Fatal(err)
	}
	if got, err = h.Group("g").Stats(); err != nil || got.PeakMemoryBytes != 0 {
		t.Errorf("without the peak: %+v, %v", got, err)
	}
}

func TestFileCacheOfAGroup(t *testing.T) {
	const stat = "anon 4096\nshmem 100\ninactive_file 8192\nactive_file 300\ninactive_anon 7\n"
	for _, h := range []*Hierarchy{
		plain(t, map[string]string{"g/memory.stat": stat}),
		{root: plain(t, map[string]string{"memory/g/memory.stat": stat}).root},
	} {
		if got, err := h.Group("g").FileBytes(); err != nil || got != 8492 {
			t.Errorf("version %d: %d, %v; want 8492", h.Version(), got, err)
		}
		if _, err := h.Group("other").FileBytes(); err == nil {
			t.Errorf("version %d: a group that does not exist has a cache", h.Version())
		}
	}
}

// Kernels before 5.14 have no cgroup.kill.
func TestKillWithoutTheKillFile(t *testing.T) {
	victim := exec.Command(os.Args[0])
	victim.Env = append(os.Environ(), "CGROUP_TEST_CHILD=hold")
	in, err := victim.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	h := plain(t, map[string]string{"g/cgroup.procs": strconv.Itoa(victim.Process.Pid) + "\n"})
	h.Group("g").kill()
	if err := victim.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("it ended with %v", err)
	}
}

func TestProcessesOfOthersStay(t *testing.T) {
	h := plain(t, map[string]string{"g/cgroup.procs": "1\n"})
	err := h.makeWay(filepath.Join(h.root, "g"))
	if err == nil || !strings.Contains(err.Error(), "it holds processes (1)") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(filepath.Join(h.root, "g", serviceLeaf)); err == nil {
		t.Error("a group was made for them")
	}
}
