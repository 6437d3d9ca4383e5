package oneshot

import (
	"cmp"
	"encoding/json"
	"io"

	"github.com/agentdock/agentdock/internal/artifact"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// The shape of --json. Fields that do not apply are null or left out, and never
// a zero that could be taken for a value.
type reportJSON struct {
	ID             string              `json:"id,omitempty"`
	State          string              `json:"state"`
	Commit         string              `json:"commit,omitempty"`
	Outcome        *outcomeJSON        `json:"outcome,omitempty"`
	Error          *errorJSON          `json:"error,omitempty"`
	Stdout         string              `json:"stdout"`
	Stderr         string              `json:"stderr"`
	StdoutBytes    int64               `json:"stdout_bytes"`
	StderrBytes    int64               `json:"stderr_bytes"`
	Truncated      bool                `json:"truncated"`
	DurationMS     int64               `json:"duration_ms"`
	Usage          usageJSON           `json:"usage"`
	Artifacts      []artifact.Artifact `json:"artifacts"`
	Network        *run.NetworkUse     `json:"network,omitempty"`
	ArtifactsError *errorJSON          `json:"artifacts_error,omitempty"`
}

type outcomeJSON struct {
	Kind      run.Kind    `json:"kind"`
	ExitCode  *int        `json:"exit_code"`
	Signal    *string     `json:"signal"`
	Evidence  string      `json:"evidence"`
	LimitsHit []run.Limit `json:"limits_hit"`
}

type errorJSON struct {
	Code    fault.Code `json:"code"`
	Message string     `json:"message"`
}

// usageJSON has what was measured.
type usageJSON struct {
	PeakMemoryBytes int64  `json:"peak_memory_bytes,omitzero"`
	CPUMS           *int64 `json:"cpu_ms,omitempty"`
}

func usageOf(u run.Usage) (out usageJSON) {
	out.PeakMemoryBytes = u.PeakMemoryBytes
	if u.CPU > 0 { // less than a millisecond is something
		ms := u.CPU.Milliseconds()
		out.CPUMS = &ms
	}
	return out
}

// WriteJSON writes the report as one JSON object, with the output that was
// kept. Bytes that are not UTF-8 become U+FFFD.
func (r Report) WriteJSON(w io.Writer, stdout, stderr []byte) error {
	out := reportJSON{
		ID: r.ID, State: r.state(), Commit: r.Commit,
		Stdout: string(stdout), Stderr: string(stderr),
		StdoutBytes: int64(len(stdout)), StderrBytes: int64(len(stderr)),
		Artifacts: r.Artifacts, Network: r.Network,
	}
	if out.Artifacts == nil {
		out.Artifacts = []artifact.Artifact{}
	}
	if r.Err != nil || r.Result == nil {
		out.Error = toJSON(cmp.Or(r.Err, errNothing))
	}
	if r.ArtifactsErr != nil {
		out.ArtifactsError = toJSON(r.ArtifactsErr)
	}
	if res := r.Result; res != nil {
		o := res.Outcome
		out.Outcome = &outcomeJSON{Kind: o.Kind, ExitCode: o.ExitCode, Evidence: o.Evidence, LimitsHit: o.LimitsHit}
		if o.Signal != "" {
			out.Outcome.Signal = &o.Signal
		}
		if o.LimitsHit == nil {
			out.Outcome.LimitsHit = []run.Limit{}
		}
		out.StdoutBytes, out.StderrBytes, out.Truncated = res.StdoutBytes, res.StderrBytes, res.Truncated
		out.DurationMS = res.Duration.Milliseconds()
		out.Usage = usageOf(res.Usage)
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(out)
}

func toJSON(err error) *errorJSON {
	return &errorJSON{Code: fault.CodeOf(err), Message: oneLine(message(err))}
}
