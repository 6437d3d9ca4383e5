package checkout

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	blobdir "github.com/agentdock/agentdock/internal/blob/dir"
	"github.com/agentdock/agentdock/internal/checkout"
	"github.com/agentdock/agentdock/internal/execrpc"
	"github.com/agentdock/agentdock/internal/receipt"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
	"github.com/agentdock/agentdock/internal/store/sqlite"
	"github.com/agentdock/agentdock/internal/tenant"
	"github.com/agentdock/agentdock/internal/testenv"
	"github.com/agentdock/agentdock/internal/testenv/capture"
	"github.com/agentdock/agentdock/internal/worker"
)

// record is what a job leaves above the trust line.
var record = place{"record", "the database with its journal, artifacts where they are kept, the receipt, and the worker's log down to debug, of a job whose source is the repository"}

// TestCanaryRecord has a worker run two jobs from a private repository. The
// second is the control: a token is in its environment, so that it is on record.
func TestCanaryRecord(t *testing.T) {
	images := images(t)
	c := newCanary(t)
	execd := testenv.StartExecd(t, images)
	path := filepath.Join(c.dir, "record")
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	db, err := sqlite.Open(t.Context(), filepath.Join(path, "db"))
	must(err)
	defer db.Close()
	blobs, err := blobdir.New(filepath.Join(path, "blobs"))
	must(err)
	_, key, err := ed25519.GenerateKey(rand.Reader)
	must(err)
	signer, err := receipt.NewSigner(key)
	must(err)
	repositories, err := checkout.New(checkout.Config{
		App: c.github.App(), Egress: c.github.Egress(), Dir: filepath.Join(c.dir, "packs"), Agent: "agentdock/test",
	})
	must(err)
	must(db.CreateTenant(t.Context(), tenant.Tenant{
		ID: "t1", Name: "one", Quota: tenant.DefaultQuota(), Grants: tenant.Grants{Repositories: []string{"acme/*"}},
	}))
	var log capture.Buffer
	w, err := worker.New(worker.Config{Name: "test", Poll: 50 * time.Millisecond}, worker.Deps{
		Store: db, Blobs: blobs, Signer: signer, Repositories: repositories,
		Nodes: []worker.Node{{Name: "here", Dial: func(ctx context.Context) (worker.Connection, error) {
			return execrpc.DialUnix(ctx, execd.Socket)
		}}},
		Log: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	must(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	defer func() {
		cancel()
		must(<-done)
	}()
	runJob := func(id string, env map[string]string) (run.Job, []byte) {
		t.Helper()
		_, _, err := db.CreateJob(t.Context(), store.NewJob{ID: id, TenantID: "t1", Spec: run.JobSpec{
			Source: run.Source{Kind: run.SourceRepository, Repository: c.github.URL + "/acme/app", Ref: "main"},
			Image:  "default", Limits: run.DefaultLimits(), Timeout: 2 * time.Minute, Env: env,
			Commands: []run.Command{{Argv: []string{"python3", "-c", inside}}}, Artifacts: []string{"**"},
		}})
		must(err)
		for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
			envelope, err := db.Receipt(t.Context(), "t1", id)
			if err != nil {
				continue
			}
			job, err := db.Job(t.Context(), "t1", id)
			must(err)
			return job, envelope
		}
		t.Fatalf("job %s has no receipt\n%s", id, log.Bytes())
		return run.Job{}, nil
	}
	search := func(id string, env map[string]string) *finds {
		job, envelope := runJob(id, env)
		if job.State != run.Succeeded || len(job.Resolved.Commit) != 40 {
			t.Errorf("job %s: %s, %+v, commit %q", id, job.State, job.Outcome, job.Resolved.Commit)
		}
		f := newFinds(t, c.secrets(), images)
		f.tree(record.name, path)
		f.look(record.name, "receipt", envelope)
		f.look(record.name, "log", log.Bytes())
		f.tree(record.name, filepath.Join(c.dir, "packs"))
		return f
	}
	search("clean", nil).report([]place{record}, false)
	if len(c.github.Tokens()) != 1 || c.github.Live() != 0 {
		t.Errorf("%d tokens were made, %d live", len(c.github.Tokens()), c.github.Live())
	}
	search("planted", map[string]string{"PLANTED": c.github.Tokens()[0]}).report([]place{record}, true)
}
