package gvisor

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/gvisor/backing"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/testenv"
)

// diskWorld is an environment whose large workspaces are on a disk of its own.
type diskWorld struct {
	*testing.T
	env  *testEnvironment
	disk string
}

func newDiskWorld(t *testing.T, disk string, cfg backing.Config) diskWorld {
	t.Helper()
	cfg.Dir = disk
	return diskWorld{t, openTestEnvironment(t, t.TempDir(), func(c *Config) { c.Disk = cfg }), disk}
}

func (w diskWorld) create(id string, disk, memory int64) (execenv.Sandbox, error) {
	l := run.DefaultLimits()
	l.DiskBytes, l.MemoryBytes = disk, memory
	return w.env.Create(w.Context(), execenv.Spec{ID: id, Image: "bare", Limits: l})
}

func (w diskWorld) must(sb execenv.Sandbox, err error) execenv.Sandbox {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
	return sb
}

func (w diskWorld) destroy(id string) {
	w.Helper()
	if err := w.env.Destroy(context.Background(), id); err != nil {
		w.Fatal(err)
	}
}

// probe runs an attempt of the guest helper.
func (w diskWorld) probe(sb execenv.Sandbox, args ...string) (execenv.Result, string) {
	w.Helper()
	c, err := sb.Exec(w.Context(), execenv.ExecSpec{Argv: append([]string{guestPath, "probe"}, args...)})
	if err != nil {
		w.Fatal(err)
	}
	r, err := c.Wait(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	var out strings.Builder
	if err := c.Output(w.Context(), 0, func(chunk execenv.Chunk) error { out.Write(chunk.Data); return nil }); err != nil {
		w.Fatal(err)
	}
	return r, out.String()
}

func (w diskWorld) free() int64 { w.Helper(); return testenv.Free(w, w.disk) }

func TestLargeWorkspaceIsSetAsideFilledAndGone(t *testing.T) {
	testenv.RequireRoot(t)
	w := newDiskWorld(t, testenv.SmallDisk(t, 640*run.MiB), backing.Config{})
	before := w.free()
	const disk, memory = 320 * run.MiB, 96 * run.MiB
	sb := w.must(w.create("large", disk, memory))
	if free := w.free(); free > before-disk-memory {
		t.Errorf("of %d bytes %d are free; the workspace and /tmp should be set aside", before, free)
	}
	if _, err := w.create("second", disk, memory); !fault.Is(err, fault.Exhausted) || !strings.Contains(err.Error(), "no room") {
		t.Errorf("a second one without room gives %v", err)
	}
	if _, err := w.create("never", run.GiB, memory); !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), "never fit") {
		t.Errorf("one that is larger than the disk gives %v", err)
	}
	for _, id := range []string{"second", "never"} {
		if _, ok := w.env.boxes.Find(id); ok {
			t.Errorf("%s, which could not be created, is listed", id)
		}
	}
	for _, place := range []struct {
		file  string
		bytes int64
	}{{"/workspace/big", disk}, {"/tmp/big", memory}} {
		r, out := w.probe(sb, "fill", place.file, fmt.Sprint(run.GiB))
		if !strings.Contains(out, fmt.Sprintf("written %d\n", place.bytes)) || !strings.Contains(out, "ENOSPC") || !r.Outcome.Touched(run.LimitDisk) {
			t.Errorf("%s: %s, %q; want %d bytes and the limit named", place.file, r.Outcome, out, place.bytes)
		}
		// The host's cache of what was written is not the program's memory.
		if r.Usage.PeakMemoryBytes == 0 || r.Usage.PeakMemoryBytes > memory*3/4 {
			t.Errorf("after %s the peak is %d bytes", place.file, r.Usage.PeakMemoryBytes)
		}
	}
	if free := w.free(); free < before-(disk+memory)*65/64 {
		t.Errorf("%d of %d bytes are free: full places take more than was set aside", free, before)
	}
	w.destroy("large")
	if free := w.free(); free != before {
		t.Errorf("afterwards %d bytes are free, were %d", free, before)
	}
	w.must(w.create("second", disk, memory))
	killSentry(t, w.env, "second")
	w.destroy("second")
	if free := w.free(); free != before {
		t.Errorf("after a sandbox that was lost %d bytes are free, were %d", free, before)
	}
}

// What a sandbox's kernel could do that a program has taken over.
func TestKernelThatTakesMoreDiskIsEnded(t *testing.T) {
	testenv.RequireRoot(t)
	w := newDiskWorld(t, testenv.SmallDisk(t, 640*run.MiB), backing.Config{KeepFree: 32 * run.MiB})
	before := w.free()
	sb := w.must(w.create("greedy", 128*run.MiB, 96*run.MiB))
	b, _ := w.env.boxes.Find("greedy")
	sentrysFile, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", b.disk.Fd()), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Fallocate(sentrysFile, unix.FALLOC_FL_KEEP_SIZE, 0, before-16*run.MiB); err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(sentrysFile)
	select {
	case <-b.Ended():
	case <-time.After(10 * time.Second):
		t.Fatal("it goes on")
	}
	info, err := sb.Info(t.Context())
	if err != nil || info.Outcome == nil || info.Outcome.Kind != run.InfrastructureLost {
		t.Errorf("it ended as %+v, %v", info, err)
	}
	w.destroy("greedy")
	if free := w.free(); free != before {
		t.Errorf("afterwards %d bytes are free, were %d", free, before)
	}
}

func TestTotalOfAllLargeWorkspaces(t *testing.T) {
	testenv.RequireRoot(t)
	w := newDiskWorld(t, testenv.SmallDisk(t, 640*run.MiB), backing.Config{Total: 250 * run.MiB})
	w.must(w.create("first", 128*run.MiB, 64*run.MiB))
	if _, err := w.create("second", 128*run.MiB, 64*run.MiB); !fault.Is(err, fault.Exhausted) {
		t.Errorf("beyond the total: %v", err)
	}
	w.must(w.create("in-memory", 32*run.MiB, 64*run.MiB))
	w.destroy("first")
	w.must(w.create("second", 128*run.MiB, 64*run.MiB))
}

// Without a disk, what fits into memory works and the rest is refused.
func TestNoDiskForWorkspaces(t *testing.T) {
	testenv.RequireRoot(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
	w := newDiskWorld(t, dir, backing.Config{})
	if w.env.Capabilities().DiskBeyondMemory {
		t.Error("it claims that the disk may be larger than memory")
	}
	if _, err := w.create("large", 97*run.MiB, 96*run.MiB); !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), "AGENTDOCK_EXECD_DISK_DIR") {
		t.Errorf("a disk above memory gives %v", err)
	}
	sb := w.must(w.create("fits", 96*run.MiB, 96*run.MiB))
	if _, out := w.probe(sb, "fill", "/workspace/some", fmt.Sprint(run.MiB)); !strings.Contains(out, "written 1048576") {
		t.Errorf("it prints %q", out)
	}
}
