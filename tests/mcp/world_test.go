// Package mcp drives the MCP server with the client of its SDK, against the real
// API over an environment in memory. Real sandboxes are in tests/clients.
package mcp

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/client"
	"github.com/agentdock/agentdock/internal/blob/dir"
	"github.com/agentdock/agentdock/internal/control"
	"github.com/agentdock/agentdock/internal/execenv/fake"
	"github.com/agentdock/agentdock/internal/httpapi"
	"github.com/agentdock/agentdock/internal/live"
	"github.com/agentdock/agentdock/internal/mcpserver"
	"github.com/agentdock/agentdock/internal/queue/memory"
	"github.com/agentdock/agentdock/internal/store/sqlite"
	"github.com/agentdock/agentdock/internal/tenant"
)

// world is the API over sandboxes in memory.
type world struct {
	t          *testing.T
	url        string
	use        *control.Control
	key, other string
}

// local is an environment of this process.
type local struct{ *fake.Environment }

func (local) Close() {}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t}
	log := slog.New(slog.DiscardHandler)
	record, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "record.db"))
	w.ok(err)
	t.Cleanup(func() { record.Close() })
	blobs, err := dir.New(t.TempDir())
	w.ok(err)
	queue := memory.New()
	t.Cleanup(func() { queue.Close() })
	w.use, err = control.New(control.Config{LogPoll: 20 * time.Millisecond}, record, queue, blobs, log)
	w.ok(err)
	env := fake.New(fake.Config{Programs: map[string]fake.Program{
		"noise": func(p *fake.Proc) int {
			_, _ = p.Stdout.Write([]byte("\x1b]0;owned\x07\xff" + strings.Repeat("x", 100_000) + "end"))
			return 3
		},
	}})
	t.Cleanup(env.Close)
	node := live.Node{Name: "here", Dial: func(context.Context) (live.Connection, error) { return local{env}, nil }}
	sandboxes, err := live.New(live.Config{Development: true}, record, []live.Node{node}, w.use.Audit, log)
	w.ok(err)
	a, err := httpapi.New(httpapi.Config{Log: log}, w.use, sandboxes)
	w.ok(err)
	l, err := httpapi.Listen(httpapi.AuthAPIKey, "127.0.0.1:0")
	w.ok(err)
	w.url = "http://" + l.Addr().String()
	part, err := a.Part(l)
	w.ok(err)
	w.ok(part.Start(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		w.ok(part.Stop(ctx))
	})
	w.key, w.other = w.newKey(), w.newKey()
	return w
}

func (w *world) newKey() string {
	w.t.Helper()
	quota := tenant.DefaultQuota()
	quota.RequestsPerMinute *= 100 // what is tested here is not how many requests there may be
	tn, err := w.use.CreateTenant(w.t.Context(), control.Caller{}, "t", quota, tenant.Grants{})
	w.ok(err)
	_, key, err := w.use.CreateKey(w.t.Context(), control.Caller{}, tn.ID, "t", tenant.Scopes(), time.Time{})
	w.ok(err)
	return key
}

func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) config(key string) mcpserver.Config {
	return mcpserver.Config{
		Key: key, Progress: 10 * time.Millisecond,
		Dial: func(key string) (*client.Client, error) {
			return client.New(w.url, client.WithAPIKey(key), client.WithAttempts(1), client.WithHTTPClient(&http.Client{Transport: http.DefaultTransport}))
		},
	}
}

// session is a client of the server, and what ends the session.
type session struct {
	*sdk.ClientSession
	w        *world
	progress chan *sdk.ProgressNotificationParams
	// hangUp ends the client's side, as an agent that ends does; ended is what the
	// server says at its own end.
	hangUp func()
	ended  chan error
	stop   context.CancelFunc
}

// stdio begins a session over pipes, as between an agent and its program.
func (w *world) stdio(key string) *session {
	w.t.Helper()
	fromClient, toServer, err := os.Pipe()
	w.ok(err)
	fromServer, toClient, err := os.Pipe()
	w.ok(err)
	ctx, stop := context.WithCancel(context.Background())
	s := &session{w: w, ended: make(chan error, 1), stop: stop}
	go func() { s.ended <- mcpserver.Stdio(ctx, w.config(key), fromClient, toClient) }()
	s.hangUp = sync.OnceFunc(func() { toServer.Close() })
	s.connect(&sdk.IOTransport{Reader: fromServer, Writer: toServer})
	w.t.Cleanup(func() {
		s.hangUp()
		stop()
		select {
		case err := <-s.ended:
			w.ok(err)
		case <-time.After(30 * time.Second):
			w.t.Error("the server does not end")
		}
	})
	return s
}

