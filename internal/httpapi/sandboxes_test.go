package httpapi

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/internal/control"
	"github.com/agentdock/agentdock/internal/tenant"
)

// box makes a live sandbox in which a command called mine has written a text.
func (r *rig) box(key, text string) string {
	r.t.Helper()
	a := r.send("POST", "/v1/sandboxes", key, api.SandboxSpec{})
	var box api.Sandbox
	decode(r.t, a.body, &box)
	if a.status != 201 || box.State != "running" || a.header.Get("Location") != "/v1/sandboxes/"+box.ID {
		r.t.Fatalf("%d %s", a.status, a.body)
	}
	if text != "" {
		r.run(key, box.ID, api.ExecSpec{ID: "mine", Argv: []string{"echo", text}})
	}
	return box.ID
}

// run runs a command to its end and returns its events.
func (r *rig) run(key, box string, spec api.ExecSpec) []api.ExecEvent {
	r.t.Helper()
	return r.execEvents(r.send("POST", "/v1/sandboxes/"+box+"/run", key, spec, header{"Accept", ndjsonType}))
}

func (r *rig) execEvents(a answer) []api.ExecEvent {
	r.t.Helper()
	if a.status != 200 {
		r.t.Fatalf("%d %s", a.status, a.body)
	}
	var all []api.ExecEvent
	for lines := bufio.NewScanner(bytes.NewReader(a.body)); lines.Scan(); {
		var e api.ExecEvent
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			r.t.Fatalf("%v: %s", err, lines.Bytes())
		}
		all = append(all, e)
	}
	return all
}

func outputOf(events []api.ExecEvent) (text string, next int64, end *api.ExecResult) {
	for _, e := range events {
		if e.Output != nil {
			text += e.Output.Text + string(e.Output.Base64)
			next = e.Output.Next
		}
		if e.End != nil {
			end = e.End
		}
	}
	return text, next, end
}

