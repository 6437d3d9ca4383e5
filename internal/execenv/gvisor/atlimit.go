package gvisor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agentdock/agentdock/internal/execenv/gvisor/answer"
	"github.com/agentdock/agentdock/internal/guest"
	"github.com/agentdock/agentdock/internal/run"
)

// limitInterval is how often the counters of a command that is to end at a limit
// are read while it runs.
const limitInterval = 25 * time.Millisecond

// watchLimits kills the command once it has reached a limit at which it is to
// end. It looks at the counters and not for events: what it misses while it
// cannot read them is there the next time, and decide reads them once more.
func (p *program) watchLimits() {
	at := p.cmd.Spec.EndAtLimit
	if len(at) == 0 {
		return
	}
	cut := p.cmd.Log.Cut()
	if !slices.Contains(at, run.LimitOutput) {
		cut = nil
	}
	var tick <-chan time.Time
	if len(at) > 1 || cut == nil {
		ticker := time.NewTicker(limitInterval)
		defer ticker.Stop()
		tick = ticker.C
	}
	for {
		select {
		case <-p.cmd.Ended():
			return
		case <-p.box.Ended():
			return
		case <-cut:
		case <-tick:
		}
		var refused answer.Refusals
		if tick != nil {
			if total, err := p.proc.refusals(); err == nil {
				refused = total.Since(p.proc.before)
			}
		}
		if l, ok := first(p.touched(refused, false), at); ok {
			p.cmd.End(l.EndsAt())
			return
		}
	}
}

// touched lists the limits of run.AtLimits that the command has reached.
func (p *program) touched(refused answer.Refusals, full bool) (hit []run.Limit) {
	reached := map[run.Limit]bool{
		run.LimitPIDs: refused.PIDs > 0,
		// Of writes that no call refuses, a full place is the only trace.
		run.LimitDisk:   refused.Disk > 0 || refused.Unseen > 0 && full,
		run.LimitInodes: refused.Inodes > 0,
		run.LimitOutput: p.cmd.Log.Truncated(),
	}
	for _, l := range run.AtLimits() {
		if reached[l] {
			hit = append(hit, l)
		}
	}
	return hit
}

// endsAt is the limit that the command is to end at and has reached. What it was
// killed for first counts.
func (p *program) endsAt(hit []run.Limit) (run.Limit, bool) {
	killed := p.cmd.Killed()
	if killed == "" {
		return first(hit, p.cmd.Spec.EndAtLimit)
	}
	l := run.Limit(killed)
	return l, slices.Contains(p.cmd.Spec.EndAtLimit, l)
}

func first(hit, at []run.Limit) (run.Limit, bool) {
	i := slices.IndexFunc(hit, func(l run.Limit) bool { return slices.Contains(at, l) })
	if i < 0 {
		return "", false
	}
	return hit[i], true
}

// endedAt is the outcome at a limit, for a command whose own end may have come
// sooner than the kill.
func (p *program) endedAt(l run.Limit, own run.Outcome) run.Outcome {
	how := "then killed"
	killed := p.cmd.Killed()
	if killed == "" {
		how = "its own end came first: " + own.String()
	}
	return run.Outcome{Kind: l.EndsAt(), Evidence: p.reached(l) + "; " + how}
}

// reached says by which count it reached a limit.
func (p *program) reached(l run.Limit) string {
	limits := p.box.Spec.Limits
	switch l {
	case run.LimitPIDs:
		return fmt.Sprintf("the sandbox's kernel refused it a process at the limit of %d", limits.PIDs)
	case run.LimitDisk:
		return "the sandbox's kernel refused it a write in a full place; places hold" +
			perPlace(limits, func(m guest.Mount) int64 { return m.Bytes }) + " bytes"
	case run.LimitInodes:
		return "the sandbox's kernel refused it a file in a full place; places hold" +
			perPlace(limits, func(m guest.Mount) int64 { return m.Inodes }) + " inodes"
	default:
		return fmt.Sprintf("it wrote more than the %d bytes that are kept of a stream", p.cmd.Log.Keeps())
	}
}

// perPlace lists what each writable place holds. Which of them was full is not
// told apart by what is counted.
func perPlace(l run.Limits, holds func(guest.Mount) int64) string {
	var words []string
	for _, m := range writable(l, memoryType) {
		words = append(words, fmt.Sprintf(" %s %d", m.Path, holds(m)))
	}
	return strings.Join(words, ",")
}
