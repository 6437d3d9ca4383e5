package e2e

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/testenv"
)

// sendsTraces is the environment of programs that send their spans at once.
func sendsTraces(c *testenv.Collector) []string {
	return []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL, "OTEL_BSP_SCHEDULE_DELAY=100"}
}

// oneTrace runs a job for a caller who has a trace, and follows that one through
// the processes: the request in the API, the job in the worker, and below it
// each call to the execution service. That one sends nothing to anybody
// (docs/adr/0014): the trace goes on in its log, under the spans of the calls.
func oneTrace(t *testing.T, p *testenv.Platform, collector *testenv.Collector) {
	t.Helper()
	const trace, caller = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	id := submitInTrace(t, p, "00-"+trace+"-"+caller+"-01")
	raw, err := hex.DecodeString(trace)
	if err != nil {
		t.Fatal(err)
	}
	parents := map[string]string{
		"agentdock-api POST /v1/jobs":      "",
		"agentdock-worker job":             "agentdock-api POST /v1/jobs",
		"agentdock-worker sandbox.create":  "agentdock-worker job",
		"agentdock-worker exec.start":      "agentdock-worker job",
		"agentdock-worker exec.run":        "agentdock-worker job",
		"agentdock-worker sandbox.destroy": "agentdock-worker job",
	}
	found := map[string]testenv.Span{}
	for deadline := time.Now().Add(time.Minute); len(found) < len(parents) && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		for _, s := range collector.Trace(raw) {
			found[s.Service+" "+s.GetName()] = s
		}
	}
	for name, parent := range parents {
		span, sent := found[name]
		want := found[parent].GetSpanId()
		if parent == "" {
			want, _ = hex.DecodeString(caller)
		}
		if !sent || !bytes.Equal(span.GetParentSpanId(), want) {
			t.Errorf("%s was sent: %v; it is not below %q", name, sent, parent)
		}
	}
	if run := found["agentdock-worker exec.run"]; run.GetEndTimeUnixNano()-run.GetStartTimeUnixNano() < uint64(300*time.Millisecond) {
		t.Errorf("the command took longer than its span: %v", run.Span)
	}
	for said, call := range map[string]string{"sandbox created": "sandbox.create", "command started": "exec.start", "sandbox destroyed": "sandbox.destroy"} {
		want := fmt.Sprintf(`"trace_id":"%s","span_id":"%s"`, trace, hex.EncodeToString(found["agentdock-worker "+call].GetSpanId()))
		if !logged(p.Execd.Log(), `"msg":"`+said+`"`, id, want) {
			t.Errorf("the execution service's log has no %q of job %s with %s", said, id, want)
		}
	}
	for _, s := range collector.Trace(raw) {
		took := time.Duration(s.GetEndTimeUnixNano() - s.GetStartTimeUnixNano())
		t.Logf("%-17s %-16s %v", s.Service, s.GetName(), took.Round(time.Microsecond))
	}
}

// submitInTrace makes a job as a caller does who traces its own calls.
func submitInTrace(t *testing.T, p *testenv.Platform, parent string) (id string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.URL+"/v1/jobs",
		strings.NewReader(`{"source":{"kind":"none"},"commands":[{"argv":["sleep","0.3"]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+p.Key)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Traceparent", parent)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var job struct{ ID string }
	if err := json.NewDecoder(res.Body).Decode(&job); err != nil || res.StatusCode != http.StatusCreated {
		t.Fatalf("%s: %v", res.Status, err)
	}
	return job.ID
}

// logged says whether one line of a log has all of some texts.
func logged(log string, texts ...string) bool {
	for line := range strings.Lines(log) {
		all := true
		for _, text := range texts {
			all = all && strings.Contains(line, text)
		}
		if all {
			return true
		}
	}
	return false
}
