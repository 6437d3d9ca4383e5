package execenvtest

import (
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

var lifecycleCases = []testCase{
	{clause: "P4", name: "restart_attaches_or_leaves_nothing", needs: needsRestart, run: restart},
	{clause: "P7", name: "nothing_survives_under_the_same_id", run: freshUnderSameID},
	{clause: "P7", name: "parallel_sandboxes_share_no_files", run: noSharedFiles},
	{clause: "P8", name: "sandbox_that_ran_out_of_memory_stays_listed", needs: needsMemory, run: endedByMemory},
	{clause: "P8", name: "sandbox_that_was_lost_stays_listed", needs: needsKill, run: endedByLoss},
	{clause: "P8", name: "lifetime_ends_the_sandbox", needs: needsClock, run: lifetime},
	{clause: "X10", name: "lost_sandbox_ends_its_commands", needs: needsKill, run: lost},
}

func restart(c *C) {
	b := c.create()
	p := b.start("hold")
	p.await("ready")
	c.env = c.h.Restart(c.T, c.env)
	s, err := c.env.Attach(c.ctx(), b.ID())
	if fault.Is(err, fault.NotFound) {
		if info, ok := c.listed(b.ID()); ok {
			c.Errorf("Attach after the restart is not found, and List has %+v", info)
		}
		return
	}
	c.ok("Attach after the restart", err)
	again := &box{Sandbox: s, c: c, spec: b.spec}
	info, err := s.Info(c.ctx())
	c.ok("Info after the restart", err)
	if info.Limits != b.spec.Limits {
		c.Errorf("after the restart the limits are %+v, want %+v", info.Limits, b.spec.Limits)
	}
	if info.State == execenv.StateRunning {
		if got := again.output("echo", "alive"); got != "alive\n" {
			c.Errorf("after the restart the sandbox prints %q", got)
		}
	}
	c.ok("Destroy after the restart", c.env.Destroy(c.ctx(), b.ID()))
}

// freshUnderSameID writes wherever that is possible, and looks for it in the
// next sandbox of the same name.
func freshUnderSameID(c *C) {
	b := c.create()
	dirs := []string{"/workspace", "/tmp", "/dev/shm"}
	for _, dir := range dirs {
		b.output("write", dir+"/secret", "of the first")
	}
	c.ok("Destroy", c.env.Destroy(c.ctx(), b.ID()))
	s, err := c.env.Create(c.ctx(), b.spec)
	c.ok("Create with the same ID", err)
	b = &box{Sandbox: s, c: c, spec: b.spec}
	b.install()
	for _, dir := range dirs {
		if r := b.run("read", dir+"/secret"); r.Outcome.Success() {
			c.Errorf("the next sandbox reads %s/secret: %q", dir, r.stdout)
		}
	}
}

func noSharedFiles(c *C) {
	one, two := c.create(), c.create()
	for _, dir := range []string{"/workspace", "/tmp", "/dev/shm"} {
		one.output("write", dir+"/secret", "of one")
		if r := two.run("read", dir+"/secret"); r.Outcome.Success() {
			c.Errorf("the other sandbox reads %s/secret: %q", dir, r.stdout)
		}
		if got := one.output("read", dir+"/secret"); got != "of one" {
			c.Errorf("%s/secret holds %q", dir, got)
		}
	}
}

// endsUp checks what P8 says of a sandbox that ended by itself.
func endsUp(c *C, b *box, want run.Kind) {
	c.Helper()
	var info execenv.Info
	c.eventually("the sandbox is listed as ended", func() bool {
		var ok bool
		if info, ok = c.listed(b.ID()); !ok {
			c.Fatalf("a sandbox that ended is not listed")
		}
		return info.State == execenv.StateEnded
	})
	if info.Outcome == nil {
		c.Fatalf("an ended sandbox has no outcome: %+v", info)
	}
	c.kind("ended sandbox", *info.Outcome, want)
	_, err := b.Exec(c.ctx(), probe("exit", "0"))
	c.code("Exec in an ended sandbox", err, fault.Gone)
	c.code("PutArchive into an ended sandbox", b.PutArchive(c.ctx(), "", bytesReader(tarOf(c.T, file("a", 0o644, "")))), fault.Gone)
	s, err := c.env.Attach(c.ctx(), b.ID())
	c.ok("Attach to an ended sandbox", err)
	if got, err := s.Info(c.ctx()); err != nil || got.State != execenv.StateEnded {
		c.Errorf("Info of an ended sandbox: %+v, %v", got, err)
	}
	c.ok("Destroy of an ended sandbox", c.env.Destroy(c.ctx(), b.ID()))
	if _, ok := c.listed(b.ID()); ok {
		c.Errorf("listed after Destroy")
	}
}

// endedByMemory holds whether the environment ends the sandbox or only the
// command: in the second case the sandbox must go on working.
func endedByMemory(c *C) {
	b := c.create(func(s *execenv.Spec) { s.Limits.MemoryBytes = 128 * run.MiB })
	bystander := b.start("hold")
	bystander.await("ready")
	p := b.start("alloc", "1073741824")
	c.kind("memory bomb", p.wait().Outcome, run.OutOfMemory)
	x, err := b.Exec(c.ctx(), probe("echo", "on"))
	if err == nil {
		if res, err := x.Wait(c.ctx()); err == nil && res.Outcome.Success() {
			return
		}
	}
	c.kind("bystander of a memory bomb", bystander.wait().Outcome, run.OutOfMemory)
	endsUp(c, b, run.OutOfMemory)
}

func endedByLoss(c *C) {
	b := c.create()
	c.h.KillInfrastructure(c.T, c.env, b.ID())
	endsUp(c, b, run.InfrastructureLost)
}

func lost(c *C) {
	b, other := c.create(), c.create()
	idle, busy := b.start("hold"), b.start("flood", "stdout", endless)
	idle.await("ready")
	bystander := other.start("hold")
	bystander.await("ready")
	c.h.KillInfrastructure(c.T, c.env, b.ID())
	for _, p := range []*proc{idle, busy} {
		c.kind(p.name+" in a lost sandbox", p.wait().Outcome, run.InfrastructureLost)
	}
	if out, _ := idle.log(0); out != "ready\n" {
		c.Errorf("the log of a lost command is %q", out)
	}
	if got := other.output("echo", "alive"); got != "alive\n" {
		c.Errorf("after the loss of one sandbox another prints %q", got)
	}
	endsUp(c, b, run.InfrastructureLost)
}

// lifetime reads "ends the sandbox" as: the clock ended it, and with it every
// command in it.
func lifetime(c *C) {
	const life = 3 * time.Second
	b := c.create(func(s *execenv.Spec) { s.Lifetime = life })
	info, err := b.Info(c.ctx())
	c.ok("Info", err)
	if d := info.ExpiresAt.Sub(info.CreatedAt); d < life-time.Second || d > life+time.Second {
		c.Errorf("the sandbox expires %s after its creation, want %s", d, life)
	}
	p := b.start("ignore-term")
	c.kind("command at the end of the lifetime", p.wait().Outcome, run.WallClock)
	endsUp(c, b, run.WallClock)
}
