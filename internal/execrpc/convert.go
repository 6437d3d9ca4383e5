package execrpc

import (
	"math"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	execdv1 "github.com/agentdock/agentdock/api/execd/v1"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// Requests: port to wire in the client, wire to port in the server. The
// server's side ends in the port's own Validate, so that nothing the port would
// refuse reaches an adapter, whatever wrote the message.

func specToWire(s execenv.Spec) (*execdv1.Spec, error) {
	if !utf8.ValidString(s.Image) {
		return nil, fault.New(fault.Invalid, "image name is not UTF-8")
	}
	return &execdv1.Spec{
		Id:       s.ID,
		Image:    s.Image,
		Env:      envToWire(s.Env),
		Limits:   limitsToWire(s.Limits),
		Labels:   s.Labels,
		Lifetime: durationToWire(s.Lifetime),
		Network:  networkToWire(s.Network),
	}, nil
}

func specFromWire(m *execdv1.Spec) (execenv.Spec, error) {
	env, err := envFromWire(m.GetEnv())
	if err != nil {
		return execenv.Spec{}, err
	}
	limits, err := limitsFromWire(m.GetLimits())
	if err != nil {
		return execenv.Spec{}, err
	}
	lifetime, err := durationFromWire("lifetime", m.GetLifetime())
	if err != nil {
		return execenv.Spec{}, err
	}
	spec := execenv.Spec{
		ID:       m.GetId(),
		Image:    m.GetImage(),
		Env:      env,
		Limits:   limits,
		Labels:   m.GetLabels(),
		Lifetime: lifetime,
		Network:  networkFromWire(m.GetNetwork()),
	}
	return spec, validate(spec)
}

// validate is the port's Validate for a Spec whose limits may still be
// incomplete: what is not asked for is filled in behind the server, by execd.
func validate(s execenv.Spec) error {
	s.Limits = s.Limits.Or(run.Floor())
	return s.Validate()
}

func execSpecToWire(e execenv.ExecSpec) *execdv1.ExecSpec {
	return &execdv1.ExecSpec{
		Id:          e.ID,
		Argv:        stringsToWire(e.Argv),
		Dir:         []byte(e.Dir),
		Env:         envToWire(e.Env),
		Stdin:       e.Stdin,
		Tty:         sizeToWire(e.TTY),
		Timeout:     durationToWire(e.Timeout),
		OutputBytes: e.OutputBytes,
		EndAtLimits: limitNamesToWire(e.EndAtLimit),
	}
}

func execSpecFromWire(m *execdv1.ExecSpec) (execenv.ExecSpec, error) {
	env, err := envFromWire(m.GetEnv())
	if err != nil {
		return execenv.ExecSpec{}, err
	}
	timeout, err := durationFromWire("timeout", m.GetTimeout())
	if err != nil {
		return execenv.ExecSpec{}, err
	}
	endAtLimit, err := limitNamesFromWire(m.GetEndAtLimits())
	if err != nil {
		return execenv.ExecSpec{}, err
	}
	spec := execenv.ExecSpec{
		ID:          m.GetId(),
		Argv:        stringsFromWire(m.GetArgv()),
		Dir:         string(m.GetDir()),
		Env:         env,
		Stdin:       m.GetStdin(),
		Timeout:     timeout,
		OutputBytes: m.GetOutputBytes(),
		EndAtLimit:  endAtLimit,
	}
	if m.GetTty() != nil {
		size, err := sizeFromWire(m.GetTty())
		if err != nil {
			return execenv.ExecSpec{}, err
		}
		spec.TTY = &size
	}
	return spec, spec.Validate()
}

func limitNamesToWire(limits []run.Limit) []execdv1.LimitName {
	var out []execdv1.LimitName
	for _, l := range limits {
		out = append(out, limitNames.toWire(l))
	}
	return out
}

// limitNamesFromWire refuses a limit it does not know: a command that was to end
// there would go on.
func limitNamesFromWire(names []execdv1.LimitName) ([]run.Limit, error) {
	var out []run.Limit
	for _, w := range names {
		l, err := limitNames.fromWire("limit", w)
		if err != nil {
			return nil, fault.New(fault.Invalid, "a command cannot end at limit %d: this service does not know it", w)
		}
		out = append(out, l)
	}
	return out, nil
}

func archiveRequestToWire(sandbox string, a execenv.ArchiveRequest) *execdv1.GetArchiveRequest {
	return &execdv1.GetArchiveRequest{
		SandboxId: sandbox,
		Dir:       []byte(a.Dir),
		Patterns:  stringsToWire(a.Patterns),
		MaxBytes:  a.MaxBytes,
	}
}

func archiveRequestFromWire(m *execdv1.GetArchiveRequest) (execenv.ArchiveRequest, error) {
	req := execenv.ArchiveRequest{
		Dir:      string(m.GetDir()),
		Patterns: stringsFromWire(m.GetPatterns()),
		MaxBytes: m.GetMaxBytes(),
	}
	return req, req.Validate()
}

func sizeToWire(s *execenv.WindowSize) *execdv1.WindowSize {
	if s == nil {
		return nil
	}
	return &execdv1.WindowSize{Cols: uint32(s.Cols), Rows: uint32(s.Rows)}
}

func sizeFromWire(m *execdv1.WindowSize) (execenv.WindowSize, error) {
	if c, r := m.GetCols(), m.GetRows(); c == 0 || r == 0 || c > math.MaxUint16 || r > math.MaxUint16 {
		return execenv.WindowSize{}, fault.New(fault.Invalid, "terminal size %dx%d is not 1 to 65535 each", c, r)
	}
	return execenv.WindowSize{Cols: uint16(m.GetCols()), Rows: uint16(m.GetRows())}, nil
}

func signalFromWire(n int32) (syscall.Signal, error) {
	if n < 1 || n > 64 {
		return 0, fault.New(fault.Invalid, "signal %d is not 1 to 64", n)
	}
	return syscall.Signal(n), nil
}

func envToWire(env map[string]string) []*execdv1.EnvVar {
	if len(env) == 0 {
		return nil
	}
	out := make([]*execdv1.EnvVar, 0, len(env))
	for k, v := range env {
		out = append(out, &execdv1.EnvVar{Name: []byte(k), Value: []byte(v)})
	}
	return out
}

// envFromWire refuses a name given twice: which one wins would be an accident.
func envFromWire(vars []*execdv1.EnvVar) (map[string]string, error) {
	if len(vars) == 0 {
		return nil, nil
	}
	env := make(map[string]string, min(len(vars), 1024))
	for _, v := range vars {
		name := string(v.GetName())
		if _, twice := env[name]; twice {
			return nil, fault.New(fault.Invalid, "environment variable %.80q is given twice", name)
		}
		env[name] = string(v.GetValue())
	}
	return env, nil
}

func limitsToWire(l run.Limits) *execdv1.Limits {
	return &execdv1.Limits{
		MilliCpu:    l.MilliCPU,
		MemoryBytes: l.MemoryBytes,
		Pids:        l.PIDs,
		DiskBytes:   l.DiskBytes,
		Inodes:      l.Inodes,
		OutputBytes: l.OutputBytes,
		WallClock:   durationToWire(l.WallClock),
	}
}

func limitsFromWire(m *execdv1.Limits) (run.Limits, error) {
	wall, err := durationFromWire("wall clock limit", m.GetWallClock())
	return run.Limits{
		MilliCPU:    m.GetMilliCpu(),
		MemoryBytes: m.GetMemoryBytes(),
		PIDs:        m.GetPids(),
		DiskBytes:   m.GetDiskBytes(),
		Inodes:      m.GetInodes(),
		OutputBytes: m.GetOutputBytes(),
		WallClock:   wall,
	}, err
}

func durationToWire(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// durationFromWire refuses what a time.Duration cannot hold: AsDuration would
// turn it into another one in silence.
func durationFromWire(name string, m *durationpb.Duration) (time.Duration, error) {
	if m == nil {
		return 0, nil
	}
	d := m.AsDuration()
	if m.CheckValid() != nil || d == math.MaxInt64 || d == math.MinInt64 {
		return 0, fault.New(fault.Invalid, "%s is not a duration this service can hold", name)
	}
	return d, nil
}

func timeToWire(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func timeFromWire(m *timestamppb.Timestamp) time.Time {
	if m == nil {
		return time.Time{}
	}
	return m.AsTime()
}

func stringsToWire(in []string) [][]byte {
	if in == nil {
		return nil
	}
	out := make([][]byte, len(in))
	for i, s := range in {
		out[i] = []byte(s)
	}
	return out
}

func stringsFromWire(in [][]byte) []string {
	if in == nil {
		return nil
	}
	out := make([]string, len(in))
	for i, b := range in {
		out[i] = string(b)
	}
	return out
}

// text makes a string that is for people fit for a wire that takes UTF-8 only.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
