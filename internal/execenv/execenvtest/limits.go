package execenvtest

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/run"
)

var limitCases = []testCase{
	{clause: "X9", name: "memory_bomb_is_out_of_memory", needs: needsMemory, run: memoryBomb},
	{clause: "X9", name: "memory_bomb_is_out_of_memory_to_all_in_its_sandbox", needs: needsMemory, run: memoryBombBeside},
	{clause: "X9", name: "fork_bomb_sees_EAGAIN", needs: needsPIDs, run: forkBomb},
	{clause: "X9", name: "fork_storm_ends_by_the_clock", needs: needsPIDs, run: forkStorm},
	{clause: "X9", name: "full_disk_is_ENOSPC", needs: needsDisk, run: fullDisk},
	{clause: "X9", name: "no_inodes_is_ENOSPC", needs: needsInodes, run: noInodes},
	{clause: "X9", name: "limits_that_a_command_coped_with_are_named", run: copedWith},
	{clause: "X9", name: "limits_that_another_touched_are_not_named", run: touchedByAnother},
	{clause: "X9", name: "limits_that_were_not_touched_are_not_named", run: untouched},
	{clause: "G2", name: "tmp_and_shm_have_limits", needs: needsDisk, run: smallTmp},
	{clause: "G5", name: "disk_beyond_memory_can_be_filled_and_read", needs: needsDiskBeyondMemory, run: largeDisk},
	{clause: "G5", name: "disk_beyond_memory_leaves_the_other_limits", needs: needsDiskBeyondMemory, run: largeDiskLimits},
}

