package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/internal/blob"
	"github.com/agentdock/agentdock/internal/blob/dir"
	"github.com/agentdock/agentdock/internal/control"
	"github.com/agentdock/agentdock/internal/execenv/fake"
	"github.com/agentdock/agentdock/internal/live"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/service"
	"github.com/agentdock/agentdock/internal/store"
	"github.com/agentdock/agentdock/internal/store/sqlite"
	"github.com/agentdock/agentdock/internal/tenant"
	"github.com/agentdock/agentdock/internal/testenv/capture"
)

// rig is the API on a real record, with real storage, on a real port.
type rig struct {
	t       *testing.T
	record  *sqlite.Store
	blobs   blob.Store
	control *control.Control
	live    *live.Sandboxes
	api     *API
	part    *service.Part
	url     string
	admin   string // a key with every scope
	log     *capture.Buffer
}

func newRig(t *testing.T, change ...func(*Config, *control.Config)) *rig {
	t.Helper()
	return newRigOn(t, func(l net.Listener) net.Listener { return l }, change...)
}

// smallBuffers makes the kernel hold little of what is sent.
type smallBuffers struct{ net.Listener }

func (l smallBuffers) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		err = conn.(*net.TCPConn).SetWriteBuffer(128 << 10)
	}
	return conn, err
}

