package clients

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/client"
	"github.com/agentdock/agentdock/internal/testenv"
)

// TestMCP runs "agentdock mcp" against "agentdock up" on real sandboxes: with the
// client of the SDK, and with two that others made.
func TestMCP(t *testing.T) {
	images := defaultImage(t)
	node := installNode(t)
	up := startUp(t, images)
	program := filepath.Join(testenv.Binaries(t), "agentdock")
	t.Run("sdk", func(t *testing.T) { testMCP(t, program, up) })
	t.Run("others", func(t *testing.T) {
		w := &world{T: t, node: node, environ: []string{
			"AGENTDOCK=" + program, "AGENTDOCK_URL=" + up.url, "AGENTDOCK_API_KEY=" + up.key, "PATH=" + filepath.Dir(node) + ":" + os.Getenv("PATH"),
		}}
		work := t.TempDir()
		w.ok(os.CopyFS(work, os.DirFS("mcp")))
		w.ok(os.WriteFile(filepath.Join(work, "checks.mjs"), read(t, "checks.mjs"), 0o644))
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		install(ctx, t, work)
		passed := w.check(ctx, work)
		if want := promised(t, "@modelcontextprotocol/inspector") + "+" + promised(t, "@modelcontextprotocol/conformance"); !t.Failed() &&
			fmt.Sprintf("%d+%d", passed-conformanceScenarios, conformanceScenarios) != want {
			t.Errorf("%d checks, %d of them conformance, and the README says %s", passed, conformanceScenarios, want)
		}
	})
}

// conformanceScenarios are those of the conformance suite in mcp/run.mjs.
const conformanceScenarios = 8

// agent is a session with "agentdock mcp" as an agent program has it.
type agent struct {
	*testing.T
	*mcp.ClientSession
	progress chan float64
	program  *exec.Cmd
}

func newAgent(t *testing.T, program, url, key string) *agent {
	t.Helper()
	a := &agent{T: t, progress: make(chan float64, 100), program: exec.Command(program, "mcp")}
	a.program.Env = []string{"HOME=" + t.TempDir(), "AGENTDOCK_URL=" + url, "AGENTDOCK_API_KEY=" + key}
	a.program.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	a.program.Stderr = os.Stderr
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			select {
			case a.progress <- r.Params.Progress:
			default:
			}
		},
	})
	var err error
	a.ClientSession, err = c.Connect(t.Context(), &mcp.CommandTransport{Command: a.program, TerminateDuration: time.Minute}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a
}

type fields map[string]any

// use calls a tool that works, and returns its structured content.
func (a *agent) use(tool string, args fields) (out fields) {
	a.Helper()
	res, err := a.CallTool(a.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		a.Fatal(err)
	}
	data, err := json.Marshal(res.StructuredContent)
	if err != nil || res.IsError || json.Unmarshal(data, &out) != nil {
		a.Fatalf("%s: %s %s", tool, said(res), data)
	}
	return out
}

// fails calls a tool that does not work, and returns what it says.
func (a *agent) fails(tool string, args fields) string {
	a.Helper()
	res, err := a.CallTool(a.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		a.Fatal(err)
	}
	if !res.IsError || !strings.HasPrefix(said(res), "cannot ") {
		a.Errorf("%s%v: %s", tool, args, said(res))
	}
	return said(res)
}

func said(res *mcp.CallToolResult) string {
	var all string
	for _, c := range res.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			all += text.Text
		}
	}
	return all
}

func (a *agent) python(box, code string) fields {
	a.Helper()
	return a.use("run_command", fields{"sandbox_id": box, "argv": []string{"python3", "-c", code}})
}

// processes are the command lines in a sandbox, as it sees them.
func (a *agent) processes(box string) string {
	a.Helper()
	out, _ := a.python(box, `import glob
for name in glob.glob("/proc/[0-9]*/cmdline"):
    try: print(open(name).read().replace("\0", " "))
    except OSError: pass`)["stdout"].(string)
	return out
}

// eventually waits until something holds.
func (a *agent) eventually(what string, holds func() bool) {
	a.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			a.Fatalf("never: %s", what)
		}
	}
}

