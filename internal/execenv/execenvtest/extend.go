package execenvtest

import (
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

var extendCases = []testCase{
	{clause: "P9", name: "extended_sandbox_lives_on", needs: needsClock, run: extended},
	{clause: "P9", name: "shortened_sandbox_ends", needs: needsClock, run: shortened},
	{clause: "P9", name: "extension_that_is_none", run: extendedByNothing},
	{clause: "X12", name: "execs_names_running_and_ended", run: execsListed},
}

// extended takes the end of a younger sandbox as the sign that the time of the
// older one would have passed.
func extended(c *C) {
	const life = 3 * time.Second
	short := func(s *execenv.Spec) { s.Lifetime = life }
	lives := c.create(short)
	before := time.Now()
	c.ok("Extend", lives.Extend(c.ctx(), time.Hour))
	info, err := lives.Info(c.ctx())
	c.ok("Info", err)
	if d := info.ExpiresAt.Sub(before); d < time.Hour-time.Second || d > time.Hour+c.h.Patience {
		c.Errorf("after an extension by an hour the sandbox expires in %s", d)
	}
	endsUp(c, c.create(short), run.WallClock)
	if got := lives.output("echo", "alive"); got != "alive\n" {
		c.Errorf("after its first lifetime the sandbox prints %q", got)
	}
}

func shortened(c *C) {
	b := c.create(func(s *execenv.Spec) { s.Lifetime = time.Hour })
	p := b.start("ignore-term")
	c.ok("Extend", b.Extend(c.ctx(), time.Second))
	c.kind("command at the end of the lifetime", p.wait().Outcome, run.WallClock)
	c.eventually("the sandbox is listed as ended", func() bool {
		info, ok := c.listed(b.ID())
		return ok && info.State == execenv.StateEnded
	})
	c.code("Extend of an ended sandbox", b.Extend(c.ctx(), time.Hour), fault.Gone)
	endsUp(c, b, run.WallClock)
	c.code("Extend of a destroyed sandbox", b.Extend(c.ctx(), time.Hour), fault.Gone, fault.NotFound)
}

func extendedByNothing(c *C) {
	b := c.create()
	for _, d := range []time.Duration{0, -time.Second} {
		c.code("Extend by nothing", b.Extend(c.ctx(), d), fault.Invalid)
	}
	if got := b.output("echo", "alive"); got != "alive\n" {
		c.Errorf("after that the sandbox prints %q", got)
	}
}

func execsListed(c *C) {
	b := c.create()
	if infos, err := b.Execs(c.ctx()); err != nil || len(infos) != 0 {
		c.Errorf("of a new sandbox: %+v, %v", infos, err)
	}
	one, two := probe("exit", "3"), probe("hold")
	one.ID, two.ID, two.Stdin = "one", "two", true
	ended := b.exec(one)
	result := ended.wait()
	runs := b.exec(two)
	runs.await("ready")
	b.exec(execenv.ExecSpec{ID: "missing", Argv: []string{"no-such-program"}}).wait()

	infos, err := b.Execs(c.ctx())
	c.ok("Execs", err)
	var ids []string
	for _, i := range infos {
		ids = append(ids, i.ID)
	}
	if d := cmp.Diff([]string{"one", "two", "missing"}, ids); d != "" {
		c.Fatalf("in the list (-want +got): %s", d)
	}
	first, second := infos[0], infos[1]
	if first.Result == nil || !sameResult(*first.Result, result) || !slices.Equal(first.Argv, one.Argv) || first.Stdin || first.TTY || first.StartedAt.IsZero() {
		c.Errorf("the command that ended is %+v, want the result %+v", first, result)
	}
	if second.Result != nil || !second.Stdin || !slices.Equal(second.Argv, two.Argv) {
		c.Errorf("the command that runs is %+v", second)
	}
	c.ok("Kill", runs.Kill(c.ctx()))
	killed := runs.wait()
	if infos, err = b.Execs(c.ctx()); err != nil || infos[1].Result == nil || !sameResult(*infos[1].Result, killed) {
		c.Errorf("after its end it is %+v, %v", infos, err)
	}
	c.ok("Destroy", c.env.Destroy(c.ctx(), b.ID()))
	_, err = b.Execs(c.ctx())
	c.code("Execs of a destroyed sandbox", err, fault.NotFound, fault.Gone)
}
