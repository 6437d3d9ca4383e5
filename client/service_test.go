package client_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/client"
	"github.com/agentdock/agentdock/internal/blob"
	"github.com/agentdock/agentdock/internal/blob/dir"
	"github.com/agentdock/agentdock/internal/control"
	"github.com/agentdock/agentdock/internal/execenv/fake"
	"github.com/agentdock/agentdock/internal/httpapi"
	"github.com/agentdock/agentdock/internal/live"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/service"
	"github.com/agentdock/agentdock/internal/store"
	"github.com/agentdock/agentdock/internal/store/sqlite"
)

// platform is a service on a real record, at an address that survives a restart.
type platform struct {
	t       *testing.T
	record  *sqlite.Store
	blobs   blob.Store
	env     *fake.Environment
	control *control.Control
	live    *live.Sandboxes
	part    *service.Part
	address string
	key     string
}

type nobodyWaits struct{}

func (nobodyWaits) Wake(context.Context, string) error                        { return nil }
func (nobodyWaits) Wait(context.Context, time.Duration) (string, bool, error) { return "", false, nil }
func (nobodyWaits) Close() error                                              { return nil }

// newPlatform serves for as long as a test runs.
func newPlatform(t *testing.T) *platform {
	t.Helper()
	p := &platform{t: t, address: "127.0.0.1:0"}
	t.Cleanup(p.close)
	p.check(p.open(t.Context(), t.TempDir()))
	p.start()
	t.Cleanup(p.stop)
	return p
}

// open opens what is behind the API, with its files in a directory.
func (p *platform) open(ctx context.Context, files string) (err error) {
	if p.record, err = sqlite.Open(ctx, filepath.Join(files, "record.db")); err != nil {
		return err
	}
	if p.blobs, err = dir.New(filepath.Join(files, "blobs")); err != nil {
		return err
	}
	log := slog.New(slog.DiscardHandler)
	if p.control, err = control.New(control.Config{LogPoll: 20 * time.Millisecond, Development: true}, p.record, nobodyWaits{}, p.blobs, log); err != nil {
		return err
	}
	if p.key, err = p.control.FirstKey(ctx); err != nil {
		return err
	}
	p.env = fake.New(fake.Config{})
	node := live.Node{Name: "here", Dial: func(context.Context) (live.Connection, error) { return local{p.env}, nil }}
	p.live, err = live.New(live.Config{Development: true}, p.record, []live.Node{node}, p.control.Audit, log)
	return err
}

func (p *platform) close() {
	if p.env != nil {
		p.env.Close()
	}
	if p.record != nil {
		p.record.Close()
	}
}

// local is an environment of this process.
type local struct{ *fake.Environment }

func (local) Close() {}

func (p *platform) check(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *platform) start() {
	p.t.Helper()
	p.check(p.serve(p.t.Context()))
}

// serve starts the API, at the address that it had before.
func (p *platform) serve(ctx context.Context) error {
	a, err := httpapi.New(httpapi.Config{Log: slog.New(slog.DiscardHandler)}, p.control, p.live)
	if err != nil {
		return err
	}
	l, err := httpapi.Listen(httpapi.AuthAPIKey, p.address)
	if err != nil {
		return err
	}
	p.address = l.Addr().String()
	if p.part, err = a.Part(l); err != nil {
		return err
	}
	return p.part.Start(ctx)
}

func (p *platform) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := p.part.Stop(ctx); err != nil {
		p.t.Error(err)
	}
}

func (p *platform) client(key string) *client.Client {
	p.t.Helper()
	c, err := client.New("http://"+p.address, client.WithAPIKey(key), client.WithBackoff(10*time.Millisecond, 100*time.Millisecond), client.WithAttempts(20))
	p.check(err)
	p.t.Cleanup(c.CloseIdleConnections)
	return c
}

func (p *platform) claim() store.Claimed {
	p.t.Helper()
	c, ok, err := p.record.Claim(p.t.Context(), "w", time.Hour)
	if err != nil || !ok {
		p.t.Fatalf("nothing to claim: %v", err)
	}
	p.check(p.record.StartStep(p.t.Context(), c.Lease, run.Step{StartedAt: time.Now()}))
	return c
}