func (s *session) connect(transport sdk.Transport) {
	s.w.t.Helper()
	s.progress = make(chan *sdk.ProgressNotificationParams, 100)
	c := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, &sdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
			select {
			case s.progress <- r.Params:
			default:
			}
		},
	})
	var err error
	s.ClientSession, err = c.Connect(context.Background(), transport, nil)
	s.w.ok(err)
}

// serve runs the server over HTTP and returns its address.
func (w *world) serve(change func(*mcpserver.HTTPConfig)) (url string) {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	w.ok(err)
	cfg := mcpserver.HTTPConfig{Config: w.config("not lent to anybody")}
	if change != nil {
		change(&cfg)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mcpserver.Serve(ctx, cfg, l) }()
	w.t.Cleanup(func() {
		stop()
		select {
		case err := <-ended:
			w.ok(err)
		case <-time.After(30 * time.Second):
			w.t.Error("the server does not end")
		}
	})
	return "http://" + l.Addr().String() + mcpserver.Path
}

// withKey sends a key with every request.
type withKey string

func (k withKey) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if k != "" {
		r.Header.Set("Authorization", "Bearer "+string(k))
	}
	return http.DefaultTransport.RoundTrip(r)
}

func (w *world) http(url, key string) *session {
	w.t.Helper()
	s := &session{w: w}
	s.connect(&sdk.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: withKey(key)}})
	s.hangUp = sync.OnceFunc(func() { _ = s.Close() })
	w.t.Cleanup(s.hangUp)
	return s
}

// answer is what a tool has returned.
type answer map[string]any

// use calls a tool that must work.
func (s *session) use(tool string, args map[string]any) answer {
	s.w.t.Helper()
	res, err := s.CallTool(s.w.t.Context(), &sdk.CallToolParams{Name: tool, Arguments: args})
	s.w.ok(err)
	if res.IsError {
		s.w.t.Fatalf("%s: %s", tool, textOf(res))
	}
	return s.w.answerOf(res)
}

func (w *world) answerOf(res *sdk.CallToolResult) answer {
	w.t.Helper()
	var structured, text answer
	data, err := json.Marshal(res.StructuredContent)
	w.ok(err)
	w.ok(json.Unmarshal(data, &structured))
	w.ok(json.Unmarshal([]byte(textOf(res)), &text))
	if len(structured) == 0 || len(text) != len(structured) {
		w.t.Errorf("the text has %v and the structure %v", text, structured)
	}
	return structured
}

func textOf(res *sdk.CallToolResult) string {
	var all []string
	for _, c := range res.Content {
		if t, ok := c.(*sdk.TextContent); ok {
			all = append(all, t.Text)
		}
	}
	return strings.Join(all, "\n")
}

// fails calls a tool that must not work, and returns what it says.
func (s *session) fails(tool string, args map[string]any) string {
	s.w.t.Helper()
	res, err := s.CallTool(s.w.t.Context(), &sdk.CallToolParams{Name: tool, Arguments: args})
	s.w.ok(err)
	if !res.IsError {
		s.w.t.Fatalf("%s%v worked: %s", tool, args, textOf(res))
	}
	return textOf(res)
}

func (s *session) sandbox() string {
	s.w.t.Helper()
	id, _ := s.use("sandbox_create", nil)["sandbox_id"].(string)
	return id
}

func (w *world) client(key string) *client.Client {
	w.t.Helper()
	c, err := w.config(key).Dial(key)
	w.ok(err)
	return c
}

// state is what the platform says of a sandbox.
func (w *world) state(id string) api.SandboxState {
	w.t.Helper()
	box, err := w.client(w.key).Sandbox(context.Background(), id)
	w.ok(err)
	return box.State
}

// running waits until a command of a sandbox runs, or none does.
func (w *world) running(id string, want bool) {
	w.t.Helper()
	c := w.client(w.key)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		all, err := c.Execs(context.Background(), id)
		w.ok(err)
		runs := false
		for _, x := range all {
			runs = runs || x.Running
		}
		if runs == want {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("commands: %+v; want running: %v", all, want)
		}
	}
}
