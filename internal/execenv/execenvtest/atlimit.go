package execenvtest

import (
	"slices"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

var atLimitCases = []testCase{
	{clause: "X11", name: "command_ends_at_the_limits_it_names", run: endsAtLimits},
	{clause: "X11", name: "own_end_does_not_hide_the_limit", needs: needsDiskReport, run: ownEndAtLimit},
	{clause: "X11", name: "command_goes_on_at_other_limits", needs: needsDiskReport, run: goesOnAtOthers},
	{clause: "X11", name: "limits_that_nobody_knows_of_are_unsupported", run: atLimitUnsupported},
	{clause: "X11", name: "limits_that_always_end_are_invalid", run: atLimitInvalid},
}

func tight(s *execenv.Spec) {
	s.Limits.DiskBytes, s.Limits.Inodes, s.Limits.PIDs = 16*run.MiB, 64, 48
}

// endsAtLimits runs programs that reach a limit and would go on for ever.
func endsAtLimits(c *C) {
	b := c.create(tight)
	other := b.exec(execenv.ExecSpec{Argv: []string{probePath, "cat"}, Stdin: true})
	b.output("mkdir", "/workspace/many")
	for _, limit := range []struct {
		name     run.Limit
		enforced bool
		argv     []string
		free     string
	}{
		{run.LimitPIDs, c.caps.Enforces.PIDs, []string{"forkstorm"}, ""},
		{run.LimitDisk, c.caps.Enforces.Disk, []string{"fill", "/tmp/big", "hold"}, "/tmp/big"},
		{run.LimitInodes, c.caps.Enforces.Inodes, []string{"touch", "/workspace/many", "5000", "hold"}, "/workspace/many"},
		{run.LimitOutput, c.caps.Enforces.Output, []string{"flood", "stdout", endless}, ""},
	} {
		if !limit.enforced {
			continue
		}
		if !c.caps.Reports.Has(limit.name) {
			c.notKnown(limit.name)
			continue
		}
		for _, at := range [][]run.Limit{{limit.name}, c.reported()} {
			spec := probe(limit.argv[0], limit.argv[1:]...)
			spec.EndAtLimit, spec.Timeout = at, c.h.Patience
			r := b.exec(spec).finish()
			c.kind(limit.argv[0], r.Outcome, limit.name.EndsAt())
			c.only(limit.argv[0], r.Outcome, limit.name)
			if r.Outcome.Evidence == "" {
				c.Errorf("%s: no evidence", limit.argv[0])
			}
			b.gone(limit.argv[0])
			if limit.free != "" {
				b.output("remove", limit.free)
				b.output("mkdir", "/workspace/many")
			}
		}
	}
	c.ok("CloseStdin", other.CloseStdin(c.ctx()))
	c.exited("a command beside them", other.wait().Outcome, 0)
}

// ownEndAtLimit runs a program that ends at once when it has reached the limit.
func ownEndAtLimit(c *C) {
	b := c.create(tight)
	spec := probe("fill", "/tmp/big", "cope")
	spec.EndAtLimit = []run.Limit{run.LimitDisk}
	for range 5 {
		r := b.exec(spec).finish()
		c.kind("fill", r.Outcome, run.Disk)
		c.only("fill", r.Outcome, run.LimitDisk)
		b.output("remove", "/tmp/big")
	}
}

func goesOnAtOthers(c *C) {
	b := c.create(tight)
	spec := probe("fill", "/tmp/big", "cope")
	spec.EndAtLimit = slices.DeleteFunc(c.reported(), func(l run.Limit) bool { return l == run.LimitDisk })
	r := b.exec(spec).finish()
	c.exited("fill", r.Outcome, 0)
	c.only("fill", r.Outcome, run.LimitDisk)
	// The clock and a kill are still what they are.
	spec = probe("fill", "/tmp/big", "hold")
	spec.EndAtLimit, spec.Timeout = []run.Limit{run.LimitInodes}, time.Second
	c.kind("fill and the clock", b.exec(spec).finish().Outcome, run.WallClock)
}

func atLimitInvalid(c *C) {
	b := c.create()
	for _, at := range [][]run.Limit{
		{run.LimitMemory}, {run.LimitWallClock}, {run.LimitDisk, run.LimitDisk}, {"cpu"}, {""},
	} {
		spec := probe("exit", "0")
		spec.EndAtLimit = at
		_, err := b.Exec(c.ctx(), spec)
		c.code("Exec that ends at "+string(at[0]), err, fault.Invalid)
	}
}

// reported are the limits at which a command can be made to end here.
func (c *C) reported() []run.Limit {
	return slices.DeleteFunc(run.AtLimits(), func(l run.Limit) bool { return !c.caps.Reports.Has(l) })
}

func atLimitUnsupported(c *C) {
	b := c.create()
	for _, l := range run.AtLimits() {
		spec := probe("exit", "0")
		spec.EndAtLimit = []run.Limit{l}
		x, err := b.Exec(c.ctx(), spec)
		if !c.caps.Reports.Has(l) {
			c.code("Exec that ends at "+string(l)+", of which nobody would know", err, fault.Unsupported)
			continue
		}
		c.ok("Exec that ends at "+string(l), err)
		res, err := x.Wait(c.ctx())
		c.ok("Wait", err)
		c.exited("Exec that ends at "+string(l), res.Outcome, 0)
	}
}