func testMCP(t *testing.T, program string, up served) {
	admin, err := client.New(up.url, client.WithAPIKey(up.key))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.CloseIdleConnections)
	tenant, err := admin.CreateTenant(t.Context(), api.TenantSpec{Name: "other"})
	if err != nil {
		t.Fatal(err)
	}
	other, err := admin.CreateKey(t.Context(), tenant.ID, api.KeySpec{Name: "other", Scopes: []api.Scope{"sandboxes:read", "sandboxes:write"}})
	if err != nil {
		t.Fatal(err)
	}
	a := newAgent(t, program, up.url, up.key)
	box, _ := a.use("sandbox_create", nil)["sandbox_id"].(string)
	in := func(t *testing.T) *agent { here := *a; here.T = t; return &here }

	t.Run("10 MB of output in one line", func(t *testing.T) {
		got := in(t).use("run_command", fields{"sandbox_id": box, "max_output_bytes": 10_000,
			"argv": []string{"python3", "-c", `print("世" * 3_400_000, end="")`}})
		text, _ := got["stdout"].(string)
		head, rest, _ := strings.Cut(text, "\n[… ")
		_, rest, _ = strings.Cut(rest, "…]\n")
		tail, lost, found := strings.Cut(rest, "\n[… ")
		shown := float64(len(head) + len(tail))
		if !found || !strings.Contains(lost, "were not kept") || got["stdout_bytes"] != 10_200_000.0 || got["truncated"] != true ||
			got["altered"] != false || shown < 9_900 || shown > 10_000 || shown+got["stdout_omitted_bytes"].(float64) != 10_200_000 {
			t.Errorf("%d bytes are shown; %q…; %v", len(text), text[:60], fields{"omitted": got["stdout_omitted_bytes"], "altered": got["altered"]})
		}
	})
	t.Run("hostile bytes", func(t *testing.T) {
		got := in(t).python(box, `import sys; sys.stdout.buffer.write(b"\x1b]0;owned\x07\xff\x00\r" + "\u202e".encode())`)
		if got["stdout"] != "␛]0;owned␇\uFFFD␀␍\uFFFD" || got["altered"] != true {
			t.Errorf("%q", got["stdout"])
		}
	})
	t.Run("a binary file", func(t *testing.T) {
		in(t).python(box, `open("bin", "wb").write(bytes(range(256)) * 1000); open("\x1b[2J\nx", "w")`)
		got := in(t).use("read_file", fields{"sandbox_id": box, "path": "bin", "offset": 256, "max_bytes": 257})
		if got["encoding"] != "base64" || got["bytes"] != 257.0 || got["size"] != 256_000.0 || got["truncated"] != true || got["next_offset"] != 513.0 ||
			!strings.HasPrefix(got["content"].(string), "AAECAwQF") {
			t.Errorf("%v", got)
		}
		list := in(t).use("list_files", fields{"sandbox_id": box})
		if list["altered"] != true || !strings.Contains(fmt.Sprint(list["entries"]), "/workspace/␛[2J␊x") {
			t.Errorf("%v", list)
		}
	})
	t.Run("a text that is read in pieces", func(t *testing.T) {
		in(t).use("write_file", fields{"sandbox_id": box, "path": "text", "content": "世世"})
		got := in(t).use("read_file", fields{"sandbox_id": box, "path": "text", "max_bytes": 4})
		rest := in(t).use("read_file", fields{"sandbox_id": box, "path": "text", "offset": got["next_offset"]})
		if got["content"] != "世" || got["truncated"] != true || rest["content"] != "世" || rest["truncated"] != false {
			t.Errorf("%v, %v", got, rest)
		}
	})
	t.Run("bad paths", func(t *testing.T) {
		in(t).fails("read_file", fields{"sandbox_id": box, "path": "../../etc/shadow"})
		in(t).fails("read_file", fields{"sandbox_id": box, "path": "../no-such-file"})
		in(t).fails("read_file", fields{"sandbox_id": box, "path": "."})
		in(t).fails("read_file", fields{"sandbox_id": box, "path": "/dev/zero"})
		in(t).fails("read_file", fields{"sandbox_id": box, "path": "a\x00b"})
		in(t).fails("write_file", fields{"sandbox_id": box, "path": "a\x00b", "content": ""})
		in(t).fails("list_files", fields{"sandbox_id": box, "path": "a\x00b"})
		in(t).fails("run_command", fields{"sandbox_id": box, "argv": []string{"echo", "a\x00b"}})
		in(t).fails("run_command", fields{"sandbox_id": box, "argv": []string{"pwd"}, "dir": "../.."})
	})
	t.Run("the interpreter", func(t *testing.T) { testInterpreter(in(t), box) })
	t.Run("cancelled, killed, and told meanwhile", func(t *testing.T) { testCancel(in(t), box) })
	t.Run("a wrong key", func(t *testing.T) {
		if got := newAgent(t, program, up.url, "adk_wrong").fails("sandbox_list", nil); !strings.Contains(got, "AGENTDOCK_API_KEY") {
			t.Error(got)
		}
	})
	t.Run("another tenant's sandbox looks like none", func(t *testing.T) {
		theirs, nobody := newAgent(t, program, up.url, other.Secret), strings.Repeat("0", 26)
		for _, tool := range []string{"run_command", "run_code", "read_file", "write_file", "list_files", "sandbox_kill"} {
			args := map[string]fields{"run_command": {"argv": []string{"true"}}, "run_code": {"code": "1"}, "read_file": {"path": "x"},
				"write_file": {"path": "x", "content": "x"}}[tool]
			if args == nil {
				args = fields{}
			}
			args["sandbox_id"] = box
			got := strings.ReplaceAll(theirs.fails(tool, args), box, "ID")
			args["sandbox_id"] = nobody
			if want := strings.ReplaceAll(theirs.fails(tool, args), nobody, "ID"); got != want {
				t.Errorf("%s: %q, and of none %q", tool, got, want)
			}
		}
	})
	t.Run("a dead sandbox", func(t *testing.T) {
		dead, _ := in(t).use("sandbox_create", nil)["sandbox_id"].(string)
		in(t).use("sandbox_kill", fields{"sandbox_id": dead})
		for _, tool := range []string{"run_command", "run_code", "list_files"} {
			args := map[string]fields{"run_command": {"argv": []string{"true"}}, "run_code": {"code": "1"}, "list_files": {}}[tool]
			args["sandbox_id"] = dead
			if got := in(t).fails(tool, args); !strings.Contains(got, "has ended: cancelled") || !strings.Contains(got, "sandbox_create") {
				t.Error(got)
			}
		}
	})
	t.Run("the end of the session", func(t *testing.T) {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if now, err := admin.Sandbox(t.Context(), box); err != nil || now.State != api.SandboxStateEnded {
			t.Errorf("the sandbox is %+v, %v", now, err)
		}
	})
}

