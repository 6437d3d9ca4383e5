package docker

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/guest/supervisor"
	"github.com/agentdock/agentdock/internal/run"
)

// tellTimeout is how long the daemon may take to tell of a kill for want of
// memory.
const tellTimeout = time.Second

// decide names the outcome from the status that the supervisor collected, what the
// daemon told, and what was done from here.
func (p *program) decide(e supervisor.Event) (run.Outcome, run.Usage) {
	b := p.box
	status, ok := statusOf(e)
	if !ok {
		b.abandon(fmt.Sprintf("its supervisor gave %#x for a wait status", e.Status))
		return p.lost()
	}
	outcome := p.meaning(status, e.Reason)
	if outcome.Kind == run.Signalled && status.Signal() == unix.SIGKILL && b.env.daemon.memory {
		// One for want of memory looks the same, and the daemon tells of it later.
		select {
		case <-b.Ended():
			return p.lost()
		case <-time.After(tellTimeout):
		}
	}
	usage := b.usageOf(context.Background(), e)
	if p.cmd.Log.Truncated() {
		outcome.LimitsHit = append(outcome.LimitsHit, run.LimitOutput)
		if len(p.cmd.Spec.EndAtLimit) > 0 && (p.cmd.Killed() == "" || p.cmd.Killed() == run.Output) {
			outcome = run.Outcome{
				Kind: run.Output, LimitsHit: outcome.LimitsHit,
				Evidence: fmt.Sprintf("it wrote more than the %d bytes that are kept of a stream; its own end: %s", p.cmd.Log.Keeps(), outcome),
			}
		}
	}
	if outcome.Kind == run.WallClock {
		outcome.LimitsHit = append(outcome.LimitsHit, run.LimitWallClock)
	}
	return outcome, usage
}

// meaning says what a wait status means, knowing what was done from here.
func (p *program) meaning(status unix.WaitStatus, remark string) run.Outcome {
	killed := p.cmd.Killed()
	if remark != "" {
		remark = "; " + remark
	}
	evidence := fmt.Sprintf("wait status 0x%04x, collected by the container's first process", uint32(status)) + remark
	switch {
	case status.Exited():
		return run.ExitedWith(status.ExitStatus(), evidence)
	case status.Signal() == unix.SIGKILL && killed == run.WallClock:
		return run.Outcome{Kind: run.WallClock, Evidence: fmt.Sprintf("still running after its limit of %s by the execution service's clock, then killed", p.cmd.Limit) + remark}
	case status.Signal() == unix.SIGKILL && killed == run.Cancelled:
		return run.Outcome{Kind: run.Cancelled, Evidence: "killed on request" + remark}
	default:
		return run.SignalledBy(status.Signal(), evidence)
	}
}

// lost is the outcome of a command whose sandbox is gone.
func (p *program) lost() (run.Outcome, run.Usage) {
	b := p.box
	<-b.Ended() // the connection has closed, or is closed by abandon
	outcome, _ := b.Outcome()
	if outcome.Kind != run.InfrastructureLost {
		return outcome, run.Usage{}
	}
	const how = "; it could not be killed alone, so the sandbox was ended"
	switch p.cmd.Killed() {
	case run.Cancelled:
		outcome = run.Outcome{Kind: run.Cancelled, Evidence: "killed on request" + how}
	case run.WallClock:
		outcome = run.Outcome{
			Kind: run.WallClock, Evidence: fmt.Sprintf("still running after its limit of %s", p.cmd.Limit) + how,
			LimitsHit: []run.Limit{run.LimitWallClock},
		}
	case run.Output:
		outcome = run.Outcome{
			Kind: run.Output, Evidence: fmt.Sprintf("it wrote more than the %d bytes that are kept of a stream", p.cmd.Log.Keeps()) + how,
			LimitsHit: []run.Limit{run.LimitOutput},
		}
	}
	return outcome, run.Usage{}
}

// usageOf is what the sandbox uses. Without a control group nobody counts memory
// and processors.
func (b *box) usageOf(ctx context.Context, e supervisor.Event) run.Usage {
	u := run.Usage{PIDs: e.Processes}
	if len(e.Places) > 0 {
		u.DiskBytes, u.Inodes = e.Places[0].Used, e.Places[0].UsedInodes
	}
	if !b.env.daemon.memory {
		return u
	}
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	result, err := b.env.engine.ContainerStats(ctx, b.name(), client.ContainerStatsOptions{})
	if err != nil {
		return u
	}
	defer result.Body.Close()
	var s container.StatsResponse
	if json.NewDecoder(result.Body).Decode(&s) == nil {
		u.MemoryBytes, u.PeakMemoryBytes = int64(s.MemoryStats.Usage), int64(max(s.MemoryStats.MaxUsage, s.MemoryStats.Usage))
		u.CPU = time.Duration(s.CPUStats.CPUUsage.TotalUsage)
	}
	return u
}
