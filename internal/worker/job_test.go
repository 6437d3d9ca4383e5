package worker

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/artifact"
	"github.com/agentdock/agentdock/internal/checkout"
	"github.com/agentdock/agentdock/internal/checkout/reason"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/fake"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
)

func TestJobRunsToItsEnd(t *testing.T) {
	w := newWorld(t, fake.Config{})
	w.start(config(), w.deps())
	id := w.submit(run.JobSpec{
		Source: run.Source{Kind: run.SourceFixture}, Artifacts: []string{"out.txt", "README.md"},
		Commands: []run.Command{command("echo", "hello"), command("leave", "out.txt"), {Argv: []string{"pwd"}, Dir: "humanunits"}},
	})
	job := w.ended(id, run.Succeeded, run.Exited)
	if got, want := w.output(id), "hello\n/workspace/humanunits\n"; got != want {
		t.Errorf("log %q, want %q", got, want)
	}
	if len(job.Steps) != 3 || job.Steps[0].StdoutBytes != 6 || job.Attempt != 1 || job.Node != "here" {
		t.Errorf("%+v", job)
	}
	if job.Resolved.Environment != "fake 1" || job.Resolved.Isolation != "none" || !strings.HasPrefix(job.Resolved.ArchiveDigest, "sha256:") {
		t.Errorf("%+v", job.Resolved)
	}
	artifacts, err := w.store.Artifacts(t.Context(), "t1", id)
	w.ok(err)
	if len(artifacts) != 2 {
		t.Fatalf("%+v", artifacts)
	}
	for _, a := range artifacts {
		data := w.blob(a.Key)
		if sum := sha256.Sum256([]byte(data)); a.SHA256 != hex.EncodeToString(sum[:]) || a.Bytes != int64(len(data)) {
			t.Errorf("%+v is not what is kept", a)
		}
		if a.Path == "out.txt" && data != "left by out.txt" {
			t.Errorf("out.txt holds %q", data)
		}
	}
}

// TestEnvironmentAndLabels: B7 and B10.
func TestEnvironmentAndLabels(t *testing.T) {
	t.Setenv("DATABASE_URL", "postgres://secret")
	w := newWorld(t, fake.Config{})
	w.start(config(), w.deps())
	id := w.submit(run.JobSpec{
		Env:      map[string]string{"A": "job", "B": "job"},
		Commands: []run.Command{{Argv: []string{"env"}, Env: map[string]string{"B": "command"}}, command("sleep", "100")},
	})
	w.running(id, 1)
	list, err := w.env.List(t.Context())
	w.ok(err)
	labels := list[0].Labels
	if list[0].ID != id+"-1" || labels["agentdock.sandbox"] != "true" || labels["agentdock.execution_id"] != id || labels["agentdock.attempt"] != "1" {
		t.Errorf("%+v", list[0])
	}
	_, err = w.store.CancelJob(t.Context(), "t1", id)
	w.ok(err)
	w.ended(id, run.StateCancelled, run.Cancelled)
	want := strings.Join([]string{"A=job", "AGENTDOCK_SANDBOX=true", "B=command", "CI=true", "HOME=/workspace", "PATH=" + execenv.Path}, "\n") + "\n"
	if got := w.output(id); got != want {
		t.Errorf("the environment is\n%s\nwant\n%s", got, want)
	}
}

func TestCommandsThatFail(t *testing.T) {
	w := newWorld(t, fake.Config{})
	w.start(config(), w.deps())
	stops := w.submit(run.JobSpec{Commands: commands("leave kept", "false", "ran never"), Artifacts: []string{"kept"}})
	goesOn := run.JobSpec{Commands: commands("false", "ran after", "no-such-program")}
	goesOn.Commands[0].ContinueOnFailure = true
	on := w.submit(goesOn)

	job := w.ended(stops, run.Failed, run.Exited)
	if *job.Outcome.ExitCode != 1 || len(job.Steps) != 2 || w.ran.of("never") != 0 {
		t.Errorf("%+v", job)
	}
	if artifacts, err := w.store.Artifacts(t.Context(), "t1", stops); err != nil || len(artifacts) != 1 {
		t.Errorf("artifacts of a job that failed: %v, %v", artifacts, err)
	}
	// The first failure is the outcome, whatever comes after it.
	job = w.ended(on, run.Failed, run.Exited)
	if *job.Outcome.ExitCode != 1 || len(job.Steps) != 3 || w.ran.of("after") != 1 || job.Steps[2].Outcome.Kind != run.NotStarted {
		t.Errorf("%+v", job)
	}
}

