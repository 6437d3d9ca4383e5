package oneshot

import (
	"bytes"
	"encoding/json"
	"errors"
	"sort"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/artifact"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

func ended(o run.Outcome) Report {
	return Report{
		ID: "id", Limits: run.DefaultLimits(), Out: "out",
		Result: &execenv.Result{
			Outcome: o, StartedAt: time.Unix(1, 0), Duration: 1230 * time.Millisecond, StdoutBytes: 5,
			Usage: run.Usage{PeakMemoryBytes: 47395635, CPU: 80 * time.Millisecond},
		},
	}
}

func notStarted(evidence string) run.Outcome {
	return run.Outcome{Kind: run.NotStarted, Evidence: evidence}
}

func TestExitStatus(t *testing.T) {
	for name, tc := range map[string]struct {
		report Report
		want   int
	}{
		"0":           {ended(run.ExitedWith(0, "")), 0},
		"3":           {ended(run.ExitedWith(3, "")), 3},
		"137 itself":  {ended(run.ExitedWith(137, "")), 137},
		"125 itself":  {ended(run.ExitedWith(125, "")), 125},
		"SIGSEGV":     {ended(run.SignalledBy(syscall.SIGSEGV, "")), 139},
		"SIGKILL":     {ended(run.SignalledBy(syscall.SIGKILL, "")), 137},
		"real-time":   {ended(run.SignalledBy(40, "")), 168},
		"odd signal":  {ended(run.Outcome{Kind: run.Signalled, Signal: "SIGWHAT"}), 125},
		"timeout":     {ended(run.Outcome{Kind: run.WallClock}), 124},
		"processes":   {ended(run.Outcome{Kind: run.PIDs}), 137},
		"disk":        {ended(run.Outcome{Kind: run.Disk}), 137},
		"inodes":      {ended(run.Outcome{Kind: run.Inodes}), 137},
		"output":      {ended(run.Outcome{Kind: run.Output}), 137},
		"memory":      {ended(run.Outcome{Kind: run.OutOfMemory}), 137},
		"cancelled":   {ended(run.Outcome{Kind: run.Cancelled}), 130},
		"lost":        {ended(run.Outcome{Kind: run.InfrastructureLost}), 125},
		"new kind":    {ended(run.Outcome{Kind: "new"}), 125},
		"no code":     {ended(run.Outcome{Kind: run.Exited}), 125},
		"not found":   {ended(notStarted(`error finding executable "nope" in PATH [/bin]: no such file or directory`)), 127},
		"no such":     {ended(notStarted("failed to load /workspace/nofile: no such file or directory")), 127},
		"denied":      {ended(notStarted("failed to load /etc/passwd: permission denied")), 126},
		"format":      {ended(notStarted("failed to load /workspace/garbage: exec format error")), 126},
		"loop":        {ended(notStarted("failed to load /workspace/loop: too many symbolic links encountered")), 126},
		"directory":   {ended(notStarted(`failed to find initial working directory "/workspace/x/": no such file or directory`)), 126},
		"unclear":     {ended(notStarted("the moon is in the wrong house")), 125},
		"says so":     {ended(notStarted("failed to load /workspace/x: permission denied: cannot allocate memory")), 125},
		"named so":    {ended(notStarted(`error finding executable "failed to find initial working directory " in PATH [/bin]: no such file or directory`)), 127},
		"ours":        {Report{Err: errors.New("x")}, 125},
		"ours, after": {func() Report { r := ended(run.ExitedWith(0, "")); r.Err = errors.New("x"); return r }(), 125},
		"artifacts":   {func() Report { r := ended(run.ExitedWith(0, "")); r.ArtifactsErr = errors.New("x"); return r }(), 125},
		"artifacts of a failure": {func() Report {
			r := ended(run.ExitedWith(3, ""))
			r.ArtifactsErr = errors.New("x")
			return r
		}(), 3},
		"nothing": {Report{}, 125},
	} {
		if got := tc.report.ExitStatus(); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}

func TestLine(t *testing.T) {
	cut := ended(run.Outcome{Kind: run.Exited, ExitCode: new(int), LimitsHit: []run.Limit{run.LimitPIDs, run.LimitOutput}})
	cut.Result.Truncated, cut.Result.StdoutBytes = true, 10485760
	with := ended(run.ExitedWith(0, "e"))
	with.Asked, with.Artifacts = true, make([]artifact.Artifact, 1)
	broken := ended(run.ExitedWith(0, "e"))
	broken.Asked, broken.ArtifactsErr = true, errors.New("cannot collect\nmore")
	never := Report{Result: &execenv.Result{Outcome: notStarted("failed to load x: permission denied"), Duration: time.Second}}
	for _, tc := range []struct {
		report Report
		want   string
	}{
		{ended(run.ExitedWith(0, "e")), "exited 0 in 1.23s, peak memory 45.2 MiB, output complete"},
		{cut, "exited 0 in 1.23s, peak memory 45.2 MiB, output cut at 256000 bytes (saw 10485760), limits hit: pids, output"},
		{ended(run.Outcome{Kind: run.OutOfMemory, Evidence: "the kernel\x1b[2Jsaid\nso", LimitsHit: []run.Limit{run.LimitMemory}}),
			"out of memory after 1.23s (the kernel [2Jsaid so), peak memory 45.2 MiB, output complete, limits hit: memory"},
		{ended(run.SignalledBy(syscall.SIGSEGV, "wait status")), "signalled SIGSEGV after 1.23s (wait status), peak memory 45.2 MiB, output complete"},
		{never, "not started (failed to load x: permission denied)"},
		{with, "exited 0 in 1.23s, peak memory 45.2 MiB, output complete, 1 artifact in out"},
		{broken, "exited 0 in 1.23s, peak memory 45.2 MiB, output complete, artifacts not complete (0 in out): cannot collect more"},
		{Report{Err: fault.New(fault.NotFound, "cannot find image \"x\"")}, "cannot find image \"x\"; make it with: agentdock image build"},
		{Report{Err: fault.New(fault.NotFound, "image default is not in the Docker daemon; build or import it (docs/docker.md)")},
			"image default is not in the Docker daemon; build or import it (docs/docker.md)"},
		{Report{Err: errors.Join(errors.New("a"), errors.New("b"))}, "a b"},
	} {
		if got := tc.report.Line(); got != tc.want {
			t.Errorf("got  %q\nwant %q", got, tc.want)
		}
	}
}

func shape(t *testing.T, r Report, stdout, stderr string) map[string]any {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteJSON(&b, []byte(stdout), []byte(stderr)); err != nil {
		t.Fatal(err)
	}
	if strings.Count(b.String(), "\n") != 1 {
		t.Errorf("not one line: %q", b.String())
	}
	var got map[string]any
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	return got
}

func keys(v any) string {
	var names []string
	for k := range v.(map[string]any) {
		names = append(names, k)
	}
	sort.Strings(names)
	return strings.Join(names, " ")
}

func TestJSON(t *testing.T) {
	r := ended(run.ExitedWith(3, "why"))
	r.Artifacts = []artifact.Artifact{{Path: "a", Bytes: 1, SHA256: "s"}}
	got := shape(t, r, "out\xff\x00<", "err")
	const all = "artifacts duration_ms id outcome state stderr stderr_bytes stdout stdout_bytes truncated usage"
	if keys(got) != all || keys(got["outcome"]) != "evidence exit_code kind limits_hit signal" ||
		keys(got["usage"]) != "cpu_ms peak_memory_bytes" || keys(got["artifacts"].([]any)[0]) != "bytes path sha256" {
		t.Errorf("the shape is %v", got)
	}
	o := got["outcome"].(map[string]any)
	if got["state"] != "failed" || got["stdout"] != "out\ufffd\x00<" || o["exit_code"] != 3.0 || o["signal"] != nil ||
		got["duration_ms"] != 1230.0 || got["usage"].(map[string]any)["cpu_ms"] != 80.0 || got["stdout_bytes"] != 5.0 {
		t.Errorf("got %v", got)
	}
	if len(o["limits_hit"].([]any)) != 0 {
		t.Errorf("limits_hit is %v", o["limits_hit"])
	}

	got = shape(t, ended(run.SignalledBy(syscall.SIGTERM, "")), "", "")
	o = got["outcome"].(map[string]any)
	if o["signal"] != "SIGTERM" || o["exit_code"] != nil || len(got["artifacts"].([]any)) != 0 {
		t.Errorf("got %v", got)
	}
	for want, r := range map[string]Report{
		"succeeded": ended(run.ExitedWith(0, "")), "failed": ended(run.Outcome{Kind: run.WallClock}), "cancelled": ended(run.Outcome{Kind: run.Cancelled}),
	} {
		if got := shape(t, r, "", ""); got["state"] != want {
			t.Errorf("state is %v, want %s", got["state"], want)
		}
	}
	got = shape(t, Report{ID: "id", Err: fault.New(fault.Invalid, "no")}, "", "")
	e := got["error"].(map[string]any)
	if got["state"] != "failed" || e["code"] != "invalid" || e["message"] != "no" || got["outcome"] != nil {
		t.Errorf("got %v", got)
	}
	r = ended(run.ExitedWith(0, ""))
	r.ArtifactsErr = fault.New(fault.Exhausted, "too many")
	got = shape(t, r, "", "")
	if got["state"] != "failed" || got["artifacts_error"].(map[string]any)["code"] != "exhausted" {
		t.Errorf("got %v", got)
	}
}

// A zero would say that somebody had looked.
func TestWhatNobodyMeasuredIsNotReported(t *testing.T) {
	r := ended(run.ExitedWith(0, "why"))
	r.Result.Usage = run.Usage{}
	if usage := shape(t, r, "", "")["usage"]; keys(usage) != "" {
		t.Errorf("nothing was measured, and the usage is %v", usage)
	}
	r.Result.Usage = run.Usage{CPU: time.Microsecond}
	if usage := shape(t, r, "", "")["usage"]; keys(usage) != "cpu_ms" {
		t.Errorf("a microsecond was measured, and the usage is %v", usage)
	}
}
