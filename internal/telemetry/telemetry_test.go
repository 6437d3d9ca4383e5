package telemetry

import (
	"bytes"
	"context"
	"encoding/hex"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/fake"
	"github.com/agentdock/agentdock/internal/execrpc"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/logging"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
	"github.com/agentdock/agentdock/internal/testenv"
	"github.com/agentdock/agentdock/internal/testenv/capture"
)

// named finds a span of a trace.
func named(t *testing.T, spans []testenv.Span, service, name string) testenv.Span {
	t.Helper()
	for _, s := range spans {
		if s.Service == service && s.GetName() == name {
			return s
		}
	}
	t.Fatalf("%s sent no span %q", service, name)
	return testenv.Span{}
}

// record keeps one job, as a database between two processes does.
type record struct {
	store.Store
	job  store.NewJob
	lost bool
}

func (r *record) CreateJob(_ context.Context, j store.NewJob) (run.Job, bool, error) {
	r.job = j
	return run.Job{ID: j.ID}, true, nil
}

func (r *record) Claim(context.Context, string, time.Duration) (store.Claimed, bool, error) {
	return store.Claimed{Lease: store.Lease{JobID: r.job.ID, Fence: 1}, Job: run.Job{
		ID: r.job.ID, TenantID: "t1", Attempt: 1, TraceParent: r.job.TraceParent, CreatedAt: time.Now().Add(-2 * time.Second),
	}}, true, nil
}

func (r *record) ActiveAttempts(context.Context, []store.Attempt) (map[store.Attempt]bool, error) {
	return nil, nil
}

func (r *record) Finish(context.Context, store.Lease, store.End) error { return r.gone() }
func (r *record) Renew(context.Context, store.Lease, time.Duration) (bool, error) {
	return false, r.gone()
}

func (r *record) gone() error {
	if r.lost {
		return fault.New(fault.Gone, "another has it")
	}
	return nil
}

func (r *record) Stats(context.Context) (store.Stats, error) {
	if r.lost {
		return store.Stats{}, fault.New(fault.Unavailable, "the database is away")
	}
	return store.Stats{ByState: map[run.State]int64{run.Queued: 7}, OldestQueued: 90 * time.Second}, nil
}

func start(t *testing.T, process, endpoint string) *Telemetry {
	t.Helper()
	if endpoint != "" {
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
	}
	env := func(name string) string {
		if name == "OTEL_EXPORTER_OTLP_ENDPOINT" {
			return endpoint
		}
		return ""
	}
	tel, err := Start(t.Context(), process, env, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return tel
}

// serve makes an execution service in memory and the way to it.
func serve(t *testing.T, log io.Writer) Connection {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	logger := logging.New(log, slog.LevelInfo)
	server := execrpc.NewHTTPServer(execrpc.NewServer(fake.New(fake.Config{}), logger), nil, logger)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close() })
	client, err := execrpc.DialUnix(t.Context(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// work is what a worker does with a job.
func work(t *testing.T, s store.Store, env execenv.Environment, id string) {
	t.Helper()
	ctx := t.Context()
	c, _, err := s.Claim(ctx, "w", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	sb, err := env.Create(ctx, execenv.Spec{ID: id + "-1", Image: "default", Limits: run.DefaultLimits()})
	if err != nil {
		t.Fatal(err)
	}
	x, err := sb.Exec(ctx, execenv.ExecSpec{ID: "step-0", Argv: []string{"true"}})
	if err != nil {
		t.Fatal(err)
	}
	res, err := x.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Finish(ctx, c.Lease, store.End{State: run.Succeeded, Outcome: res.Outcome}); err != nil {
		t.Fatal(err)
	}
	if err := env.Destroy(ctx, sb.ID()); err != nil {
		t.Fatal(err)
	}
}

// One trace from the caller's request to the command, over three processes and
// the record.
func TestOneTraceFromRequestToCommand(t *testing.T) {
	const job = "5e1fe0b2-0000-4000-8000-000000000001"
	const caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	collected := testenv.StartCollector(t)
	db := &record{}

	api := start(t, "agentdock-api", collected.URL)
	handler := api.HTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _, err := api.Store(db).CreateJob(r.Context(), store.NewJob{ID: job})
		if err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusCreated)
	}), func(*http.Request) string { return "/v1/jobs" })
	req := httptest.NewRequest(http.MethodPost, "/v1/jobs", nil)
	req.Header.Set("traceparent", caller)
	handler.ServeHTTP(httptest.NewRecorder(), req)
	if err := api.Stop(); err != nil {
		t.Fatal(err)
	}

	worker := start(t, "agentdock-worker", collected.URL)
	var log capture.Buffer
	work(t, worker.Store(db), worker.Environment("n1", serve(t, &log)), job)
	if err := worker.Stop(); err != nil {
		t.Fatal(err)
	}

	id := strings.Split(caller, "-")[1]
	raw, err := hex.DecodeString(id)
	if err != nil {
		t.Fatal(err)
	}
	spans := collected.Trace(raw)
	request := named(t, spans, "agentdock-api", "POST /v1/jobs")
	parents := map[string]testenv.Span{"job": request}
	jobSpan := named(t, spans, "agentdock-worker", "job")
	for _, name := range []string{"sandbox.create", "exec.start", "exec.run", "sandbox.destroy"} {
		parents[name] = jobSpan
	}
	for name, parent := range parents {
		if span := named(t, spans, "agentdock-worker", name); !bytes.Equal(span.GetParentSpanId(), parent.GetSpanId()) {
			t.Errorf("%s is not below %s", name, parent.GetName())
		}
	}
	if create := named(t, spans, "agentdock-worker", "sandbox.create"); !strings.Contains(log.String(),
		`"msg":"sandbox created","sandbox":"`+job+`-1","trace_id":"`+id+`","span_id":"`+hex.EncodeToString(create.GetSpanId())+`"`) {
		t.Errorf("the execution service's log does not name the trace: %s", log.String())
	}
}

