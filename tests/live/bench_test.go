package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/client"
	"github.com/agentdock/agentdock/internal/compat/e2b/processpb"
	"github.com/agentdock/agentdock/internal/compat/e2b/processpb/processpbconnect"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execrpc"
	"github.com/agentdock/agentdock/internal/mcpserver"
)

// ways are how a command is run, in the order in which they take turns.
var ways = []string{"port", "api", "e2b", "mcp-stdio", "mcp-http"}

// BenchmarkExec is what a command that does nothing takes, from the call to its
// end, in the same sandbox: over the bare port, through the API with the Go
// client, through the façade for clients of E2B, and through the MCP server over
// pipes and over HTTP. The turns alternate, so that other work of the machine
// slows all of them.
func BenchmarkExec(b *testing.B) {
	w := newWorld(b)
	box := w.sandbox(api.SandboxSpec{TTLMS: 2 * 3600_000})
	calls := map[string]func() error{
		"port": w.overPort(box),
		"api": func() error {
			_, err := client.CopyExec(w.RunExec(b.Context(), box, api.ExecSpec{Argv: []string{"true"}}), io.Discard, io.Discard)
			return err
		},
		"e2b":       w.overFacade(box),
		"mcp-stdio": w.overPipes(box),
		"mcp-http":  w.overHTTP(box),
	}
	for _, way := range ways {
		w.ok(calls[way]()) // connections are made
	}
	took := map[string][]time.Duration{}
	for b.Loop() {
		for _, way := range ways {
			begin := time.Now()
			w.ok(calls[way]())
			took[way] = append(took[way], time.Since(begin))
		}
	}
	for _, way := range ways {
		all := took[way]
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, way+"-p50-ms")
		b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, way+"-p99-ms")
	}
}

func (w *world) overPort(box string) func() error {
	port, err := execrpc.DialUnix(w.Context(), w.socket)
	w.ok(err)
	w.Cleanup(port.Close)
	sandbox, err := port.Attach(w.Context(), box)
	w.ok(err)
	return func() error {
		x, err := sandbox.Exec(w.Context(), execenv.ExecSpec{Argv: []string{"true"}})
		if err == nil {
			err = x.Output(w.Context(), 0, func(execenv.Chunk) error { return nil })
		}
		return err
	}
}

// overFacade runs it as the clients of E2B do, but for the shell that theirs is.
func (w *world) overFacade(box string) func() error {
	request, err := http.NewRequestWithContext(w.Context(), http.MethodPost, w.url+"/sandboxes/"+box+"/connect", strings.NewReader(`{"timeout":7200}`))
	w.ok(err)
	request.Header.Set("X-API-Key", w.key)
	answer, err := http.DefaultClient.Do(request)
	w.ok(err)
	defer answer.Body.Close()
	var opened struct {
		EnvdAccessToken string `json:"envdAccessToken"`
	}
	w.ok(json.NewDecoder(answer.Body).Decode(&opened))
	processes := processpbconnect.NewProcessClient(http.DefaultClient, w.url)
	return func() error {
		start := connect.NewRequest(&processpb.StartRequest{Process: &processpb.ProcessConfig{Cmd: "true"}})
		start.Header().Set("E2b-Sandbox-Id", box)
		start.Header().Set("X-Access-Token", opened.EnvdAccessToken)
		stream, err := processes.Start(w.Context(), start)
		if err != nil {
			return err
		}
		defer stream.Close()
		ended := false
		for stream.Receive() {
			ended = ended || stream.Msg().GetEvent().GetEnd() != nil
		}
		if err := stream.Err(); err != nil || ended {
			return err
		}
		return errors.New("its end was not told")
	}
}

func (w *world) mcpConfig() mcpserver.Config {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	w.Cleanup(transport.CloseIdleConnections)
	return mcpserver.Config{Key: w.key, Dial: func(key string) (*client.Client, error) {
		return client.New(w.url, client.WithAPIKey(key), client.WithHTTPClient(&http.Client{Transport: transport}))
	}}
}

// overPipes has the server in this process, at the other end of pipes as an agent
// program has it at its standard input and output.
func (w *world) overPipes(box string) func() error {
	fromClient, toServer, err := os.Pipe()
	w.ok(err)
	fromServer, toClient, err := os.Pipe()
	w.ok(err)
	ended := make(chan error, 1)
	go func() { ended <- mcpserver.Stdio(context.Background(), w.mcpConfig(), fromClient, toClient) }()
	w.Cleanup(func() {
		toServer.Close()
		w.ok(<-ended)
	})
	return w.overMCP(box, &mcp.IOTransport{Reader: fromServer, Writer: toServer})
}

func (w *world) overHTTP(box string) func() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	w.ok(err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mcpserver.Serve(ctx, mcpserver.HTTPConfig{Config: w.mcpConfig()}, l) }()
	w.Cleanup(func() {
		stop()
		w.ok(<-ended)
	})
	return w.overMCP(box, &mcp.StreamableClientTransport{
		Endpoint: "http://" + l.Addr().String() + mcpserver.Path, HTTPClient: &http.Client{Transport: withKey(w.key)},
	})
}

// withKey sends a key with every request.
type withKey string

func (k withKey) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(k))
	return http.DefaultTransport.RoundTrip(r)
}

func (w *world) overMCP(box string, transport mcp.Transport) func() error {
	session, err := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil).Connect(w.Context(), transport, nil)
	w.ok(err)
	w.Cleanup(func() { _ = session.Close() })
	return func() error {
		res, err := session.CallTool(w.Context(), &mcp.CallToolParams{
			Name: "run_command", Arguments: map[string]any{"sandbox_id": box, "argv": []string{"true"}},
		})
		if err == nil && res.IsError {
			err = fmt.Errorf("%v", res.Content)
		}
		return err
	}
}
