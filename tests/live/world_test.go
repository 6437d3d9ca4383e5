// Package live drives live sandboxes through the API and the Go client, on a
// real execution service.
package live

import (
	"context"
	"flag"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/client"
	"github.com/agentdock/agentdock/internal/blob/dir"
	"github.com/agentdock/agentdock/internal/compat/e2b"
	"github.com/agentdock/agentdock/internal/control"
	"github.com/agentdock/agentdock/internal/execrpc"
	"github.com/agentdock/agentdock/internal/httpapi"
	"github.com/agentdock/agentdock/internal/live"
	"github.com/agentdock/agentdock/internal/queue/memory"
	"github.com/agentdock/agentdock/internal/service"
	"github.com/agentdock/agentdock/internal/store/sqlite"
	"github.com/agentdock/agentdock/internal/tenant"
	"github.com/agentdock/agentdock/internal/testenv"
)

// inARow is how many commands TestManyInARow runs: the number takes
// minutes.
var inARow = flag.Int("in-a-row", 300, "how many commands run one after the other")

// world is an API with live sandboxes, and a client of it.
type world struct {
	testing.TB
	*client.Client
	socket, url, key string
}

func newWorld(t testing.TB) *world {
	t.Helper()
	images := os.Getenv("AGENTDOCK_IMAGE_DIR")
	if images == "" {
		images = "/var/lib/agentdock/images"
	}
	if _, err := os.Stat(filepath.Join(images, "index.json")); err != nil {
		if os.Getenv("AGENTDOCK_TEST_REQUIRE_REAL") == "1" {
			t.Fatal("there is no default image")
		}
		t.Skip("there is no default image; make it with: agentdock image build")
	}
	w := &world{TB: t, socket: testenv.StartExecd(t, images).Socket}
	log := slog.New(slog.DiscardHandler)
	record, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "record.db"))
	w.ok(err)
	t.Cleanup(func() { w.ok(record.Close()) })
	blobs, err := dir.New(t.TempDir())
	w.ok(err)
	queue := memory.New()
	t.Cleanup(func() { w.ok(queue.Close()) })
	use, err := control.New(control.Config{}, record, queue, blobs, log)
	w.ok(err)
	sandboxes, err := live.New(live.Config{}, record, []live.Node{{Name: "here", Dial: func(ctx context.Context) (live.Connection, error) {
		return execrpc.DialUnix(ctx, w.socket)
	}}}, use.Audit, log)
	w.ok(err)
	a, err := httpapi.New(httpapi.Config{Log: log, MaxLongPerTenant: 1000, Facade: e2b.New(e2b.Config{Log: log}, sandboxes)}, use, sandboxes)
	w.ok(err)
	l, err := httpapi.Listen(httpapi.AuthAPIKey, "127.0.0.1:0")
	w.ok(err)
	w.serve(a, l, sandboxes)
	tn, err := use.CreateTenant(t.Context(), control.Caller{}, "t", tenant.Quota{}, tenant.Grants{})
	w.ok(err)
	_, w.key, err = use.CreateKey(t.Context(), control.Caller{}, tn.ID, "t", []tenant.Scope{tenant.SandboxesRead, tenant.SandboxesWrite}, time.Time{})
	w.ok(err)
	// What is refused is to be seen, and not tried again.
	w.url = "http://" + l.Addr().String()
	w.Client, err = client.New(w.url, client.WithAPIKey(w.key), client.WithAttempts(1))
	w.ok(err)
	t.Cleanup(w.CloseIdleConnections)
	return w
}

func (w *world) serve(a *httpapi.API, l net.Listener, sandboxes *live.Sandboxes) {
	w.Helper()
	part, err := a.Part(l)
	w.ok(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- service.Group{
			Parts: []*service.Part{service.Loop("live sandboxes", sandboxes.Run), part}, StopTimeout: time.Minute,
			Ready: func() {}, Stopping: func() {},
		}.Run(ctx)
	}()
	w.Cleanup(func() {
		cancel()
		w.ok(<-ended)
	})
}

func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// sandbox makes one, and holds it to leaving nothing.
func (w *world) sandbox(spec api.SandboxSpec) string {
	w.Helper()
	box, err := w.CreateSandbox(w.Context(), spec)
	w.ok(err)
	w.Cleanup(func() {
		killed, err := w.KillSandbox(context.Background(), box.ID)
		w.ok(err)
		if killed.State != api.SandboxStateEnded {
			w.Errorf("after the kill the sandbox is %s", killed.State)
		}
		env, err := execrpc.DialUnix(context.Background(), w.socket)
		w.ok(err)
		defer env.Close()
		infos, err := env.List(context.Background())
		w.ok(err)
		for _, info := range infos {
			if info.ID == box.ID {
				w.Errorf("after the kill the execution service has %+v", info)
			}
		}
	})
	return box.ID
}

// usable checks that a sandbox works and that nothing of what was done in it is
// left but the command that asks.
func (w *world) usable(box string) {
	w.Helper()
	if out, end := w.run(box, "echo", "usable"); out != "usable\n" || *end.Outcome.ExitCode != 0 {
		w.Errorf("afterwards it prints %q and ends as %+v", out, end.Outcome)
	}
	execs, err := w.Execs(w.Context(), box)
	w.ok(err)
	for _, x := range execs {
		if x.Running {
			w.Errorf("command %s still runs: %q", x.ID, x.Argv)
		}
	}
	if len(execs) > 64 {
		w.Errorf("%d commands are remembered", len(execs))
	}
}