func testInterpreter(a *agent, box string) {
	a.Helper()
	run := func(args fields) fields { args["sandbox_id"] = box; return a.use("run_code", args) }
	if got := run(fields{"code": "x = 40\nprint('p')\nx + 2"}); got["outcome"] != "finished" || got["stdout"] != "p\n" || fmt.Sprint(got["results"]) != "[42]" {
		a.Errorf("%v", got)
	}
	got := run(fields{"code": "raise ValueError('\x1b[1m')"})
	if e, _ := got["error"].(map[string]any); got["outcome"] != "raised" || e["name"] != "ValueError" || e["value"] != "␛[1m" || got["altered"] != true {
		a.Errorf("%v", got)
	}
	if got := run(fields{"code": "import time\ntime.sleep(1000)", "timeout_seconds": 1}); got["outcome"] != "wall_clock" {
		a.Errorf("%v", got)
	}
	if got := run(fields{"code": "x"}); fmt.Sprint(got["results"]) != "[40]" {
		a.Errorf("after an interrupt: %v", got)
	}
	if got := run(fields{"code": "import os\nos._exit(7)"}); got["outcome"] != "interpreter_ended" || !strings.Contains(got["explanation"].(string), "exit code 7") {
		a.Errorf("%v", got)
	}
	if got := run(fields{"code": "x"}); got["outcome"] != "raised" || got["execution"] != 1.0 {
		a.Errorf("after its end: %v", got)
	}
	run(fields{"code": "x = 1"})
	if got := run(fields{"code": "x", "restart": true}); got["outcome"] != "raised" || got["execution"] != 1.0 {
		a.Errorf("after a restart: %v", got)
	}
	if got := run(fields{"code": "print('y' * 3_000_000)"}); got["truncated"] != true {
		a.Errorf("%v", got["outcome"])
	}
}

func testCancel(a *agent, box string) {
	a.Helper()
	ctx, cancel := context.WithCancel(a.Context())
	defer cancel()
	params := &mcp.CallToolParams{Name: "run_command", Arguments: fields{"sandbox_id": box, "argv": []string{"sleep", "98765"}}}
	params.SetProgressToken(7)
	returned := make(chan error, 1)
	go func() {
		_, err := a.CallTool(ctx, params)
		returned <- err
	}()
	a.eventually("the command runs", func() bool { return strings.Contains(a.processes(box), "sleep 98765") })
	select {
	case <-a.progress:
	case <-time.After(time.Minute):
		a.Error("no progress was told")
	}
	cancel()
	if err := <-returned; err == nil {
		a.Error("a cancelled call has a result")
	}
	a.eventually("the command is gone", func() bool { return !strings.Contains(a.processes(box), "sleep 98765") })
}