func TestSandboxFromCreateToKill(t *testing.T) {
	r := newRig(t)
	id := r.box(r.admin, "")
	path := "/v1/sandboxes/" + id
	events := r.run(r.admin, id, api.ExecSpec{ID: "e", Argv: []string{"echo", "one", "two"}})
	text, next, end := outputOf(events)
	if events[0].Started == nil || events[0].Started.ID != "e" || text != "one two\n" || next != 8 || end == nil || *end.Outcome.ExitCode != 0 {
		t.Errorf("events %+v", events)
	}
	// Again from an offset, as whoever was cut off reads on.
	for _, again := range []answer{
		r.send("GET", path+"/execs/e/output?from=4", r.admin, nil, header{"Accept", ndjsonType}),
		r.send("GET", path+"/execs/e/output", r.admin, nil, header{"Accept", ndjsonType}, header{"Last-Event-ID", "4"}),
	} {
		if text, _, end := outputOf(r.execEvents(again)); text != "two\n" || end == nil {
			t.Errorf("from offset 4: %q, %v", text, end)
		}
	}
	sse := r.send("GET", path+"/execs/e/output", r.admin, nil, header{"Accept", sseType})
	if !strings.Contains(string(sse.body), "id: 8\nevent: output\ndata: {") || !strings.Contains(string(sse.body), "event: end\n") {
		t.Errorf("as server-sent events: %s", sse.body)
	}
	var x api.Exec
	decode(t, r.send("GET", path+"/execs/e", r.admin, nil).body, &x)
	if x.Running || x.Result == nil || x.Result.StdoutBytes != 8 || len(x.Argv) != 3 {
		t.Errorf("the command is %+v", x)
	}
	var extended api.Sandbox
	decode(t, r.send("POST", path+"/extend", r.admin, api.SandboxExtension{TTLMS: time.Hour.Milliseconds()}).body, &extended)
	if d := time.Until(extended.ExpiresAt); d < 59*time.Minute || d > time.Hour {
		t.Errorf("extended by an hour, it ends in %s", d)
	}
	var m api.SandboxMetrics
	decode(t, r.send("GET", path+"/metrics", r.admin, nil).body, &m)
	if len(m.Samples) == 0 || m.Limits.MemoryBytes == 0 {
		t.Errorf("metrics %+v", m)
	}
	var paused, resumed api.Sandbox
	decode(t, r.send("POST", path+"/pause", r.admin, nil).body, &paused)
	if paused.State != "paused" || !paused.ExpiresAt.Equal(paused.Deadline) {
		t.Errorf("paused: %+v", paused)
	}
	for _, busy := range []answer{
		r.send("POST", path+"/pause", r.admin, nil), r.send("POST", path+"/extend", r.admin, api.SandboxExtension{TTLMS: 5000}),
		r.send("POST", path+"/execs", r.admin, api.ExecSpec{Argv: []string{"true"}}),
	} {
		if p := busy.problem(t); p.Code != api.ProblemCodeConflict {
			t.Errorf("of a paused sandbox: %+v", p)
		}
	}
	decode(t, r.send("POST", path+"/resume", r.admin, api.SandboxExtension{TTLMS: time.Hour.Milliseconds()}).body, &resumed)
	if d := time.Until(resumed.ExpiresAt); resumed.State != "running" || d < 59*time.Minute || d > time.Hour {
		t.Errorf("resumed for an hour: %+v", resumed)
	}
	if p := r.send("POST", path+"/resume", r.admin, api.SandboxExtension{TTLMS: 5000}).problem(t); p.Code != api.ProblemCodeConflict {
		t.Errorf("resumed again: %+v", p)
	}
	for range 2 {
		var killed api.Sandbox
		decode(t, r.send("DELETE", path, r.admin, nil).body, &killed)
		if killed.State != "ended" || killed.Outcome == nil || killed.Outcome.Kind != "cancelled" {
			t.Errorf("killed: %+v", killed)
		}
	}
	for _, gone := range []answer{
		r.send("POST", path+"/execs", r.admin, api.ExecSpec{Argv: []string{"true"}}),
		r.send("GET", path+"/execs", r.admin, nil), r.send("GET", path+"/execs/e/output", r.admin, nil),
		r.send("POST", path+"/extend", r.admin, api.SandboxExtension{TTLMS: 5000}),
	} {
		if p := gone.problem(t); p.Code != api.ProblemCodeGone {
			t.Errorf("of a dead sandbox: %+v", p)
		}
	}
}