func newRigOn(t *testing.T, wrap func(net.Listener) net.Listener, change ...func(*Config, *control.Config)) *rig {
	t.Helper()
	r := &rig{t: t, log: &capture.Buffer{}}
	var err error
	if r.record, err = sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "record.db")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.record.Close() })
	if r.blobs, err = dir.New(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	logger := slog.New(slog.NewJSONHandler(r.log, nil))
	cfg := Config{Log: logger}
	ccfg := control.Config{LogPoll: 50 * time.Millisecond}
	for _, c := range change {
		c(&cfg, &ccfg)
	}
	if r.control, err = control.New(ccfg, r.record, newQueue(t), r.blobs, logger); err != nil {
		t.Fatal(err)
	}
	if r.live, err = newLive(t, r, logger); err != nil {
		t.Fatal(err)
	}
	if r.api, err = New(cfg, r.control, r.live); err != nil {
		t.Fatal(err)
	}
	l, err := Listen(cfg.Auth, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if r.part, err = r.api.Part(wrap(l)); err != nil {
		t.Fatal(err)
	}
	if err := r.part.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := r.part.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	r.url = "http://" + l.Addr().String()
	if r.admin, err = r.control.FirstKey(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// newLive makes the use cases of live sandboxes over an environment in memory.
func newLive(t *testing.T, r *rig, log *slog.Logger) (*live.Sandboxes, error) {
	env := fake.New(fake.Config{})
	t.Cleanup(env.Close)
	node := live.Node{Name: "here", Dial: func(context.Context) (live.Connection, error) { return local{env}, nil }}
	return live.New(live.Config{Development: true}, r.record, []live.Node{node}, r.control.Audit, log)
}

// local is an environment of this process, which is always there.
type local struct{ *fake.Environment }

func (local) Close() {}

// tenant makes a tenant and a key of it.
func (r *rig) tenant(name string, quota tenant.Quota, scopes ...tenant.Scope) (tenant.Tenant, string) {
	r.t.Helper()
	operator := control.Caller{}
	tn, err := r.control.CreateTenant(r.t.Context(), operator, name, quota, tenant.Grants{})
	if err != nil {
		r.t.Fatal(err)
	}
	_, secret := r.key(tn.ID, time.Time{}, scopes...)
	return tn, secret
}

func (r *rig) key(tenantID string, expires time.Time, scopes ...tenant.Scope) (tenant.Key, string) {
	r.t.Helper()
	k, secret, err := r.control.CreateKey(r.t.Context(), control.Caller{}, tenantID, "test", scopes, expires)
	if err != nil {
		r.t.Fatal(err)
	}
	return k, secret
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) problem(t *testing.T) api.Problem {
	t.Helper()
	if got := a.header.Get("Content-Type"); got != problemType {
		t.Fatalf("status %d: content type %q, want a problem: %s", a.status, got, a.body)
	}
	var p api.Problem
	decode(t, a.body, &p)
	if p.Status != a.status || p.RequestID == "" || p.RequestID != a.header.Get("X-Request-Id") || p.Title == "" || p.Detail == "" {
		t.Errorf("problem %+v in an answer with status %d and id %s", p, a.status, a.header.Get("X-Request-Id"))
	}
	if statuses[p.Code] != p.Status {
		t.Errorf("code %s with status %d", p.Code, p.Status)
	}
	return p
}

func decode(t *testing.T, text []byte, into any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
}

// header is a name and a value.
type header [2]string

// send makes a request and holds the answer against the contract.
func (r *rig) send(method, path, key string, body any, headers ...header) answer {
	r.t.Helper()
	var in io.Reader
	kind := ""
	switch b := body.(type) {
	case nil:
	case string:
		in, kind = strings.NewReader(b), jsonType
	case []byte:
		in, kind = bytes.NewReader(b), tarType
		bare, _, _ := strings.Cut(path, "?")
		if rt, _ := match(method, bare); rt != nil && rt.takes == bytesType {
			kind = bytesType
		}
	default:
		text, err := json.Marshal(b)
		if err != nil {
			r.t.Fatal(err)
		}
		in, kind = bytes.NewReader(text), jsonType
	}
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, in)
	if err != nil {
		r.t.Fatal(err)
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	for _, h := range headers {
		if h[0] == "Host" {
			req.Host = h[1]
			continue
		}
		req.Header.Set(h[0], h[1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	a := answer{res.StatusCode, res.Header, text}
	if method != http.MethodHead {
		conforms(r.t, method, req.URL.Path, a)
	}
	return a
}

func trueJob() api.JobSpec {
	return api.JobSpec{Source: api.Source{Kind: "none"}, Commands: []api.Command{{Argv: []string{"true"}}}}
}

// job submits one.
func (r *rig) job(key string, spec api.JobSpec) api.Job {
	r.t.Helper()
	a := r.send("POST", "/v1/jobs", key, spec)
	if a.status != http.StatusCreated {
		r.t.Fatalf("status %d: %s", a.status, a.body)
	}
	var j api.Job
	decode(r.t, a.body, &j)
	return j
}

// worker does what a worker does to the record, and runs nothing.
type worker struct {
	r      *rig
	lease  store.Lease
	job    run.Job
	offset int64
}

func (r *rig) work() *worker {
	r.t.Helper()
	c, ok, err := r.record.Claim(r.t.Context(), "w", time.Hour)
	if err != nil || !ok {
		r.t.Fatalf("no job to claim: %v", err)
	}
	w := &worker{r: r, lease: c.Lease, job: c.Job}
	w.check(r.record.Place(r.t.Context(), w.lease, "node"))
	w.check(r.record.StartStep(r.t.Context(), w.lease, run.Step{Index: 0, StartedAt: time.Now()}))
	return w
}

func (w *worker) check(err error) {
	w.r.t.Helper()
	if err != nil {
		w.r.t.Fatal(err)
	}
}

func (w *worker) write(stream, data string) {
	w.r.t.Helper()
	_, err := w.r.record.AppendLog(w.r.t.Context(), w.lease, []run.LogEntry{{
		Attempt: 1, Step: 0, Stream: stream, Offset: w.offset, Data: []byte(data), At: time.Now(),
	}})
	w.check(err)
	w.offset += int64(len(data))
}

func (w *worker) artifact(path, content, sum string) {
	w.r.t.Helper()
	key := "artifacts/" + w.job.ID + "/0"
	_, err := w.r.blobs.Put(w.r.t.Context(), key, strings.NewReader(content), int64(len(content)))
	w.check(err)
	w.check(w.r.record.AddArtifact(w.r.t.Context(), w.lease, run.Artifact{Path: path, Bytes: int64(len(content)), SHA256: sum, Key: key}))
}

func (w *worker) finish() {
	w.r.t.Helper()
	outcome := run.ExitedWith(0, "test")
	w.check(w.r.record.EndStep(w.r.t.Context(), w.lease, run.Step{Index: 0, Outcome: &outcome, StdoutBytes: w.offset, StartedAt: time.Now()}))
	w.check(w.r.record.Finish(w.r.t.Context(), w.lease, store.End{State: run.Succeeded, Outcome: outcome}))
}

// wakes is a queue that nobody waits at.
type wakes struct{}

func newQueue(*testing.T) wakes                                         { return wakes{} }
func (wakes) Wake(context.Context, string) error                        { return nil }
func (wakes) Close() error                                              { return nil }
func (wakes) Wait(context.Context, time.Duration) (string, bool, error) { return "", false, nil }

func mustDial(t *testing.T, url string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}
