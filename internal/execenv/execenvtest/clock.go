package execenvtest

import (
	"fmt"
	"strings"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/run"
)

var clockCases = []testCase{
	{clause: "X6", name: "limit_wins_over_a_larger_timeout", needs: needsClock, run: limitWins},
	{clause: "X6", name: "timeout_wins_over_a_larger_limit", needs: needsClock, run: timeoutWins},
	{clause: "X6", name: "ignored_signals_do_not_help", needs: needsClock, run: clockBeatsIgnorance},
	{clause: "X6", name: "stopped_program_ends", needs: needsClock, run: clockEndsStopped},
	{clause: "X6", name: "whole_tree_is_killed", needs: needsClock, run: clockKillsTree},
}

var treeCases = []testCase{
	{clause: "X7", name: "daemon_with_stdout_delays_nothing_and_dies", run: daemonDies},
	{clause: "X7", name: "stopped_daemon_dies", run: stoppedDaemonDies},
	{clause: "X7", name: "other_commands_go_on", run: othersGoOn},
	{clause: "X8", name: "kill_reaches_the_whole_tree", run: killTree},
	{clause: "X8", name: "kill_ends_a_stopped_program", run: killStopped},
}

// gone waits until no process of the sandbox has mark in its command line.
func (b *box) gone(mark string) {
	b.c.Helper()
	var last string
	b.c.eventually("processes of "+mark+" are gone", func() bool {
		last = ""
		for line := range strings.Lines(b.output("ps")) {
			if strings.Contains(line, mark) {
				last += line
			}
		}
		return last == ""
	})
}

// sees checks that ps can tell: a process with mark is there now.
func (b *box) sees(mark string) {
	b.c.Helper()
	if out := b.output("ps"); !strings.Contains(out, mark) {
		b.c.Fatalf("ps does not show %q, so it could not tell that it is gone:\n%s", mark, out)
	}
}

// still checks that a beating file no longer grows.
func (b *box) still(path string) {
	b.c.Helper()
	first := b.output("read", path)
	time.Sleep(30 * time.Millisecond) // six beats of a daemon that lives
	if second := b.output("read", path); len(second) != len(first) {
		b.c.Errorf("something still beats in %s", path)
	}
}

func (c *C) wallClock(what string, res execenv.Result, limit time.Duration) {
	c.Helper()
	c.kind(what, res.Outcome, run.WallClock)
	if !res.Outcome.Touched(run.LimitWallClock) {
		c.Errorf("%s: limits hit are %v, want wall_clock among them", what, res.Outcome.LimitsHit)
	}
	if res.Duration < limit-limit/10 {
		c.Errorf("%s: ended after %s, before its limit of %s", what, res.Duration, limit)
	}
	if res.Duration > limit+c.h.Patience/4 {
		c.Errorf("%s: ended after %s, long after its limit of %s", what, res.Duration, limit)
	}
}

func limitWins(c *C) {
	const limit = 300 * time.Millisecond
	b := c.create(func(s *execenv.Spec) { s.Limits.WallClock = limit })
	for _, timeout := range []time.Duration{0, time.Hour} {
		spec := probe("hold")
		spec.Timeout = timeout
		r := b.exec(spec).finish()
		c.wallClock(fmt.Sprintf("hold with timeout %s", timeout), r.Result, limit)
	}
	// The limit is the command's, not the sandbox's.
	spec := execenv.ExecSpec{Argv: []string{"/no-such-program"}}
	c.kind("afterwards", b.exec(spec).wait().Outcome, run.NotStarted)
}

func timeoutWins(c *C) {
	b := c.create()
	long := b.start("hold")
	long.await("ready")
	spec := probe("hold")
	spec.Timeout = 250 * time.Millisecond
	c.wallClock("hold", b.exec(spec).wait(), spec.Timeout)
	spec = probe("exit", "0")
	spec.Timeout = c.h.Patience
	c.exited("exit in time", b.exec(spec).wait().Outcome, 0)
	c.ok("Kill", long.Kill(c.ctx()))
	c.kind("the command without timeout", long.wait().Outcome, run.Cancelled)
}

func clockBeatsIgnorance(c *C) {
	b := c.create()
	spec := probe("ignore-term")
	spec.Timeout = 2 * time.Second
	r := b.exec(spec).finish()
	c.wallClock("ignore-term", r.Result, spec.Timeout)
	if r.stdout != "ready\n" {
		c.Errorf("what it wrote before is %q", r.stdout)
	}
}

func clockEndsStopped(c *C) {
	b := c.create()
	spec := probe("stop-self")
	spec.Timeout = time.Second
	c.wallClock("stop-self", b.exec(spec).wait(), spec.Timeout)
	b.gone("stop-self")
}

func clockKillsTree(c *C) {
	b := c.create()
	spec := probe("family", "/workspace/clocked")
	spec.Timeout = 3 * time.Second
	p := b.exec(spec)
	p.await("ready")
	b.sees("clocked")
	c.wallClock("family", p.wait(), spec.Timeout)
	b.gone("clocked")
	b.still("/workspace/clocked")
}

func daemonDies(c *C) {
	b := c.create()
	for _, mark := range []string{"one", "two"} {
		p := b.start("daemon", "/workspace/beat-"+mark)
		c.soon("the end of a command whose daemon holds stdout", func() {
			r := p.finish()
			c.exited("daemon", r.Outcome, 0)
			if r.stdout != "ready\n" {
				c.Errorf("it wrote %q", r.stdout)
			}
		})
		b.gone("beat-" + mark)
		b.still("/workspace/beat-" + mark)
	}
}

func stoppedDaemonDies(c *C) {
	b := c.create()
	p := b.start("daemon", "/workspace/beat", "stop")
	c.soon("the end of a command whose daemon is stopped", func() {
		c.exited("daemon", p.finish().Outcome, 0)
	})
	b.gone("/workspace/beat")
}

func othersGoOn(c *C) {
	b := c.create()
	other := b.exec(execenv.ExecSpec{Argv: []string{probePath, "cat"}, Stdin: true})
	fam := b.start("family", "/workspace/family")
	fam.await("ready")
	for i := range 3 {
		p := b.start("daemon", fmt.Sprintf("/workspace/beat%d", i))
		c.exited("daemon", p.wait().Outcome, 0)
		b.gone(fmt.Sprintf("/workspace/beat%d", i))
	}
	b.sees("daemon-child /workspace/family")
	_, err := other.WriteStdin(c.ctx(), []byte("alive"))
	c.ok("WriteStdin to the other command", err)
	other.await("alive")
	c.ok("CloseStdin", other.CloseStdin(c.ctx()))
	c.exited("the other command", other.wait().Outcome, 0)
}

func killTree(c *C) {
	b := c.create()
	p, other := b.start("family", "/workspace/tree"), b.start("family", "/workspace/other")
	p.await("ready")
	other.await("ready")
	b.sees("daemon-child /workspace/tree")
	c.ok("Kill", p.Kill(c.ctx()))
	c.kind("family", p.wait().Outcome, run.Cancelled)
	b.gone("/workspace/tree")
	b.still("/workspace/tree")
	b.sees("daemon-child /workspace/other")
}

func killStopped(c *C) {
	b := c.create()
	p := b.start("stop-self")
	p.await("ready")
	c.ok("Kill", p.Kill(c.ctx()))
	c.kind("stop-self", p.wait().Outcome, run.Cancelled)
	b.gone("stop-self")
}