// TestStdinSignalAndKill drives a command that waits for its caller.
func TestStdinSignalAndKill(t *testing.T) {
	r := newRig(t)
	id := r.box(r.admin, "")
	execs := "/v1/sandboxes/" + id + "/execs"
	start := func(spec api.ExecSpec) string {
		t.Helper()
		a := r.send("POST", execs, r.admin, spec)
		if a.status != 201 || a.header.Get("Location") != execs+"/"+spec.ID {
			t.Fatalf("%d %s", a.status, a.body)
		}
		return execs + "/" + spec.ID
	}
	done := func(a answer) {
		t.Helper()
		if a.status != 204 {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	cat := start(api.ExecSpec{ID: "cat", Argv: []string{"cat"}, Stdin: true})
	done(r.send("POST", cat+"/stdin", r.admin, []byte("in ")))
	done(r.send("POST", cat+"/stdin?close=true", r.admin, []byte("pieces")))
	if text, _, end := outputOf(r.execEvents(r.send("GET", cat+"/output", r.admin, nil, header{"Accept", ndjsonType}))); text != "in pieces" || end == nil {
		t.Errorf("%q, %+v", text, end)
	}
	if p := r.send("POST", cat+"/stdin", r.admin, []byte("late")).problem(t); p.Code != api.ProblemCodeGone {
		t.Errorf("writing after the end: %+v", p)
	}
	done(r.send("POST", cat+"/signal", r.admin, api.ExecSignal{Signal: "SIGTERM"})) // it has ended: nothing happens
	done(r.send("DELETE", cat, r.admin, nil))

	sleep := start(api.ExecSpec{ID: "sleep", Argv: []string{"sleep", "1000"}})
	done(r.send("DELETE", sleep, r.admin, nil))
	if _, _, end := outputOf(r.execEvents(r.send("GET", sleep+"/output", r.admin, nil, header{"Accept", ndjsonType}))); end == nil || end.Outcome.Kind != "cancelled" {
		t.Errorf("killed: %+v", end)
	}
}

func TestSandboxIdempotency(t *testing.T) {
	r := newRig(t)
	_, key := r.tenant("a", tenant.Quota{Sandboxes: 1}, tenant.SandboxesRead, tenant.SandboxesWrite)
	spec, named := api.SandboxSpec{Env: map[string]string{"A": "b"}}, header{"Idempotency-Key", "k"}
	first, again := r.send("POST", "/v1/sandboxes", key, spec, named), r.send("POST", "/v1/sandboxes", key, spec, named)
	if first.status != 201 || again.status != 200 || first.header.Get("Location") != again.header.Get("Location") {
		t.Fatalf("%d %s, then %d %s", first.status, first.body, again.status, again.body)
	}
	spec.Env["A"] = "c"
	if p := r.send("POST", "/v1/sandboxes", key, spec, named).problem(t); p.Code != api.ProblemCodeConflict {
		t.Errorf("another request: %+v", p)
	}
	for _, bad := range []string{"", "a b", "ü", strings.Repeat("k", 256)} {
		if p := r.send("POST", "/v1/sandboxes", key, spec, header{"Idempotency-Key", bad}).problem(t); p.Code != api.ProblemCodeInvalid {
			t.Errorf("the key %q: %+v", bad, p)
		}
	}
}

// TestSandboxProblems: every bad input has its code, and the sandbox is usable
// afterwards.
func TestSandboxProblems(t *testing.T) {
	r := newRig(t)
	_, key := r.tenant("t", tenant.Quota{Sandboxes: 1}, tenant.Scopes()...)
	id := r.box(key, "")
	path := "/v1/sandboxes/" + id
	r.send("POST", path+"/execs", key, api.ExecSpec{ID: "s", Argv: []string{"sleep", "1000"}})
	long := strings.Repeat("x", 4097)
	for _, bad := range []struct {
		method, path string
		body         any
		code         api.ProblemCode
	}{
		{"POST", "/v1/sandboxes", api.SandboxSpec{}, api.ProblemCodeExhausted},
		{"POST", "/v1/sandboxes", api.SandboxSpec{TTLMS: 1}, api.ProblemCodeInvalid},
		{"POST", "/v1/sandboxes", api.SandboxSpec{TTLMS: 1 << 60}, api.ProblemCodeInvalid},
		{"POST", "/v1/sandboxes", api.SandboxSpec{Env: map[string]string{"GITHUB_TOKEN": "x"}}, api.ProblemCodeInvalid},
		{"POST", "/v1/sandboxes", api.SandboxSpec{Limits: api.Limits{MemoryBytes: 1}}, api.ProblemCodeInvalid},
		{"GET", "/v1/sandboxes?state=lost", nil, api.ProblemCodeInvalid},
		{"GET", path + "/files?path=.&depth=0", nil, api.ProblemCodeInvalid},
		{"GET", "/v1/sandboxes?label=x", nil, api.ProblemCodeInvalid},
		{"GET", "/v1/sandboxes/" + long, nil, api.ProblemCodeNotFound},
		{"POST", path + "/extend", api.SandboxExtension{}, api.ProblemCodeInvalid},
		{"POST", path + "/execs", api.ExecSpec{}, api.ProblemCodeInvalid},
		{"POST", path + "/execs", api.ExecSpec{Argv: []string{"a\x00b"}}, api.ProblemCodeInvalid},
		{"POST", path + "/execs", api.ExecSpec{Argv: []string{"true"}, Dir: "../.."}, api.ProblemCodeInvalid},
		{"POST", path + "/execs", api.ExecSpec{Argv: []string{"true"}, Dir: long}, api.ProblemCodeInvalid},
		{"POST", path + "/execs", api.ExecSpec{Argv: []string{"bash", "-c", "true"}}, api.ProblemCodeDenied},
		{"POST", path + "/run", api.ExecSpec{Script: "true"}, api.ProblemCodeDenied},
		{"POST", path + "/execs", api.ExecSpec{Argv: []string{"true"}, TTY: &api.TerminalSize{}}, api.ProblemCodeInvalid},
		{"POST", path + "/execs", api.ExecSpec{Argv: []string{"true"}, EndAtLimit: []string{"memory"}}, api.ProblemCodeInvalid},
		{"GET", path + "/execs/nobody", nil, api.ProblemCodeNotFound},
		{"GET", path + "/execs/nobody/output", nil, api.ProblemCodeNotFound},
		{"GET", path + "/execs/s/output?from=-1", nil, api.ProblemCodeInvalid},
		{"POST", path + "/execs/nobody/signal", api.ExecSignal{Signal: "SIGTERM"}, api.ProblemCodeNotFound},
		{"POST", path + "/execs/s/signal", api.ExecSignal{Signal: "SIGNOPE"}, api.ProblemCodeInvalid},
		{"POST", path + "/execs/s/resize", api.TerminalSize{}, api.ProblemCodeInvalid},
		{"POST", path + "/execs/s/resize", api.TerminalSize{Cols: 80, Rows: 24}, api.ProblemCodeInvalid}, // it has no terminal
		{"POST", path + "/execs/s/stdin", []byte("x"), api.ProblemCodeGone},                              // nor an input
		{"GET", path + "/archive?dir=../..", nil, api.ProblemCodeInvalid},
		{"GET", path + "/archive?pattern=/etc/*", nil, api.ProblemCodeInvalid},
		{"PUT", path + "/archive?dir=/etc", []byte("x"), api.ProblemCodeInvalid},
		{"GET", path + "/files", nil, api.ProblemCodeInvalid},
		{"GET", path + "/files?path=x&depth=101", nil, api.ProblemCodeInvalid},
	} {
		if p := r.send(bad.method, bad.path, key, bad.body).problem(t); p.Code != bad.code {
			t.Errorf("%s %.80s %+v: %+v, want %s", bad.method, bad.path, bad.body, p, bad.code)
		}
	}
	if text, _, _ := outputOf(r.run(key, id, api.ExecSpec{Argv: []string{"echo", "usable"}})); text != "usable\n" {
		t.Errorf("afterwards it prints %q", text)
	}
}

// TestWithoutExecutionServices: a service that has no live sandboxes says so.
func TestWithoutExecutionServices(t *testing.T) {
	r := newRig(t)
	r.api.live = nil
	for _, a := range []answer{
		r.send("POST", "/v1/sandboxes", r.admin, api.SandboxSpec{}), r.send("GET", "/v1/sandboxes", r.admin, nil),
		r.send("GET", "/v1/sandboxes/x/execs", r.admin, nil),
	} {
		if p := a.problem(t); p.Code != api.ProblemCodeUnsupported {
			t.Errorf("%+v", p)
		}
	}
}

// TestSandboxStreamSaysWhyItEnds: a stream whose command goes on is interrupted
// with a word when the service stops, and lives until then.
func TestSandboxStreamSaysWhyItEnds(t *testing.T) {
	r := newRig(t, func(c *Config, _ *control.Config) { c.Timing.Heartbeat = 20 * time.Millisecond })
	id := r.box(r.admin, "")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+"/v1/sandboxes/"+id+"/run",
		strings.NewReader(`{"id":"s","argv":["sleep","1000"]}`))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range map[string]string{"Authorization": "Bearer " + r.admin, "Content-Type": jsonType, "Accept": ndjsonType} {
		req.Header.Set(k, v)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	var kinds []string
	for lines.Scan() {
		var e api.ExecEvent
		decode(t, lines.Bytes(), &e)
		kinds = append(kinds, e.Type)
		if e.Type == "heartbeat" {
			r.api.drain()
		}
		if e.Interrupted != nil && e.Interrupted.Reason != forShutdown {
			t.Errorf("interrupted for %s", e.Interrupted.Reason)
		}
	}
	if got := fmt.Sprint(kinds); kinds[0] != "started" || kinds[len(kinds)-1] != "interrupted" {
		t.Errorf("events %s", got)
	}
}
