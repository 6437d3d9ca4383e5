package platform

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/ed25519"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/client"
	"github.com/agentdock/agentdock/internal/receipt"
	"github.com/agentdock/agentdock/internal/store/postgres"
	"github.com/agentdock/agentdock/internal/testenv"
)

// patience is how long what must happen may take on a machine that is busy.
const patience = 90 * time.Second

// lease is how long a worker may be silent: the shortest that there is.
const lease = 3 * time.Second

// world is a whole platform: databases, object store, execution service, API
// and two workers, each a program in a process of its own.
type world struct {
	*testing.T
	*testenv.Platform
	ctx     context.Context
	rng     *rand.Rand
	edge    int // the next to be hit
	workers []*testenv.Program
	client  *client.Client
	upload  string // the program, for jobs
	disk    string // of the directory of artifacts, if that is what there is
	// record is for looking at what no caller sees.
	record *postgres.Store
	db     *pgxpool.Pool
	public []ed25519.PublicKey
	tally  *tally
}

// newWorld starts a platform with an S3 store, or with a directory of artifacts
// on a disk of its own.
func newWorld(t *testing.T, seed uint64, disk bool, tally *tally) *world {
	t.Helper()
	testenv.RequireRoot(t)
	w := &world{T: t, ctx: context.Background(), rng: rand.New(rand.NewPCG(seed, 1)), tally: tally}
	w.edge = w.rng.IntN(len(edges))
	// An API that is started again is where it was.
	environment := []string{"AGENTDOCK_API_LISTEN=" + freeAddress(t),
		"AGENTDOCK_WORKER_LEASE=" + lease.String(), "AGENTDOCK_WORKER_CONCURRENCY=3", "AGENTDOCK_WORKER_DRAIN=1s"}
	if disk {
		w.disk = testenv.SmallDisk(t, diskBytes)
		environment = append(environment, "ARTIFACT_DIR="+filepath.Join(w.disk, "artifacts"))
	}
	w.Platform = testenv.StartPlatform(t, testenv.PlatformConfig{ImageDir: testenv.BareStore(t), S3: !disk, Environment: environment})
	w.workers = []*testenv.Program{w.Worker, w.StartWorker(t, "worker-2")}
	dsn := w.Setting("DATABASE_URL")
	var err error
	w.record, err = postgres.Open(w.ctx, dsn)
	w.ok(err)
	t.Cleanup(func() { _ = w.record.Close() })
	w.db, err = pgxpool.New(w.ctx, dsn)
	w.ok(err)
	t.Cleanup(w.db.Close)
	w.client = w.connect(w.Key)
	w.ready()
	keys, err := w.client.ReceiptKeys(w.ctx)
	w.ok(err)
	for _, k := range keys {
		public, err := receipt.ParsePublicKeys([]byte(k.PublicKey))
		w.ok(err)
		w.public = append(w.public, public...)
	}
	w.upload = w.sendProgram(w.client)
	return w
}

// connect is a client that does not give up while something is away.
func (w *world) connect(key string) *client.Client {
	w.Helper()
	c, err := client.New(w.URL, client.WithAPIKey(key), client.WithAttempts(1000),
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

// mark says what happens now, to be found beside the logs of the processes.
func (w *world) mark(what string) {
	w.Helper()
	w.Logf("%s %s", time.Now().UTC().Format(time.RFC3339Nano), what)
}

// shape is how many jobs there are, and what their commands do: each of two
// prints so many lines of so many bytes, with a pause after each, and leaves
// a file of so many bytes.
type shape struct {
	jobs, lines, width int
	pause              time.Duration
	leaves             int
}

const jobSteps = 2

// usual jobs are more than two workers take, and take a second each.
var usual = shape{jobs: 8, lines: 20, pause: 25 * time.Millisecond}

func (w *world) spec(s shape) api.JobSpec {
	command := api.Command{Argv: []string{"./program", strconv.Itoa(s.lines), strconv.FormatInt(s.pause.Milliseconds(), 10),
		strconv.Itoa(s.width), strconv.Itoa(s.leaves)}}
	return api.JobSpec{
		Source: api.Source{Kind: "archive", UploadID: w.upload}, Image: testenv.BareImage, Artifacts: []string{"ran", "left"},
		Commands: []api.Command{command, command}, TimeoutMS: 300_000,
		Limits: api.Limits{MilliCPU: 500, MemoryBytes: 128 << 20, PIDs: 64, OutputBytes: max(256_000, 2*int64(s.lines*s.width))},
	}
}

// submitted is a job, and what a caller who follows its log has got.
type submitted struct {
	id    string
	shape shape
	read  chan struct{} // closed when the log is over

	log []api.LogOutput
	end *api.LogEnd
	err error
}

// submit makes jobs and follows their logs.
func (w *world) submit(of shape) []*submitted {
	w.Helper()
	var all []*submitted
	for range of.jobs {
		job, err := w.client.CreateJob(w.ctx, w.spec(of), "")
		w.ok(err)
		s := &submitted{id: job.ID, shape: of, read: make(chan struct{})}
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

// sendProgram uploads what jobs run, for the tenant of a client.
func (w *world) sendProgram(c *client.Client) (id string) {
	w.Helper()
	up, err := c.Upload(w.ctx, programArchive(w.T))
	w.ok(err)
	return up.ID
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
