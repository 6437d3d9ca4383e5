package live

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/control"
	"github.com/agentdock/agentdock/internal/execenv/fake"
	"github.com/agentdock/agentdock/internal/execrpc"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store/sqlite"
	"github.com/agentdock/agentdock/internal/tenant"
)

// world is the use cases over a real record and an environment in memory, behind
// the real wire.
type world struct {
	*testing.T
	*Sandboxes
	store *sqlite.Store
	nodes []Node
	envs  map[string]*fake.Environment
	// stop ends the service that is named.
	stop map[string]func()
}

func newWorld(t *testing.T, cfg fake.Config, names ...string) *world {
	t.Helper()
	record, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "record"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { record.Close() })
	w := &world{T: t, store: record, envs: map[string]*fake.Environment{}, stop: map[string]func(){}}
	if len(names) == 0 {
		names = []string{"here"}
	}
	for _, name := range names {
		w.serve(name, cfg)
	}
	w.Sandboxes = w.another(Config{})
	return w
}

// another is another process with the same record and services.
func (w *world) another(cfg Config) *Sandboxes {
	w.Helper()
	cfg.Development = true
	s, err := New(cfg, w.store, w.nodes, func(context.Context, control.Caller, string, string, error) {}, slog.New(slog.DiscardHandler))
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(s.nodes.close)
	return s
}

// serve starts an execution service. Its sockets have a limit on their length.
func (w *world) serve(name string, cfg fake.Config) {
	w.Helper()
	dir, err := os.MkdirTemp("", "l")
	w.ok(err)
	w.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	w.ok(err)
	env, quiet := fake.New(cfg), slog.New(slog.DiscardHandler)
	server := execrpc.NewHTTPServer(execrpc.NewServer(env, quiet), nil, quiet)
	go func() { _ = server.Serve(l) }()
	stop := func() { server.Close(); env.Close() }
	w.Cleanup(stop)
	w.envs[name], w.stop[name] = env, stop
	for i := range w.nodes {
		if w.nodes[i].Name == name {
			w.Fatalf("there is a service %s already", name)
		}
	}
	w.nodes = append(w.nodes, Node{Name: name, Dial: func(ctx context.Context) (Connection, error) { return execrpc.DialUnix(ctx, socket) }})
}

func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) fails(err error, code fault.Code) {
	w.Helper()
	if !fault.Is(err, code) {
		w.Errorf("want an error with the code %s, got %v", code, err)
	}
}

// caller makes a tenant and is one.
func (w *world) caller(q tenant.Quota, grants ...tenant.Grants) control.Caller {
	w.Helper()
	t := tenant.Tenant{ID: "t" + time.Now().Format("150405.000000000"), Name: "t", Quota: q}
	for _, g := range grants {
		t.Grants = g
	}
	w.ok(w.store.CreateTenant(w.Context(), t))
	return control.Caller{Principal: tenant.Principal{Tenant: t, Scopes: tenant.Scopes()}}
}

func (w *world) create(c control.Caller, r Request) run.Sandbox {
	w.Helper()
	box, _, err := w.Create(w.Context(), c, r)
	w.ok(err)
	return box
}

// is checks the state of a sandbox on record.
func (w *world) is(box run.Sandbox, want run.SandboxState) run.Sandbox {
	w.Helper()
	now, err := w.store.Sandbox(w.Context(), box.TenantID, box.ID)
	w.ok(err)
	if now.State != want {
		w.Errorf("sandbox %s is %s (%v), want %s", box.ID, now.State, now.Outcome, want)
	}
	return now
}

// there says how many sandboxes a service has.
func (w *world) there(name string) int {
	w.Helper()
	infos, err := w.envs[name].List(w.Context())
	w.ok(err)
	return len(infos)
}

// run runs a command to its end and returns what it wrote.
func (w *world) run(c control.Caller, id string, argv ...string) (string, run.Outcome) {
	w.Helper()
	h, err := w.Open(w.Context(), c, id)
	w.ok(err)
	x, err := h.Start(w.Context(), Command{Argv: argv})
	w.ok(err)
	return w.follow(x)
}
