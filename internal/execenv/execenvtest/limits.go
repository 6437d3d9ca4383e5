package execenvtest

import (
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/run"
)

var limitCases = []testCase{
	{clause: "X9", name: "memory_bomb_is_out_of_memory", needs: needsMemory, run: memoryBomb},
	{clause: "X9", name: "fork_bomb_sees_EAGAIN", needs: needsPIDs, run: forkBomb},
	{clause: "X9", name: "fork_storm_ends_by_the_clock", needs: needsPIDs, run: forkStorm},
	{clause: "X9", name: "full_disk_is_ENOSPC", needs: needsDisk, run: fullDisk},
	{clause: "X9", name: "no_inodes_is_ENOSPC", needs: needsInodes, run: noInodes},
	{clause: "X9", name: "limits_that_were_not_touched_are_not_named", run: untouched},
	{clause: "G2", name: "tmp_and_shm_have_limits", needs: needsDisk, run: smallTmp},
}

func (c *C) touched(what string, out run.Outcome, want run.Limit) {
	c.Helper()
	if !out.Touched(want) {
		c.Errorf("%s: limits hit are %v, want %s among them", what, out.LimitsHit, want)
	}
}

func memoryBomb(c *C) {
	b := c.create(func(s *execenv.Spec) { s.Limits.MemoryBytes = 128 * run.MiB })
	other := c.create()
	bystander := other.start("hold")
	bystander.await("ready")
	r := b.start("alloc", fmt.Sprint(2*run.GiB)).wait()
	c.kind("memory bomb", r.Outcome, run.OutOfMemory)
	c.touched("memory bomb", r.Outcome, run.LimitMemory)
	if got := other.output("alloc", fmt.Sprint(32*run.MiB)); !strings.HasPrefix(got, "allocated") {
		c.Errorf("another sandbox, within its limit, prints %q", got)
	}
}

func forkBomb(c *C) {
	// Room in memory: a starved sandbox gives that of dead processes back late,
	// and this is about another limit.
	b := c.create(func(s *execenv.Spec) { s.Limits.PIDs, s.Limits.MemoryBytes = 64, run.GiB })
	r := b.run("forkbomb")
	c.exited("fork bomb", r.Outcome, int(syscall.EAGAIN))
	c.touched("fork bomb", r.Outcome, run.LimitPIDs)
	if !strings.Contains(r.stdout, "error EAGAIN\n") {
		c.Errorf("the fork bomb saw %q", r.stdout)
	}
	var n int
	if _, err := fmt.Sscanf(r.stdout, "children %d", &n); err != nil || n < 32 || n > 64 {
		c.Errorf("with a limit of 64 there were %d children: %q", n, r.stdout)
	}
	// All of them are dead, so there is room again, as often as it takes.
	for range 3 {
		again := b.run("forkbomb")
		c.exited("fork bomb again", again.Outcome, int(syscall.EAGAIN))
		var m int
		if _, err := fmt.Sscanf(again.stdout, "children %d", &m); err != nil || m < n-8 {
			c.Errorf("again there were %d children, at first %d", m, n)
		}
	}
	if got := b.output("echo", "usable"); got != "usable\n" {
		c.Errorf("afterwards the sandbox prints %q", got)
	}
}

func forkStorm(c *C) {
	b := c.create(func(s *execenv.Spec) { s.Limits.PIDs = 48 })
	spec := probe("forkstorm")
	spec.Timeout = time.Second
	r := b.exec(spec).finish()
	c.kind("fork storm", r.Outcome, run.WallClock)
	c.touched("fork storm", r.Outcome, run.LimitPIDs)
	b.gone("forkstorm")
	p := b.start("forkstorm")
	p.await("ready")
	c.ok("Kill", p.Kill(c.ctx()))
	c.kind("fork storm", p.wait().Outcome, run.Cancelled)
	b.gone("forkstorm")
}

func fullDisk(c *C) {
	b := c.create(func(s *execenv.Spec) { s.Limits.DiskBytes = 16 * run.MiB })
	r := b.run("fill", "/workspace/big")
	c.exited("fill", r.Outcome, int(syscall.ENOSPC))
	c.touched("fill", r.Outcome, run.LimitDisk)
	var n int64
	if _, err := fmt.Sscanf(r.stdout, "written %d", &n); err != nil || n < 8*run.MiB || n > 16*run.MiB {
		c.Errorf("of 16 MiB less the probe, %d bytes could be written: %q", n, r.stdout)
	}
	usage, err := b.Usage(c.ctx())
	c.ok("Usage", err)
	if usage.DiskBytes != 0 && (usage.DiskBytes < n || usage.DiskBytes > 16*run.MiB) {
		c.Errorf("Usage has %d bytes of disk after %d were written", usage.DiskBytes, n)
	}
	b.output("remove", "/workspace/big")
	b.output("write", "/workspace/small", "room again")
}

func noInodes(c *C) {
	b := c.create(func(s *execenv.Spec) { s.Limits.Inodes = 64 })
	b.output("mkdir", "/workspace/many")
	r := b.run("touch", "/workspace/many", "5000")
	c.exited("touch", r.Outcome, int(syscall.ENOSPC))
	c.touched("touch", r.Outcome, run.LimitInodes)
	var n int64
	if _, err := fmt.Sscanf(r.stdout, "created %d", &n); err != nil || n < 32 || n > 64 {
		c.Errorf("with a limit of 64 inodes %d files could be made: %q", n, r.stdout)
	}
	b.output("remove", "/workspace/many")
	b.output("write", "/workspace/one", "room again")
}

func untouched(c *C) {
	b := c.create()
	r := b.run("streams", "3")
	if len(r.Outcome.LimitsHit) > 0 || r.Truncated {
		c.Errorf("a modest program hit %v", r.Outcome.LimitsHit)
	}
	// A limit touched by one command is not the next one's.
	small := probe("flood", "stdout", "5000")
	small.OutputBytes = 100
	b.exec(small).wait()
	if r = b.run("streams", "3"); len(r.Outcome.LimitsHit) > 0 {
		c.Errorf("a modest program after a loud one hit %v", r.Outcome.LimitsHit)
	}
}

// smallTmp fills the other two places until an error comes. That it comes
// before memory ends the sandbox is what "each with a limit" promises.
func smallTmp(c *C) {
	b := c.create(func(s *execenv.Spec) { s.Limits.MemoryBytes = 512 * run.MiB })
	for _, dir := range []string{"/tmp", "/dev/shm"} {
		r := b.run("fill", dir+"/big")
		c.exited("fill "+dir, r.Outcome, int(syscall.ENOSPC))
		b.output("remove", dir+"/big")
	}
}