// touched wants a limit named, where it is known that a command reached it.
func (c *C) touched(what string, out run.Outcome, want run.Limit) {
	c.Helper()
	if slices.Contains(run.AtLimits(), want) && !c.caps.Reports.Has(want) {
		c.notKnown(want)
		if out.Touched(want) {
			c.Errorf("%s: limits hit are %v, and it is declared that nobody can know of %s", what, out.LimitsHit, want)
		}
		return
	}
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

// memoryBombBeside looks at the commands that a memory bomb takes with it: they
// are not lost, and none is said to have ended by itself.
func memoryBombBeside(c *C) {
	b := c.create(func(s *execenv.Spec) { s.Limits.MemoryBytes = 128 * run.MiB })
	beside := []*proc{b.start("hold"), b.start("ignore-term"), b.start("flood", "stdout", endless)}
	beside[0].await("ready")
	beside[1].await("ready")
	bomb := b.start("alloc", fmt.Sprint(2*run.GiB))
	for _, p := range append(beside, bomb) {
		r := p.wait()
		c.kind(p.name+" beside a memory bomb", r.Outcome, run.OutOfMemory)
		c.touched(p.name+" beside a memory bomb", r.Outcome, run.LimitMemory)
		if r.Outcome.Evidence == "" {
			c.Errorf("%s beside a memory bomb: no evidence", p.name)
		}
	}
	endsUp(c, b, run.OutOfMemory)
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

// copedWith runs programs that meet a limit, make room and end well.
func copedWith(c *C) {
	b := c.create(func(s *execenv.Spec) { s.Limits.DiskBytes, s.Limits.Inodes = 16*run.MiB, 64 })
	if c.caps.Enforces.Disk {
		for _, file := range []string{"/workspace/big", "/tmp/big", "/dev/shm/big"} {
			r := b.run("fill", file, "cope")
			c.exited("fill and cope", r.Outcome, 0)
			c.only("fill "+file+" and cope", r.Outcome, run.LimitDisk)
		}
	}
	if c.caps.Enforces.Inodes {
		for _, dir := range []string{"/workspace/many", "/tmp/many"} {
			b.output("mkdir", dir)
			r := b.run("touch", dir, "5000", "cope")
			c.exited("touch and cope", r.Outcome, 0)
			c.only("touch in "+dir+" and cope", r.Outcome, run.LimitInodes)
		}
	}
}

// touchedByAnother has a command run beside others that meet limits, and one
// after them, when a place is still full.
func touchedByAnother(c *C) {
	b := c.create(func(s *execenv.Spec) {
		s.Limits.DiskBytes, s.Limits.Inodes, s.Limits.PIDs = 16*run.MiB, 64, 64
		s.Limits.MemoryBytes = run.GiB // as for the fork bomb alone: nobody is to hit that
	})
	modest := b.exec(execenv.ExecSpec{Argv: []string{probePath, "cat"}, Stdin: true})
	if c.caps.Enforces.PIDs {
		c.touched("fork bomb", b.run("forkbomb").Outcome, run.LimitPIDs)
	}
	if c.caps.Enforces.Inodes {
		b.output("mkdir", "/workspace/many")
		c.touched("touch", b.run("touch", "/workspace/many", "5000").Outcome, run.LimitInodes)
	}
	if c.caps.Enforces.Disk {
		c.touched("fill", b.run("fill", "/tmp/big").Outcome, run.LimitDisk)
	}
	c.ok("CloseStdin", modest.CloseStdin(c.ctx()))
	for _, r := range []execenv.Result{modest.wait(), b.run("streams", "3").Result} {
		if len(r.Outcome.LimitsHit) > 0 {
			c.Errorf("a modest program beside or after greedy ones hit %v", r.Outcome.LimitsHit)
		}
	}
}

// only wants exactly one limit named.
func (c *C) only(what string, out run.Outcome, want run.Limit) {
	c.Helper()
	if !c.caps.Reports.Has(want) {
		c.touched(what, out, want)
		return
	}
	if len(out.LimitsHit) != 1 || out.LimitsHit[0] != want {
		c.Errorf("%s: limits hit are %v, want %s", what, out.LimitsHit, want)
	}
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

// large asks for twice as much disk as memory.
func large(s *execenv.Spec) {
	s.Limits.MemoryBytes, s.Limits.DiskBytes, s.Limits.Inodes = 64*run.MiB, 128*run.MiB, 64
}

func largeDisk(c *C) {
	b := c.create(large)
	r := b.run("fill", "/workspace/big")
	c.exited("fill", r.Outcome, int(syscall.ENOSPC))
	c.touched("fill", r.Outcome, run.LimitDisk)
	var n int64
	if _, err := fmt.Sscanf(r.stdout, "written %d", &n); err != nil || n < 112*run.MiB || n > 128*run.MiB {
		c.Errorf("of 128 MiB less the probe, %d bytes could be written: %q", n, r.stdout)
	}
	if got, want := b.output("intact", "/workspace/big"), fmt.Sprintf("intact %d\n", n); got != want {
		c.Errorf("after %q it prints %q", r.stdout, got)
	}
	usage, err := b.Usage(c.ctx())
	c.ok("Usage", err)
	if usage.MemoryBytes > 64*run.MiB || (usage.DiskBytes != 0 && usage.DiskBytes < n) {
		c.Errorf("Usage has %d bytes of memory and %d of disk after %d were written", usage.MemoryBytes, usage.DiskBytes, n)
	}
	b.output("remove", "/workspace/big")
	b.output("write", "/workspace/small", "room again")
}

func largeDiskLimits(c *C) {
	b := c.create(large)
	b.output("mkdir", "/workspace/many")
	r := b.run("touch", "/workspace/many", "5000")
	c.exited("touch", r.Outcome, int(syscall.ENOSPC))
	c.touched("touch", r.Outcome, run.LimitInodes)
	b.output("remove", "/workspace/many")
	r = b.run("fill", "/tmp/big")
	c.exited("fill /tmp", r.Outcome, int(syscall.ENOSPC))
	r = b.run("alloc", fmt.Sprint(run.GiB))
	c.kind("more memory than the limit", r.Outcome, run.OutOfMemory)
	c.touched("more memory than the limit", r.Outcome, run.LimitMemory)
}
