package contract

import (
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/testenv"
)

// A service that is killed leaves nothing of workspaces on the disk, before
// anybody sweeps: their files have no names.
func TestKilledServiceLeavesNoWorkspaceOnDisk(t *testing.T) {
	testenv.RequireRoot(t)
	disk := testenv.SmallDisk(t, 640*run.MiB)
	service := testenv.StartExecd(t, testenv.BareStore(t), "--disk-dir", disk, "--keep-free", "1m")
	env := service.Dial()
	before := testenv.Free(t, disk)
	limits := run.DefaultLimits()
	limits.DiskBytes, limits.MemoryBytes = 256*run.MiB, 64*run.MiB
	sb, err := env.Create(t.Context(), execenv.Spec{ID: "large", Image: testenv.BareImage, Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	// Killed while a program writes.
	if _, err := sb.Exec(t.Context(), execenv.ExecSpec{Argv: []string{"/.agentdock/agentdock-guest", "probe", "fill", "/workspace/big", "1073741824"}}); err != nil {
		t.Fatal(err)
	}
	if free := testenv.Free(t, disk); free > before-limits.DiskBytes {
		t.Fatalf("of %d bytes %d are free; the workspace is not on this disk", before, free)
	}
	service.Kill()
	for deadline := time.Now().Add(30 * time.Second); testenv.Free(t, disk) != before; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after kill -9 %d bytes are free, were %d", testenv.Free(t, disk), before)
		}
	}
	service.Start()
}
