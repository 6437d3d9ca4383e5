package bench

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/image"
	"github.com/agentdock/agentdock/internal/run"
)

// Programs that use a workspace, and say how long it took them in seconds.
var workspacePrograms = []struct{ name, program string }{
	{"small_files", `
for i in range(5000):
    with open("f%d" % i, "wb") as f: f.write(b"x" * 3000)`},
	{"big_file", `
block = b"x" * (1 << 20)
with open("big", "wb", buffering=0) as f:
    for _ in range(499): f.write(block)`},
	{"big_file_again", `
with open("big", "rb", buffering=0) as f:
    while f.read(1 << 20): pass`},
	// As a clone does: directories, packed and loose files, names changed.
	{"tree", `
import os
for d in range(200):
    os.mkdir("d%d" % d)
    for i in range(20):
        with open("d%d/new" % d, "wb") as f: f.write(b"y" * (200 + 4000 * (i % 5)))
        os.rename("d%d/new" % d, "d%d/%d" % (d, i))
for d in range(200):
    for i in range(20):
        os.stat("d%d/%d" % (d, i))
        with open("d%d/%d" % (d, i), "rb") as f: f.read()`},
	{"remove", `
import os, shutil
for n in os.listdir("."):
    shutil.rmtree(n) if os.path.isdir(n) else os.unlink(n)`},
}

// BenchmarkWorkspace does the same work where the workspace is in memory and
// where it is on disk: with as much memory, and with less than the files take.
func BenchmarkWorkspace(b *testing.B) {
	env := service(b)
	for _, store := range []struct {
		name         string
		memory, disk int64
	}{
		{"memory", 2 * run.GiB, run.GiB},
		{"disk", 2 * run.GiB, run.GiB + run.MiB},
		{"disk_with_little_memory", 256 * run.MiB, run.GiB},
	} {
		b.Run(store.name, func(b *testing.B) {
			seconds := map[string]float64{}
			n := 0
			for b.Loop() {
				n++
				created++
				limits := run.DefaultLimits()
				limits.MemoryBytes, limits.DiskBytes = store.memory, store.disk
				sb, err := env.Create(b.Context(), execenv.Spec{ID: fmt.Sprintf("bench-%d", created), Image: image.Default, Limits: limits})
				if err != nil {
					b.Fatal(err)
				}
				for _, p := range workspacePrograms {
					seconds[p.name] += timed(b, sb, p.program)
				}
				if err := env.Destroy(context.Background(), sb.ID()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(0, "ns/op")
			for _, p := range workspacePrograms {
				b.ReportMetric(1000*seconds[p.name]/float64(n), p.name+"-ms")
			}
		})
	}
}

// timed runs a Python program and returns what it took by its own clock.
func timed(b *testing.B, sb execenv.Sandbox, program string) float64 {
	b.Helper()
	source := "import time\nt0 = time.monotonic()\n" + program + "\nprint(time.monotonic() - t0)"
	c, err := sb.Exec(b.Context(), execenv.ExecSpec{Argv: []string{"python3", "-c", source}})
	if err != nil {
		b.Fatal(err)
	}
	succeed(b, c)
	var out strings.Builder
	if err := c.Output(b.Context(), 0, func(chunk execenv.Chunk) error { out.Write(chunk.Data); return nil }); err != nil {
		b.Fatal(err)
	}
	var s float64
	if _, err := fmt.Sscan(out.String(), &s); err != nil {
		b.Fatalf("it prints %q", out.String())
	}
	return s
}