func TestTimeIsOver(t *testing.T) {
	w := newWorld(t, fake.Config{})
	w.start(config(), w.deps())
	ofCommand := w.submit(run.JobSpec{Commands: []run.Command{{Argv: []string{"sleep", "100"}, Timeout: 100 * time.Millisecond}}})
	ofJob := run.JobSpec{Commands: commands("sleep 100", "ran late"), Timeout: 300 * time.Millisecond}
	ofJob.Commands[0].ContinueOnFailure = true
	whole := w.submit(ofJob)
	w.ended(ofCommand, run.Failed, run.WallClock)
	job := w.ended(whole, run.Failed, run.WallClock)
	if len(job.Steps) != 1 || w.ran.of("late") != 0 {
		t.Errorf("%+v", job)
	}
}

func TestCancel(t *testing.T) {
	w := newWorld(t, fake.Config{CreateTakes: 300 * time.Millisecond})
	cancel := func(id string) {
		_, err := w.store.CancelJob(t.Context(), "t1", id)
		w.ok(err)
	}
	queued := w.submit(run.JobSpec{Commands: commands("ran queued")})
	cancel(queued)
	w.start(config(), w.deps())
	w.ended(queued, run.StateCancelled, run.Cancelled)

	starting := w.submit(run.JobSpec{Commands: commands("ran starting")})
	w.until(starting, "placed", func(j run.Job) bool { return j.Node != "" })
	cancel(starting)
	job := w.ended(starting, run.StateCancelled, run.Cancelled)
	if len(job.Steps) != 0 || w.ran.of("starting") != 0 {
		t.Errorf("%+v", job)
	}

	running := w.submit(run.JobSpec{Commands: commands("echo before", "sleep 100", "ran after")})
	w.running(running, 1)
	cancel(running)
	job = w.ended(running, run.StateCancelled, run.Cancelled)
	if len(job.Steps) != 2 || job.Steps[1].Outcome.Kind != run.Cancelled || w.output(running) != "before\n" || w.ran.of("after") != 0 {
		t.Errorf("%+v", job)
	}

	over := w.submit(run.JobSpec{Commands: commands("true")})
	w.end(over)
	cancel(over)
	w.ended(over, run.Succeeded, run.Exited)
}

func TestWhatIsRefused(t *testing.T) {
	w := newWorld(t, fake.Config{Images: []string{"default"}, Enforces: &execenv.Enforces{CPU: true, Memory: true, PIDs: true, Disk: true, Output: true, WallClock: true}})
	w.start(config(), w.deps())
	all := run.DefaultLimits()
	for name, spec := range map[string]run.JobSpec{
		"limit that does not hold": {Commands: commands("true"), Limits: all},
		"no command":               {},
		"too many commands":        {Commands: make([]run.Command, run.MaxCommands+1)},
		"unknown kind of source":   {Commands: commands("true"), Source: run.Source{Kind: "ftp"}},
	} {
		job := w.ended(w.submit(spec), run.Failed, run.PolicyDenied)
		if len(job.Steps) != 0 || job.Outcome.Evidence == "" {
			t.Errorf("%s: %+v", name, job)
		}
	}
	w2 := newWorld(t, fake.Config{Images: []string{"default"}})
	w2.start(config(), w2.deps())
	job := w2.ended(w2.submit(run.JobSpec{Commands: commands("true"), Image: "nobodys"}), run.Failed, run.PolicyDenied)
	if !strings.Contains(job.Outcome.Evidence, "nobodys") {
		t.Errorf("%+v", job.Outcome)
	}
	// The command itself is refused: nothing of it ran.
	job = w2.ended(w2.submit(run.JobSpec{Commands: []run.Command{{Argv: []string{"true"}, Dir: "../.."}}}), run.Failed, run.PolicyDenied)
	if len(job.Steps) != 1 {
		t.Errorf("%+v", job)
	}
}

