package gvisor

import (
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/cgroup"
	"github.com/agentdock/agentdock/internal/execenv/gvisor/answer"
	"github.com/agentdock/agentdock/internal/run"
)

// decide names the outcome from the status that the sandbox's kernel kept, the
// host's counters, and what was done from here.
func (p *program) decide(status unix.WaitStatus) (run.Outcome, run.Usage) {
	b := p.box
	stats, err := b.group.Stats()
	if err == nil && stats.OOMKills > 0 {
		// The host's kernel picks one of the sandbox's processes; what is left
		// is not a machine any more.
		b.abandon("it went over its memory limit")
		return outOfMemory(stats, b.Spec.Limits), b.usageOf(stats)
	}
	outcome := p.meaning(status)
	usage := withPlaces(b.usageOf(stats), p.places)
	full := slices.ContainsFunc(p.places, func(p answer.Place) bool { return p.Free == 0 })
	hit := p.touched(p.refused, full)
	if l, ok := p.endsAt(hit); ok {
		outcome = p.endedAt(l, outcome)
	}
	outcome.LimitsHit = hit
	if outcome.Kind == run.WallClock {
		outcome.LimitsHit = append(outcome.LimitsHit, run.LimitWallClock)
	}
	return outcome, usage
}

// meaning says what a wait status means, knowing what was done from here.
func (p *program) meaning(status unix.WaitStatus) run.Outcome {
	killed := p.cmd.Killed()
	switch {
	case status.Exited():
		return run.ExitedWith(status.ExitStatus(), fmt.Sprintf("wait status 0x%04x kept by the sandbox's kernel", uint32(status)))
	case status.Signal() == unix.SIGKILL && killed == run.WallClock:
		return run.Outcome{Kind: run.WallClock, Evidence: fmt.Sprintf("still running after its limit of %s by the execution service's clock, then killed", p.cmd.Limit)}
	case status.Signal() == unix.SIGKILL && killed == run.Cancelled:
		return run.Outcome{Kind: run.Cancelled, Evidence: "killed on request"}
	default:
		return run.SignalledBy(status.Signal(), fmt.Sprintf("wait status 0x%04x kept by the sandbox's kernel", uint32(status)))
	}
}

// lost is the outcome of a command whose sandbox is gone.
func (p *program) lost(cause error) (run.Outcome, run.Usage) {
	b := p.box
	select {
	case <-b.Ended():
	case <-time.After(killTimeout):
		b.abandon(fmt.Sprintf("it does not answer: %v", cause))
		<-b.Ended()
	}
	outcome, _ := b.Outcome()
	killed := p.cmd.Killed()
	switch l := run.Limit(killed); {
	case outcome.Kind != run.InfrastructureLost:
	case slices.Contains(p.cmd.Spec.EndAtLimit, l):
		outcome = run.Outcome{Kind: killed, Evidence: p.reached(l) + "; it could not be killed alone, so the sandbox was ended", LimitsHit: []run.Limit{l}}
	case killed == run.Cancelled:
		outcome = run.Outcome{Kind: run.Cancelled, Evidence: "killed on request; it could not be killed alone, so the sandbox was ended"}
	case killed == run.WallClock:
		outcome = run.Outcome{Kind: run.WallClock, Evidence: fmt.Sprintf("still running after its limit of %s; it could not be killed alone, so the sandbox was ended", p.cmd.Limit),
			LimitsHit: []run.Limit{run.LimitWallClock}}
	}
	stats, _ := b.group.Stats()
	return outcome, b.usageOf(stats)
}

// outOfMemory is the outcome after a kill for want of memory: the sandbox's own,
// unless its limit was never met.
func outOfMemory(stats cgroup.Stats, limits run.Limits) run.Outcome {
	if stats.OwnOOMs == 0 {
		return run.Outcome{
			Kind:     run.InfrastructureLost,
			Evidence: "the host's kernel killed the sandbox for want of memory outside it; its own limit was not met",
		}
	}
	return run.Outcome{
		Kind: run.OutOfMemory,
		Evidence: fmt.Sprintf("the host's kernel killed %d of the sandbox's processes for its memory limit of %d bytes (peak %d)",
			stats.OOMKills, limits.MemoryBytes, stats.PeakMemoryBytes),
		LimitsHit: []run.Limit{run.LimitMemory},
	}
}
