package execrpc

import (
	"time"

	execdv1 "github.com/agentdock/agentdock/api/execd/v1"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// Answers: port to wire in the server, wire to port in the client. The client
// refuses an answer it does not understand rather than guess: a Result of an
// unknown kind would be a made-up outcome.

// pairs maps names of the port to names of the wire, both ways.
type pairs[P comparable, W comparable] []struct {
	port P
	wire W
}

func (t pairs[P, W]) toWire(p P) W {
	for _, e := range t {
		if e.port == p {
			return e.wire
		}
	}
	var unspecified W
	return unspecified
}

func (t pairs[P, W]) fromWire(what string, w W) (P, error) {
	for _, e := range t {
		if e.wire == w {
			return e.port, nil
		}
	}
	var zero P
	return zero, fault.New(fault.Internal, "cannot understand the execution service: %s %v is unknown; use the same version on both sides", what, w)
}

var isolations = pairs[execenv.Isolation, execdv1.Isolation]{
	{execenv.IsolationNone, execdv1.Isolation_ISOLATION_NONE},
	{execenv.IsolationContainer, execdv1.Isolation_ISOLATION_CONTAINER},
	{execenv.IsolationKernel, execdv1.Isolation_ISOLATION_KERNEL},
}

var states = pairs[execenv.State, execdv1.SandboxState]{
	{execenv.StateCreating, execdv1.SandboxState_SANDBOX_STATE_CREATING},
	{execenv.StateRunning, execdv1.SandboxState_SANDBOX_STATE_RUNNING},
	{execenv.StatePaused, execdv1.SandboxState_SANDBOX_STATE_PAUSED},
	{execenv.StateEnded, execdv1.SandboxState_SANDBOX_STATE_ENDED},
	{execenv.StateDestroying, execdv1.SandboxState_SANDBOX_STATE_DESTROYING},
}

var streams = pairs[execenv.Stream, execdv1.Stream]{
	{execenv.Stdout, execdv1.Stream_STREAM_STDOUT},
	{execenv.Stderr, execdv1.Stream_STREAM_STDERR},
}

var kinds = pairs[run.Kind, execdv1.OutcomeKind]{
	{run.Exited, execdv1.OutcomeKind_OUTCOME_KIND_EXITED},
	{run.Signalled, execdv1.OutcomeKind_OUTCOME_KIND_SIGNALLED},
	{run.OutOfMemory, execdv1.OutcomeKind_OUTCOME_KIND_OUT_OF_MEMORY},
	{run.WallClock, execdv1.OutcomeKind_OUTCOME_KIND_WALL_CLOCK},
	{run.Cancelled, execdv1.OutcomeKind_OUTCOME_KIND_CANCELLED},
	{run.NotStarted, execdv1.OutcomeKind_OUTCOME_KIND_NOT_STARTED},
	{run.PIDs, execdv1.OutcomeKind_OUTCOME_KIND_PIDS},
	{run.Disk, execdv1.OutcomeKind_OUTCOME_KIND_DISK},
	{run.Inodes, execdv1.OutcomeKind_OUTCOME_KIND_INODES},
	{run.Output, execdv1.OutcomeKind_OUTCOME_KIND_OUTPUT},
	{run.InfrastructureLost, execdv1.OutcomeKind_OUTCOME_KIND_INFRASTRUCTURE_LOST},
}

var limitNames = pairs[run.Limit, execdv1.LimitName]{
	{run.LimitMemory, execdv1.LimitName_LIMIT_NAME_MEMORY},
	{run.LimitPIDs, execdv1.LimitName_LIMIT_NAME_PIDS},
	{run.LimitDisk, execdv1.LimitName_LIMIT_NAME_DISK},
	{run.LimitInodes, execdv1.LimitName_LIMIT_NAME_INODES},
	{run.LimitOutput, execdv1.LimitName_LIMIT_NAME_OUTPUT},
	{run.LimitWallClock, execdv1.LimitName_LIMIT_NAME_WALL_CLOCK},
}

func capabilitiesToWire(c execenv.Capabilities) *execdv1.Capabilities {
	e := c.Enforces
	return &execdv1.Capabilities{
		Name:      text(c.Name),
		Version:   text(c.Version),
		Isolation: isolations.toWire(c.Isolation),
		Enforces: &execdv1.Enforces{
			Cpu: e.CPU, Memory: e.Memory, Pids: e.PIDs, Disk: e.Disk,
			Inodes: e.Inodes, Output: e.Output, WallClock: e.WallClock,
		},
		Reports:      &execdv1.Reports{Pids: c.Reports.PIDs, Disk: c.Reports.Disk, Inodes: c.Reports.Inodes, Output: c.Reports.Output},
		Tty:          c.TTY,
		NetworkNone:  c.NetworkNone,
		NetworkAllow: c.NetworkAllow,
		Unprivileged: c.Unprivileged,
		ReadOnlyRoot: c.ReadOnlyRoot,

		DiskBeyondMemory: c.DiskBeyondMemory,
		Pause:            c.Pause,
	}
}

func capabilitiesFromWire(m *execdv1.Capabilities) (execenv.Capabilities, error) {
	isolation, err := isolations.fromWire("isolation", m.GetIsolation())
	if err != nil {
		return execenv.Capabilities{}, err
	}
	e, r := m.GetEnforces(), m.GetReports()
	return execenv.Capabilities{
		Name:      m.GetName(),
		Version:   m.GetVersion(),
		Isolation: isolation,
		Enforces: execenv.Enforces{
			CPU: e.GetCpu(), Memory: e.GetMemory(), PIDs: e.GetPids(), Disk: e.GetDisk(),
			Inodes: e.GetInodes(), Output: e.GetOutput(), WallClock: e.GetWallClock(),
		},
		Reports:      execenv.Reports{PIDs: r.GetPids(), Disk: r.GetDisk(), Inodes: r.GetInodes(), Output: r.GetOutput()},
		TTY:          m.GetTty(),
		NetworkNone:  m.GetNetworkNone(),
		NetworkAllow: m.GetNetworkAllow(),
		Unprivileged: m.GetUnprivileged(),
		ReadOnlyRoot: m.GetReadOnlyRoot(),

		DiskBeyondMemory: m.GetDiskBeyondMemory(),
		Pause:            m.GetPause(),
	}, nil
}

func infoToWire(i execenv.Info) *execdv1.Info {
	labels := make(map[string]string, len(i.Labels))
	for k, v := range i.Labels {
		labels[text(k)] = text(v)
	}
	m := &execdv1.Info{
		Id:          text(i.ID),
		State:       states.toWire(i.State),
		Image:       text(i.Image),
		ImageDigest: text(i.ImageDigest),
		Labels:      labels,
		Limits:      limitsToWire(i.Limits),
		CreatedAt:   timeToWire(i.CreatedAt),
		ExpiresAt:   timeToWire(i.ExpiresAt),
	}
	if i.Outcome != nil {
		m.Outcome = outcomeToWire(*i.Outcome)
	}
	return m
}

func infoFromWire(m *execdv1.Info) (execenv.Info, error) {
	state, err := states.fromWire("sandbox state", m.GetState())
	if err != nil {
		return execenv.Info{}, err
	}
	limits, err := limitsFromWire(m.GetLimits())
	if err != nil {
		return execenv.Info{}, err
	}
	info := execenv.Info{
		ID:          m.GetId(),
		State:       state,
		Image:       m.GetImage(),
		ImageDigest: m.GetImageDigest(),
		Labels:      m.GetLabels(),
		Limits:      limits,
		CreatedAt:   timeFromWire(m.GetCreatedAt()),
		ExpiresAt:   timeFromWire(m.GetExpiresAt()),
	}
	if m.GetOutcome() != nil {
		outcome, err := outcomeFromWire(m.GetOutcome())
		if err != nil {
			return execenv.Info{}, err
		}
		info.Outcome = &outcome
	}
	return info, nil
}

func outcomeToWire(o run.Outcome) *execdv1.Outcome {
	m := &execdv1.Outcome{Kind: kinds.toWire(o.Kind), Signal: text(o.Signal), Evidence: text(o.Evidence)}
	if o.ExitCode != nil {
		code := int32(*o.ExitCode)
		m.ExitCode = &code
	}
	m.LimitsHit = limitNamesToWire(o.LimitsHit)
	return m
}

func outcomeFromWire(m *execdv1.Outcome) (run.Outcome, error) {
	kind, err := kinds.fromWire("outcome", m.GetKind())
	if err != nil {
		return run.Outcome{}, err
	}
	o := run.Outcome{Kind: kind, Signal: m.GetSignal(), Evidence: m.GetEvidence()}
	if m != nil && m.ExitCode != nil {
		code := int(*m.ExitCode)
		o.ExitCode = &code
	}
	if o.ExitCode != nil && (*o.ExitCode < 0 || *o.ExitCode > 255) {
		return run.Outcome{}, fault.New(fault.Internal, "cannot understand the execution service: %d is no exit code", *o.ExitCode)
	}
	if (o.Kind == run.Exited) != (o.ExitCode != nil) {
		return run.Outcome{}, fault.New(fault.Internal, "cannot understand the execution service: outcome %s and its exit code do not belong together", o.Kind)
	}
	for _, w := range m.GetLimitsHit() {
		l, err := limitNames.fromWire("limit", w)
		if err != nil {
			return run.Outcome{}, err
		}
		o.LimitsHit = append(o.LimitsHit, l)
	}
	return o, nil
}

func resultToWire(r execenv.Result) *execdv1.Result {
	return &execdv1.Result{
		Outcome:     outcomeToWire(r.Outcome),
		StdoutBytes: r.StdoutBytes,
		StderrBytes: r.StderrBytes,
		Truncated:   r.Truncated,
		StartedAt:   timeToWire(r.StartedAt),
		Duration:    durationToWire(r.Duration),
		Usage:       usageToWire(r.Usage),
	}
}

func resultFromWire(m *execdv1.Result) (execenv.Result, error) {
	outcome, err := outcomeFromWire(m.GetOutcome())
	if err != nil {
		return execenv.Result{}, err
	}
	var duration time.Duration
	if duration, err = durationFromWire("duration", m.GetDuration()); err != nil {
		return execenv.Result{}, err
	}
	usage, err := usageFromWire(m.GetUsage())
	if err != nil {
		return execenv.Result{}, err
	}
	return execenv.Result{
		Outcome:     outcome,
		StdoutBytes: m.GetStdoutBytes(),
		StderrBytes: m.GetStderrBytes(),
		Truncated:   m.GetTruncated(),
		StartedAt:   timeFromWire(m.GetStartedAt()),
		Duration:    duration,
		Usage:       usage,
	}, nil
}

func execInfoToWire(i execenv.ExecInfo) *execdv1.ExecInfo {
	m := &execdv1.ExecInfo{Id: text(i.ID), Dir: []byte(i.Dir), Tty: i.TTY, Stdin: i.Stdin, StartedAt: timeToWire(i.StartedAt)}
	for _, a := range i.Argv {
		m.Argv = append(m.Argv, []byte(a))
	}
	if i.Result != nil {
		m.Result = resultToWire(*i.Result)
	}
	return m
}

func execInfoFromWire(m *execdv1.ExecInfo) (execenv.ExecInfo, error) {
	i := execenv.ExecInfo{
		ID: m.GetId(), Dir: string(m.GetDir()), TTY: m.GetTty(), Stdin: m.GetStdin(), StartedAt: timeFromWire(m.GetStartedAt()),
	}
	for _, a := range m.GetArgv() {
		i.Argv = append(i.Argv, string(a))
	}
	if m.GetResult() != nil {
		result, err := resultFromWire(m.GetResult())
		if err != nil {
			return execenv.ExecInfo{}, err
		}
		i.Result = &result
	}
	return i, nil
}

func usageToWire(u run.Usage) *execdv1.Usage {
	return &execdv1.Usage{
		MemoryBytes:     u.MemoryBytes,
		PeakMemoryBytes: u.PeakMemoryBytes,
		Cpu:             durationToWire(u.CPU),
		Pids:            u.PIDs,
		DiskBytes:       u.DiskBytes,
		Inodes:          u.Inodes,
	}
}

func usageFromWire(m *execdv1.Usage) (run.Usage, error) {
	cpu, err := durationFromWire("cpu time", m.GetCpu())
	return run.Usage{
		MemoryBytes:     m.GetMemoryBytes(),
		PeakMemoryBytes: m.GetPeakMemoryBytes(),
		CPU:             cpu,
		PIDs:            m.GetPids(),
		DiskBytes:       m.GetDiskBytes(),
		Inodes:          m.GetInodes(),
	}, err
}