// upload puts an archive on record as complete.
func (w *world) upload(id string, data []byte, digest string) {
	w.Helper()
	key := "uploads/t1/" + id
	w.ok(w.store.CreateUpload(w.Context(), store.Upload{ID: id, TenantID: "t1", Key: key, Bytes: int64(len(data))}))
	_, err := w.blobs.Put(w.Context(), key, bytes.NewReader(data), int64(len(data)))
	w.ok(err)
	w.ok(w.store.CompleteUpload(w.Context(), id, int64(len(data)), digest))
}

func archive(t *testing.T, headers ...*tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	out := tar.NewWriter(&b)
	for _, h := range headers {
		if err := out.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Write(bytes.Repeat([]byte("x"), int(h.Size))); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func TestArchives(t *testing.T) {
	w := newWorld(t, fake.Config{})
	w.start(config(), w.deps())
	good := archive(t, &tar.Header{Name: "a/file", Mode: 0o644, Size: 3})
	bad := archive(t, &tar.Header{Name: "../file", Mode: 0o644, Size: 3})
	big := archive(t, &tar.Header{Name: "file", Mode: 0o644, Size: 1 << 20})
	w.upload("good", good, digestOf(good))
	w.upload("bad", bad, digestOf(bad))
	w.upload("cut", good[:514], digestOf(good[:514]))
	w.upload("other", good, digestOf(bad))
	w.upload("big", big, digestOf(big))
	w.upload("lost", good, digestOf(good))

	spec := func(id string) run.JobSpec {
		s := run.JobSpec{Source: run.Source{Kind: run.SourceArchive, Upload: id}, Commands: commands("cat a/file"), Limits: run.DefaultLimits()}
		s.Limits.DiskBytes = 512 << 10
		return s
	}
	id := w.submit(spec("good"))
	job := w.ended(id, run.Succeeded, run.Exited)
	if job.Resolved.ArchiveDigest != "sha256:"+digestOf(good) || w.output(id) != "xxx" {
		t.Errorf("%+v, %q", job.Resolved, w.output(id))
	}
	w.ok(w.blobs.Delete(t.Context(), "uploads/t1/lost"))
	for name, says := range map[string]string{
		"bad": "unpack", "cut": "", "other": "not the one that was uploaded", "big": "do not fit", "lost": "do not exist",
	} {
		job := w.ended(w.submit(spec(name)), run.Failed, run.CheckoutFailed)
		if len(job.Steps) != 0 || !strings.Contains(job.Outcome.Evidence, says) {
			t.Errorf("%s: %+v", name, job.Outcome)
		}
	}
}

// repositories stands in for the network: what is fetched is tested where it is.
type repositories func(context.Context, execenv.Sandbox, checkout.Request) (checkout.Result, error)

func (r repositories) Into(ctx context.Context, sb execenv.Sandbox, req checkout.Request) (checkout.Result, error) {
	return r(ctx, sb, req)
}

func TestRepositories(t *testing.T) {
	w := newWorld(t, fake.Config{})
	deps := w.deps()
	var broken bool
	deps.Repositories = repositories(func(ctx context.Context, sb execenv.Sandbox, req checkout.Request) (checkout.Result, error) {
		switch {
		case req.Ref == "gone":
			return checkout.Result{}, reason.New(reason.RefNotFound, "there is no ref %q", req.Ref)
		case req.Ref == "flaky" && !broken:
			broken = true
			return checkout.Result{}, errors.New("the disk of this machine is broken")
		}
		fixture, err := checkout.Fixture{}.Into(ctx, sb, req)
		fixture.Commit = "abc"
		return fixture, err
	})
	stop := w.start(config(), deps)
	spec := func(ref string) run.JobSpec {
		return run.JobSpec{Source: run.Source{Kind: run.SourceRepository, Repository: "https://example.com/a/b", Ref: ref}, Commands: commands("cat pyproject.toml")}
	}
	id := w.submit(spec("main"))
	if job := w.ended(id, run.Succeeded, run.Exited); job.Resolved.Commit != "abc" || w.output(id) == "" {
		t.Errorf("%+v", job)
	}
	if job := w.ended(w.submit(spec("gone")), run.Failed, run.CheckoutFailed); !strings.Contains(job.Outcome.Evidence, "ref_not_found") {
		t.Errorf("%+v", job.Outcome)
	}
	// What is our own fault is tried again, in a new sandbox.
	if job := w.ended(w.submit(spec("flaky")), run.Succeeded, run.Exited); job.Attempt != 2 || job.Lost != 0 {
		t.Errorf("%+v", job)
	}
	stop()
	w.start(config(), w.deps())
	if job := w.ended(w.submit(spec("main")), run.Failed, run.CheckoutFailed); !strings.Contains(job.Outcome.Evidence, "cannot fetch repositories") {
		t.Errorf("%+v", job.Outcome)
	}
}

func TestArtifactsThatAreNotKept(t *testing.T) {
	w := newWorld(t, fake.Config{Programs: map[string]fake.Program{
		"mess": func(p *fake.Proc) int {
			for _, err := range []error{
				p.MkdirAll("out"), p.WriteFile("out/small", []byte("small")), p.Symlink("/etc/passwd", "out/link"),
				p.WriteFile("out/\xff", []byte("no UTF-8")), p.WriteFile("big", make([]byte, 100<<10)),
			} {
				if err != nil {
					return 1
				}
			}
			return 0
		},
	}})
	cfg := config()
	cfg.Artifacts = artifact.Limits{Files: 10, FileBytes: 50 << 10, TotalBytes: 60 << 10}
	w.start(cfg, w.deps())
	id := w.submit(run.JobSpec{Commands: commands("mess"), Artifacts: []string{"out/**"}})
	job := w.ended(id, run.Succeeded, run.Exited)
	artifacts, err := w.store.Artifacts(t.Context(), "t1", id)
	w.ok(err)
	if len(artifacts) != 1 || artifacts[0].Path != "out/small" || !strings.HasPrefix(job.Resolved.Artifacts, "2 entries") {
		t.Errorf("%+v, %q", artifacts, job.Resolved.Artifacts)
	}
	job = w.ended(w.submit(run.JobSpec{Commands: commands("mess"), Artifacts: []string{"big"}}), run.Succeeded, run.Exited)
	if !strings.Contains(job.Resolved.Artifacts, "not all artifacts were kept") {
		t.Errorf("%q", job.Resolved.Artifacts)
	}

	// More than the tenant may keep: what does not fit is not left in the store.
	tenant, err := w.store.Tenant(t.Context(), "t1")
	w.ok(err)
	tenant.Quota.ArtifactBytes = 8
	w.ok(w.store.UpdateTenant(t.Context(), tenant))
	id = w.submit(run.JobSpec{Commands: commands("leave one"), Artifacts: []string{"one"}})
	job = w.ended(id, run.Succeeded, run.Exited)
	if artifacts, err := w.store.Artifacts(t.Context(), "t1", id); err != nil || len(artifacts) != 0 || job.Resolved.Artifacts == "" {
		t.Errorf("%v, %v, %q", artifacts, err, job.Resolved.Artifacts)
	}
	key := (&job_{id}).key(1, "one")
	if w.hasBlob(key) {
		t.Errorf("%s is kept, and no record says so", key)
	}
}

// job_ knows where artifacts are kept.
type job_ struct{ id string }

func (j *job_) key(fence int64, path string) string {
	return (&job{Job: run.Job{ID: j.id}, hold: &hold{lease: store.Lease{Fence: fence}}}).artifactKey(path)
}

func TestLongOutputIsWhole(t *testing.T) {
	const lines = 5000
	w := newWorld(t, fake.Config{Programs: map[string]fake.Program{
		"lines": func(p *fake.Proc) int {
			for i := range lines {
				to := p.Stdout
				if i%7 == 0 {
					to = p.Stderr
				}
				fmt.Fprintf(to, "line %d\n", i)
			}
			return 0
		},
	}})
	w.start(config(), w.deps())
	id := w.submit(run.JobSpec{Commands: commands("lines")})
	job := w.ended(id, run.Succeeded, run.Exited)
	if got := int64(len(w.output(id))); got != job.Steps[0].StdoutBytes+job.Steps[0].StderrBytes || got == 0 {
		t.Errorf("%d bytes are on record, %+v", got, job.Steps[0])
	}
	for i, line := range strings.Split(strings.TrimSuffix(w.output(id), "\n"), "\n") {
		if line != fmt.Sprintf("line %d", i) {
			t.Fatalf("line %d is %q", i, line)
		}
	}
}