func (p *platform) write(c store.Claimed, offset int64, stream, text string) {
	p.t.Helper()
	_, err := p.record.AppendLog(p.t.Context(), c.Lease, []run.LogEntry{{Attempt: 1, Stream: stream, Offset: offset, Data: []byte(text), At: time.Now()}})
	p.check(err)
}

func (p *platform) finish(c store.Claimed) {
	p.t.Helper()
	p.check(p.record.Finish(p.t.Context(), c.Lease, store.End{State: run.Succeeded, Outcome: run.ExitedWith(0, "test")}))
}

// signal is a writer that tells when something was written.
type signal struct {
	bytes.Buffer
	wrote chan struct{}
}

func (s *signal) Write(b []byte) (int, error) {
	defer func() { s.wrote <- struct{}{} }()
	return s.Buffer.Write(b)
}

// A log is followed over a restart of the service, and nothing of it is lost.
func TestALogOverARestart(t *testing.T) {
	p := newPlatform(t)
	c := p.client(p.key)
	job, err := c.CreateJob(t.Context(), api.JobSpec{Source: api.Source{Kind: "none"}, Commands: []api.Command{{Argv: []string{"true"}}}}, "")
	p.check(err)
	claimed := p.claim()
	out := &signal{wrote: make(chan struct{}, 10)}
	var errs bytes.Buffer
	done := make(chan error, 1)
	go func() {
		end, err := c.CopyLog(t.Context(), job.ID, out, &errs)
		if err == nil && end.State != api.JobStateSucceeded {
			t.Errorf("ended as %+v", end)
		}
		done <- err
	}()
	p.write(claimed, 0, "stdout", "before\x00\xff\n")
	<-out.wrote
	p.stop()
	p.write(claimed, 9, "stderr", "while it is away\n")
	p.start()
	p.write(claimed, 26, "stdout", "after\n")
	p.finish(claimed)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if out.String() != "before\x00\xff\nafter\n" || errs.String() != "while it is away\n" {
		t.Errorf("got %q and %q", out.String(), errs.String())
	}
	got, err := c.Wait(t.Context(), job.ID)
	if err != nil || got.State != api.JobStateSucceeded {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestEverythingElse(t *testing.T) {
	p := newPlatform(t)
	ctx, admin := t.Context(), p.client(p.key)
	p.check(admin.Ready(ctx))
	tn, err := admin.CreateTenant(ctx, api.TenantSpec{Name: "team"})
	p.check(err)
	key, err := admin.CreateKey(ctx, tn.ID, api.KeySpec{Name: "ci", Scopes: []api.Scope{api.ScopeJobsRead, api.ScopeJobsWrite}})
	p.check(err)
	c := p.client(key.Secret)
	me, err := c.WhoAmI(ctx)
	if err != nil || me.Tenant.ID != tn.ID || me.KeyID != key.Key.ID {
		t.Fatalf("%+v, %v", me, err)
	}
	if _, err := c.Tenants(ctx); !client.Is(err, api.ProblemCodeDenied) {
		t.Errorf("tenants: %v", err)
	}

	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	p.check(w.WriteHeader(&tar.Header{Name: "a", Size: 1, Mode: 0o644}))
	_, err = w.Write([]byte("x"))
	p.check(err)
	p.check(w.Close())
	sum := sha256.Sum256(archive.Bytes())
	u, err := c.Upload(ctx, &archive)
	if err != nil || u.SHA256 != hex.EncodeToString(sum[:]) {
		t.Fatalf("%+v, %v", u, err)
	}
	spec := api.JobSpec{
		Source: api.Source{Kind: "archive", UploadID: u.ID}, Commands: []api.Command{{Argv: []string{"true"}}}, Labels: map[string]string{"a": "b"},
	}
	job, err := c.CreateJob(ctx, spec, "k")
	p.check(err)
	if again, err := c.CreateJob(ctx, spec, "k"); err != nil || again.ID != job.ID {
		t.Errorf("%+v, %v", again, err)
	}
	claimed := p.claim()
	const content = "<html>"
	contentSum := sha256.Sum256([]byte(content))
	artifact := run.Artifact{Path: "out/ä b", Bytes: int64(len(content)), SHA256: hex.EncodeToString(contentSum[:]), Key: "artifacts/x"}
	_, err = p.blobs.Put(ctx, artifact.Key, strings.NewReader(content), -1)
	p.check(err)
	p.check(p.record.AddArtifact(ctx, claimed.Lease, artifact))
	if running, err := c.CancelJob(ctx, job.ID); err != nil || !running.CancelRequested {
		t.Errorf("%+v, %v", running, err)
	}
	p.finish(claimed)

	all, err := c.Artifacts(ctx, job.ID)
	if err != nil || len(all) != 1 {
		t.Fatalf("%+v, %v", all, err)
	}
	var got bytes.Buffer
	if err := c.DownloadArtifact(ctx, job.ID, all[0].Path, &got); err != nil || got.String() != content {
		t.Errorf("%q, %v", got.String(), err)
	}
	if _, err := c.Receipt(ctx, job.ID); !client.Is(err, api.ProblemCodeNotFound) {
		t.Errorf("receipt: %v", err)
	}
	p.check(p.record.SignJob(ctx, job.ID, []byte("{}")))
	if receipt, err := c.Receipt(ctx, job.ID); err != nil || string(receipt) != "{}" {
		t.Errorf("%q, %v", receipt, err)
	}
	if keys, err := c.ReceiptKeys(ctx); err != nil || len(keys) != 0 {
		t.Errorf("%+v, %v", keys, err)
	}
	for range 4 {
		_, err := c.CreateJob(ctx, api.JobSpec{Source: api.Source{Kind: "none"}, Commands: spec.Commands}, "")
		p.check(err)
	}
	n := 0
	for _, err := range c.Jobs(ctx, client.JobQuery{PageSize: 2}) {
		p.check(err)
		n++
	}
	page, err := c.JobPage(ctx, client.JobQuery{Labels: map[string]string{"a": "b"}, States: []api.JobState{api.JobStateSucceeded}, CreatedBefore: time.Now().Add(time.Hour), CreatedAfter: time.Now().Add(-time.Hour)})
	if n != 5 || err != nil || len(page.Jobs) != 1 || page.Jobs[0].ID != job.ID {
		t.Errorf("%d jobs; %+v, %v", n, page, err)
	}

	off := true
	if changed, err := admin.UpdateTenant(ctx, tn.ID, api.TenantChange{Disabled: &off}); err != nil || !changed.Disabled {
		t.Errorf("%+v, %v", changed, err)
	}
	if _, err := c.Job(ctx, job.ID); !client.Is(err, api.ProblemCodeDenied) {
		t.Errorf("a tenant that is disabled: %v", err)
	}
	p.check(admin.RevokeKey(ctx, tn.ID, key.Key.ID))
	if _, err := c.Job(ctx, job.ID); !client.Is(err, api.ProblemCodeUnauthenticated) {
		t.Errorf("a key that is revoked: %v", err)
	}
	if keys, err := admin.Keys(ctx, tn.ID); err != nil || len(keys) != 1 || keys[0].RevokedAt.IsZero() {
		t.Errorf("%+v, %v", keys, err)
	}
	if one, err := admin.Tenant(ctx, tn.ID); err != nil || one.Name != "team" {
		t.Errorf("%+v, %v", one, err)
	}
	if entries, err := admin.AuditLog(ctx, tn.ID, 0, 1); err != nil || len(entries) != 1 {
		t.Errorf("%+v, %v", entries, err)
	}
	if err := c.DownloadArtifact(ctx, job.ID, "x", io.Discard); !client.Is(err, api.ProblemCodeUnauthenticated) {
		t.Errorf("got %v", err)
	}
}