func TestTracesAreOffUnlessAskedFor(t *testing.T) {
	for _, tc := range []struct {
		env  map[string]string
		want bool
		err  bool
	}{
		{nil, false, false},
		{map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, true, false},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, true, false},
		{map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318"}, true, false},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}, false, false},
		{map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "true"}, false, false},
		{map[string]string{"OTEL_TRACES_EXPORTER": "jaeger"}, false, true},
	} {
		on, err := tracing(func(name string) string { return tc.env[name] })
		if on != tc.want || (err != nil) != tc.err {
			t.Errorf("%v: %v, %v", tc.env, on, err)
		}
	}
	tel, db := start(t, "p", ""), &record{}
	if _, _, err := tel.Store(db).CreateJob(t.Context(), store.NewJob{ID: "j"}); err != nil || db.job.TraceParent != "" {
		t.Errorf("a trace nobody asked for: %q, %v", db.job.TraceParent, err)
	}
}

// A collector that is away holds nothing up.
func TestACollectorThatIsAway(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tel := start(t, "p", "http://"+l.Addr().String())
	_, end := tel.Span(t.Context(), "x")
	end(nil)
	begin := time.Now()
	if err := tel.Stop(); err == nil {
		t.Error("nothing was lost, although nobody took it")
	}
	if took := time.Since(begin); took > flushFor+2*time.Second {
		t.Errorf("stopping took %s", took)
	}
}

func scrapeText(m *Metrics) string {
	w := httptest.NewRecorder()
	m.Handler(slog.New(slog.DiscardHandler)).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

func TestMetrics(t *testing.T) {
	const job = "5e1fe0b2-0000-4000-8000-000000000002"
	tel, db := start(t, "p", ""), &record{job: store.NewJob{ID: job}}
	raw := serve(t, io.Discard)
	env, s := tel.Environment("n1", raw), tel.Store(db)
	tel.Metrics.Queue(db)
	tel.Metrics.Sandboxes("n1", func(ctx context.Context) (int, error) {
		infos, err := raw.List(ctx)
		return len(infos), err
	})

	work(t, s, env, job)
	if _, err := s.ActiveAttempts(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := env.Create(t.Context(), execenv.Spec{ID: "left-1", Image: "default", Limits: run.DefaultLimits()}); err != nil {
		t.Fatal(err)
	}
	tel.HTTP(http.NotFoundHandler(), func(*http.Request) string { return "" }).
		ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("BREW", "/some/path", nil))
	// A lease that is lost is counted once, whatever fails because of it.
	c, _, _ := s.Claim(t.Context(), "w", time.Minute)
	db.lost = true
	for range 3 {
		_, _ = s.Renew(t.Context(), c.Lease, time.Minute)
	}
	text := scrapeText(tel.Metrics)
	db.lost = false
	healthy := scrapeText(tel.Metrics)
	for _, line := range []string{
		`agentdock_claim_delay_seconds_count 2`,
		`agentdock_sandbox_create_seconds_count{node="n1",result="ok"} 2`,
		`agentdock_exec_start_seconds_count{node="n1",result="ok"} 1`,
		`agentdock_command_seconds_count{node="n1",outcome="exited"} 1`,
		`agentdock_job_outcomes_total{outcome="exited",state="succeeded"} 1`,
		`agentdock_leases_lost_total 1`,
		`agentdock_sweeps_total 1`,
		`agentdock_sandboxes_destroyed_total{node="n1",result="ok"} 1`,
		`agentdock_live_sandboxes{node="n1"} 1`,
		`agentdock_http_requests_total{method="other",route="none",status="404"} 1`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("there is no line %s", line)
		}
	}
	// What cannot be seen is left out, and the rest is there.
	if strings.Contains(text, "agentdock_jobs{") {
		t.Error("jobs are counted although the record is away")
	}
	for _, line := range []string{`agentdock_jobs{state="queued"} 7`, `agentdock_jobs{state="running"} 0`, `agentdock_oldest_queued_seconds 90`} {
		if !strings.Contains(healthy, line+"\n") {
			t.Errorf("there is no line %s", line)
		}
	}
	if err := tel.Stop(); err != nil {
		t.Error(err)
	}
}
