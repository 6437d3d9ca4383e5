package platform

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/ed25519"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/client"
	"github.com/agentdock/agentdock/internal/blob"
	"github.com/agentdock/agentdock/internal/blob/s3"
	"github.com/agentdock/agentdock/internal/control"
	"github.com/agentdock/agentdock/internal/queue/redis"
	"github.com/agentdock/agentdock/internal/receipt"
	"github.com/agentdock/agentdock/internal/store/postgres"
	"github.com/agentdock/agentdock/internal/testenv"
	"github.com/agentdock/agentdock/internal/testenv/capture"
)

// patience is how long what must happen may take on a machine that is busy.
const patience = 90 * time.Second

// world is a whole platform: databases, object store, execution service, API
// and two workers, each in processes of its own.
type world struct {
	*testing.T
	ctx     context.Context
	rng     *rand.Rand
	logs    *capture.Buffer
	pg      *testenv.Postgres
	dsn     string
	redis   *testenv.Redis
	s3      *testenv.S3
	execd   *testenv.Execd
	api     *process
	workers []*process
	client  *client.Client
	admin   string // the key of the client
	upload  string // the program, for jobs
	// record is for looking at what no caller sees.
	record *postgres.Store
	db     *pgxpool.Pool
	blobs  blob.Store
	public ed25519.PublicKey
	tally  *tally
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	testenv.RequireRoot(t)
	w := &world{T: t, ctx: context.Background(), rng: rand.New(rand.NewPCG(seed, 1)), logs: &capture.Buffer{}, tally: newTally(seed)}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the logs:\n%s", w.logs.Tail(256<<10))
		}
	})
	w.s3 = testenv.StartS3(t, t.TempDir())
	w.pg = testenv.StartPostgres(t)
	w.dsn = w.pg.Database()
	w.redis = testenv.StartRedis(t)
	w.execd = testenv.StartExecd(t, testenv.BareStore(t))
	var err error
	w.record, err = postgres.Open(w.ctx, w.dsn)
	w.ok(err)
	t.Cleanup(func() { _ = w.record.Close() })
	w.db, err = pgxpool.New(w.ctx, w.dsn)
	w.ok(err)
	t.Cleanup(w.db.Close)

	r := role{
		DSN: w.dsn, Redis: w.redis.URL, Socket: w.execd.Socket, Key: filepath.Join(t.TempDir(), "key.pem"), Listen: freeAddress(t),
		S3: s3.Config{Endpoint: w.s3.Endpoint, Region: w.s3.Region, Bucket: w.s3.Bucket, AccessKey: w.s3.AccessKey, SecretKey: w.s3.SecretKey},
	}
	key, err := receipt.LoadOrCreateKey(r.Key)
	w.ok(err)
	signer, err := receipt.NewSigner(key)
	w.ok(err)
	w.public = signer.Public()
	w.blobs, err = r.openBlobs()
	w.ok(err)
	w.admin = w.firstKey(r)
	for _, name := range []string{"api", "worker-1", "worker-2"} {
		r.Name = name
		p := &process{w: w, role: r}
		p.start()
		t.Cleanup(func() { p.end(unix.SIGTERM) })
		if name == "api" {
			w.api = p
		} else {
			w.workers = append(w.workers, p)
		}
	}
	w.client = w.connect(w.admin)
	w.ready()
	up, err := w.client.Upload(w.ctx, programArchive(t))
	w.ok(err)
	w.upload = up.ID
	return w
}

// firstKey is the operator's, whose quota does not bound.
func (w *world) firstKey(r role) string {
	w.Helper()
	q, err := redis.Open(r.Redis)
	w.ok(err)
	defer q.Close()
	c, err := control.New(control.Config{}, w.record, q, w.blobs, slog.New(slog.DiscardHandler))
	w.ok(err)
	secret, err := c.FirstKey(w.ctx)
	w.ok(err)
	return secret
}

// connect is a client that does not give up while something is away.
func (w *world) connect(key string) *client.Client {
	w.Helper()
	c, err := client.New("http://"+w.api.role.Listen, client.WithAPIKey(key), client.WithAttempts(1000),
		client.WithBackoff(20*time.Millisecond, 500*time.Millisecond))
	w.ok(err)
	w.Cleanup(c.CloseIdleConnections)
	return c
}

// ready waits until the API serves and everything it needs does.
func (w *world) ready() {
	w.Helper()
	w.eventually("the API is not ready", func() bool { return w.client.Ready(w.ctx) == nil })
}

func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// eventually looks until something holds, and gives up when it should long have.
func (w *world) eventually(otherwise string, holds func() bool) {
	w.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatal(otherwise)
		}
	}
}

// some is a pause of random length.
func (w *world) some(most time.Duration) { time.Sleep(time.Duration(w.rng.Int64N(int64(most)))) }

// Jobs are two commands that take a second together.
const (
	jobSteps = 2
	jobLines = 20
)

func (w *world) spec() api.JobSpec {
	command := api.Command{Argv: []string{"./program", "20", "25"}}
	return api.JobSpec{
		Source: api.Source{Kind: "archive", UploadID: w.upload}, Image: testenv.BareImage, Artifacts: []string{"ran"},
		Commands: []api.Command{command, command}, TimeoutMS: 300_000,
		Limits: api.Limits{MilliCPU: 500, MemoryBytes: 128 << 20, PIDs: 64},
	}
}

// submitted is a job, and what a caller who follows its log has got.
type submitted struct {
	id   string
	read chan struct{} // closed when the log is over

	log []api.LogOutput
	end *api.LogEnd
	err error
}

// submit makes jobs and follows their logs.
func (w *world) submit(n int, spec api.JobSpec) []*submitted {
	w.Helper()
	var all []*submitted
	for range n {
		job, err := w.client.CreateJob(w.ctx, spec, "")
		w.ok(err)
		s := &submitted{id: job.ID, read: make(chan struct{})}
		go s.follow(w)
		all = append(all, s)
	}
	return all
}

func (s *submitted) follow(w *world) {
	defer close(s.read)
	ctx, cancel := context.WithTimeout(w.ctx, 2*patience)
	defer cancel()
	for event, err := range w.client.Log(ctx, s.id, client.LogOptions{}) {
		switch {
		case err != nil:
			s.err = err
		case event.Output != nil:
			s.log = append(s.log, *event.Output)
		case event.End != nil:
			s.end = event.End
		}
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// programArchive is the program that jobs run, as an upload.
func programArchive(t *testing.T) io.Reader {
	t.Helper()
	out := filepath.Join(t.TempDir(), "program")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, "github.com/agentdock/agentdock/tests/platform/program")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if msg, err := build.CombinedOutput(); err != nil {
		t.Fatalf("cannot build the program: %v\n%s", err, msg)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	tw := tar.NewWriter(&archive)
	if err := tw.WriteHeader(&tar.Header{Name: "program", Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(data))}); err != nil {
		t.Fatal(err)
	}
	if _, err := tw.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	return &archive
}

// fence is how often a job was claimed.
func (w *world) fence(id string) (n int64) {
	w.Helper()
	w.ok(w.db.QueryRow(w.ctx, "SELECT fence FROM jobs WHERE id = $1", id).Scan(&n))
	return n
}
