package docker

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/testenv"
)

func TestTheLeastLimitOfMemoryCounts(t *testing.T) {
	root := t.TempDir()
	put := func(name, text string) string {
		t.Helper()
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	put("memory/a/memory.limit_in_bytes", "5000\n")
	put("memory/a/b/memory.limit_in_bytes", "9223372036854771712\n")
	put("user/memory.max", "max\n")
	put("user/docker/memory.max", "7000\n")
	for membership, want := range map[string]int64{
		"4:memory:/a/b\n1:cpu:/x\n": 5000,
		"0::/user/docker\n":         7000,
		"0::/user\n":                math.MaxInt64,
		"0::/\n4:memory:/a\n":       5000,
		"0::/../../etc\nnonsense\n": math.MaxInt64,
	} {
		if got, err := memoryLimit(root, put("membership", membership)); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", membership, got, err, want)
		}
	}
}

// TestFilesOfAllSandboxesFitIntoMemory: what is full is refused before it is made,
// and what is gone makes room.
func TestFilesOfAllSandboxesFitIntoMemory(t *testing.T) {
	daemon := testenv.StartDockerd(t)
	daemon.ImportBare()
	e := openTest(t, daemon, stateDir(t, daemon))
	if e.room <= 0 || e.room > e.Environment.daemon.memTotal/2 {
		t.Errorf("of %d bytes %d are for files", e.Environment.daemon.memTotal, e.room)
	}
	one := writableBytes(spec(e, "x").Limits)
	e.room = 2*one + run.MiB
	create(t, e, "one")
	create(t, e, "two")
	_, err := e.Create(t.Context(), spec(e, "three"))
	if !fault.Is(err, fault.Exhausted) || !strings.Contains(err.Error(), "destroy a sandbox") {
		t.Errorf("a third one: %v", err)
	}
	large := spec(e, "large")
	large.Limits.DiskBytes = e.room
	if _, err := e.Create(t.Context(), large); !fault.Is(err, fault.Unsupported) {
		t.Errorf("one that never fits: %v", err)
	}
	if err := e.Destroy(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	create(t, e, "three")
}
