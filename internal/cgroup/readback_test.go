package cgroup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// group makes what looks like a group, with these files.
func group(t *testing.T, v2 bool, files map[string]string) *Group {
	t.Helper()
	h := &Hierarchy{root: t.TempDir(), v2: v2}
	g := h.Group("g")
	for name, text := range files {
		controller, file, ok := strings.Cut(name, "/")
		if !ok {
			controller, file = "", name
		}
		path := g.file(controller, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

func TestLimitsThatTheKernelDidNotTake(t *testing.T) {
	set := Limits{MilliCPU: 1500, MemoryBytes: 64<<20 + 7, PIDs: 9}
	v1 := map[string]string{
		"memory/memory.limit_in_bytes": "67108864\n", "cpu/cpu.cfs_quota_us": "150000\n", "cpu/cpu.cfs_period_us": "100000\n", "pids/pids.max": "9\n",
	}
	v2 := map[string]string{"memory.max": "67108864\n", "cpu.max": "150000 100000\n", "pids.max": "9\n"}
	for _, tc := range []struct {
		v2          bool
		files       map[string]string
		file, other string
	}{
		{false, v1, "memory/memory.limit_in_bytes", "9223372036854771712\n"},
		{false, v1, "cpu/cpu.cfs_quota_us", "-1\n"},
		{false, v1, "pids/pids.max", "max\n"},
		{true, v2, "memory.max", "max\n"},
		{true, v2, "cpu.max", "max 100000\n"},
		{true, v2, "pids.max", "10\n"},
	} {
		g := group(t, tc.v2, tc.files)
		if err := g.Confirm(set); err != nil {
			t.Errorf("as set: %v", err)
		}
		controller, file, ok := strings.Cut(tc.file, "/")
		if !ok {
			controller, file = "", tc.file
		}
		path := g.file(controller, file)
		if err := os.WriteFile(path, []byte(tc.other), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := g.Confirm(set); err == nil {
			t.Errorf("%s is %q and passes", tc.file, tc.other)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := g.Confirm(set); err == nil {
			t.Errorf("%s is not there and passes", tc.file)
		}
	}
}
