package mcp

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agentdock/agentdock/internal/mcpserver"
)

// TestToolsAreDescribed holds what a model chooses by: each tool says what it is
// for, has hints and two schemas, and says of every field what it means.
func TestToolsAreDescribed(t *testing.T) {
	w := newWorld(t)
	s := w.stdio(w.key)
	readOnly := map[string]bool{"sandbox_list": true, "read_file": true, "list_files": true, "get_job": true}
	seen := map[string]bool{}
	for tool, err := range s.Tools(t.Context(), nil) {
		w.ok(err)
		seen[tool.Name] = true
		a := tool.Annotations
		if tool.Description == "" || a == nil || a.Title == "" || a.OpenWorldHint == nil || *a.OpenWorldHint || a.ReadOnlyHint != readOnly[tool.Name] {
			t.Errorf("%s: %q, %+v", tool.Name, tool.Description, a)
		}
		for _, schema := range []any{tool.InputSchema, tool.OutputSchema} {
			described(t, tool.Name, schema)
		}
	}
	for _, name := range []string{"sandbox_create", "sandbox_list", "sandbox_kill", "run_command", "run_code", "read_file", "write_file",
		"list_files", "submit_job", "get_job"} {
		if !seen[name] {
			t.Errorf("there is no %s", name)
		}
	}
	if len(seen) != 10 {
		t.Errorf("tools: %v", seen)
	}
}

func described(t *testing.T, tool string, schema any) {
	t.Helper()
	object, ok := schema.(map[string]any)
	if !ok || object["type"] != "object" {
		t.Errorf("%s has the schema %v", tool, schema)
		return
	}
	properties, _ := object["properties"].(map[string]any)
	for name, p := range properties {
		field, _ := p.(map[string]any)
		kind, isText := field["type"].(string)
		if field["description"] == nil || field["description"] == "" || !isText && field["type"] == nil {
			t.Errorf("%s: %s is %v (%s)", tool, name, p, kind)
		}
	}
}

func TestACommand(t *testing.T) {
	w := newWorld(t)
	s := w.stdio(w.key)
	box := s.sandbox()
	got := s.use("run_command", map[string]any{"sandbox_id": box, "argv": []string{"cat"}, "stdin": "a<b"})
	if got["outcome"] != "exited" || got["exit_code"] != 0.0 || got["stdout"] != "a<b" || got["truncated"] != false {
		t.Errorf("%v", got)
	}
	// What is hostile in its output is visible, and what is left out is counted.
	got = s.use("run_command", map[string]any{"sandbox_id": box, "argv": []string{"noise"}, "max_output_bytes": 1000})
	out, _ := got["stdout"].(string)
	if got["exit_code"] != 3.0 || got["truncated"] != true || got["altered"] != true || got["stdout_bytes"] != 100_014.0 ||
		got["stdout_omitted_bytes"] != 99_014.0 || !strings.HasPrefix(out, "␛]0;owned␇\uFFFDxxx") || !strings.HasSuffix(out, "xend") ||
		!strings.Contains(out, "99014 bytes left out") {
		t.Errorf("%v", got)
	}
	got = s.use("run_command", map[string]any{"sandbox_id": box, "argv": []string{"no-such-program"}})
	if got["outcome"] != "not_started" || got["exit_code"] != nil || got["explanation"] == "" {
		t.Errorf("%v", got)
	}
	got = s.use("run_command", map[string]any{"sandbox_id": box, "argv": []string{"sleep", "1000"}, "timeout_seconds": 1})
	if got["outcome"] != "wall_clock" {
		t.Errorf("%v", got)
	}
	w.running(box, false)
}

// TestErrorsSayWhatToDo: an error of a tool is a sentence, and another tenant's
// sandbox is one that does not exist.
func TestErrorsSayWhatToDo(t *testing.T) {
	w := newWorld(t)
	s, theirs := w.stdio(w.key), w.stdio(w.other)
	box, dead := s.sandbox(), s.sandbox()
	s.use("sandbox_kill", map[string]any{"sandbox_id": dead})
	run := func(id string, more ...any) map[string]any {
		args := map[string]any{"sandbox_id": id, "argv": []string{"true"}}
		for i := 0; i < len(more); i += 2 {
			args[more[i].(string)] = more[i+1]
		}
		return args
	}
	unknown := strings.Repeat("0", 26)
	for name, c := range map[string]struct {
		s    *session
		tool string
		args map[string]any
		says []string
	}{
		"an id nobody has":     {s, "run_command", run(unknown), []string{"cannot run the command: ", "sandbox_create", "sandbox_list"}},
		"another tenant's":     {theirs, "run_command", run(box), []string{"cannot run the command: ", "sandbox_create"}},
		"another's, kill":      {theirs, "sandbox_kill", map[string]any{"sandbox_id": box}, []string{"cannot end the sandbox: ", "sandbox_list"}},
		"another's, code":      {theirs, "run_code", map[string]any{"sandbox_id": box, "code": "1"}, []string{"cannot run the code: "}},
		"a dead one":           {s, "run_command", run(dead), []string{"has ended: cancelled", "sandbox_create"}},
		"an id with a path":    {s, "run_command", run("../../v1/jobs"), []string{"cannot run the command: "}},
		"no program":           {s, "run_command", map[string]any{"sandbox_id": box}, []string{"it names no program", "give argv"}},
		"a shell":              {s, "run_command", map[string]any{"sandbox_id": box, "script": "true"}, []string{"may not run shells"}},
		"a directory above":    {s, "run_command", run(box, "dir", ".."), []string{"cannot run the command: "}},
		"little output":        {s, "run_command", run(box, "max_output_bytes", 1), []string{"give a number from 256"}},
		"time that ran out":    {s, "run_command", run(box, "timeout_seconds", -1), []string{"timeout_seconds is -1"}},
		"a field nobody knows": {s, "run_command", run(box, "background", true), []string{"cannot use the arguments: ", "background", "input schema"}},
		"a number for a list":  {s, "run_command", run(box, "argv", 7), []string{"cannot use the arguments: "}},
		"no python":            {s, "run_code", map[string]any{"sandbox_id": box, "code": "1"}, []string{"no python3", "default image"}},
		"an image not there":   {s, "sandbox_create", map[string]any{"image": "\x1b[2J"}, []string{"cannot make a sandbox: "}},
		"an unknown job":       {s, "get_job", map[string]any{"job_id": "00000000-0000-0000-0000-000000000000"}, []string{"cannot look at the job: ", "submit_job"}},
		"a job of nothing":     {s, "submit_job", map[string]any{"commands": [][]string{}}, []string{"it has no commands"}},
	} {
		got := c.s.fails(c.tool, c.args)
		for _, want := range c.says {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		if strings.ContainsAny(got, "\x00\x1b\n") || len(got) > 1000 {
			t.Errorf("%s: %q", name, got)
		}
	}
	// To the letter, but for the id.
	ours := strings.ReplaceAll(s.fails("run_command", run(unknown)), unknown, "ID")
	if other := strings.ReplaceAll(theirs.fails("run_command", run(box)), box, "ID"); other != ours {
		t.Errorf("unknown: %q; another tenant's: %q", ours, other)
	}
}

func TestAWrongKeyIsToldInTools(t *testing.T) {
	w := newWorld(t)
	s := w.stdio("adk_wrong")
	if got := s.fails("sandbox_list", nil); !strings.Contains(got, "cannot list the sandboxes: ") || !strings.Contains(got, "AGENTDOCK_API_KEY") ||
		strings.Contains(got, "adk_wrong") {
		t.Errorf("%q", got)
	}
}

// overBoth runs a case over pipes and over HTTP.
func overBoth(t *testing.T, test func(t *testing.T, w *world, s *session)) {
	t.Helper()
	t.Run("stdio", func(t *testing.T) {
		w := newWorld(t)
		test(t, w, w.stdio(w.key))
	})
	t.Run("http", func(t *testing.T) {
		w := newWorld(t)
		test(t, w, w.http(w.serve(nil), w.key))
	})
}

// TestCancelledCallsKill: the command of a call that its client cancels is killed.
func TestCancelledCallsKill(t *testing.T) {
	overBoth(t, func(t *testing.T, w *world, s *session) {
		box := s.sandbox()
		ctx, cancel := context.WithCancel(t.Context())
		returned := make(chan error, 1)
		go func() {
			_, err := s.CallTool(ctx, &sdk.CallToolParams{Name: "run_command", Arguments: map[string]any{"sandbox_id": box, "argv": []string{"sleep", "1000"}}})
			returned <- err
		}()
		w.running(box, true)
		cancel()
		if err := <-returned; err == nil {
			t.Error("a cancelled call returned a result")
		}
		w.running(box, false)
		execs, err := w.client(w.key).Execs(t.Context(), box)
		w.ok(err)
		if len(execs) != 1 || execs[0].Result.Outcome.Kind != "cancelled" {
			t.Errorf("%+v", execs)
		}
		if got := s.use("run_command", map[string]any{"sandbox_id": box, "argv": []string{"true"}}); got["exit_code"] != 0.0 {
			t.Errorf("afterwards: %v", got)
		}
	})
}

// TestProgress: who asks for it hears of a command that goes on.
func TestProgress(t *testing.T) {
	overBoth(t, func(t *testing.T, w *world, s *session) {
		box := s.sandbox()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		params := &sdk.CallToolParams{Name: "run_command", Arguments: map[string]any{"sandbox_id": box, "argv": []string{"sleep", "1000"}}}
		params.SetProgressToken("mine")
		returned := make(chan struct{})
		go func() {
			_, _ = s.CallTool(ctx, params)
			close(returned)
		}()
		last := -1.0
		for range 3 {
			select {
			case p := <-s.progress:
				if p.ProgressToken != "mine" || p.Progress <= last || !strings.Contains(p.Message, "running for") {
					t.Errorf("%+v after %v", p, last)
				}
				last = p.Progress
			case <-time.After(20 * time.Second):
				t.Fatal("no progress")
			}
		}
		cancel()
		<-returned
		w.running(box, false)
	})
}

// TestTheEndOfASession: over pipes it ends what it has made, and what runs; over
// HTTP it ends what runs, and sandboxes stay.
func TestTheEndOfASession(t *testing.T) {
	for name, end := range map[string]func(*session){
		"the client hangs up": func(s *session) { s.hangUp() },
		"the server stops":    func(s *session) { s.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := w.stdio(w.key)
			box := s.sandbox()
			kept, _ := s.use("sandbox_create", map[string]any{"keep": true})["sandbox_id"].(string)
			for _, id := range []string{box, kept} {
				go func() {
					_, _ = s.CallTool(context.Background(), &sdk.CallToolParams{Name: "run_command", Arguments: map[string]any{"sandbox_id": id, "argv": []string{"sleep", "1000"}}})
				}()
				w.running(id, true)
			}
			end(s)
			select {
			case err := <-s.ended:
				w.ok(err)
				s.ended <- nil
			case <-time.After(30 * time.Second):
				t.Fatal("the session does not end")
			}
			if got := w.state(box); got != "ended" {
				t.Errorf("the sandbox is %s", got)
			}
			if got := w.state(kept); got != "running" {
				t.Errorf("the one to be kept is %s", got)
			}
			w.running(kept, false)
		})
	}
	t.Run("over HTTP", func(t *testing.T) {
		w := newWorld(t)
		url := w.serve(nil)
		s := w.http(url, w.key)
		box := s.sandbox()
		returned := make(chan struct{})
		go func() {
			_, _ = s.CallTool(context.Background(), &sdk.CallToolParams{Name: "run_command", Arguments: map[string]any{"sandbox_id": box, "argv": []string{"sleep", "1000"}}})
			close(returned)
		}()
		w.running(box, true)
		// The client of the SDK waits for its calls before it ends a session; others
		// do not. Nobody else can end it.
		remove := func(key string) int {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, url, nil)
			w.ok(err)
			r.Header.Set("Mcp-Session-Id", s.ID())
			res, err := (&http.Client{Transport: withKey(key)}).Do(r)
			w.ok(err)
			res.Body.Close()
			return res.StatusCode
		}
		if status := remove(w.other); status != http.StatusForbidden {
			t.Errorf("another tenant's DELETE: %d", status)
		}
		w.running(box, true)
		if status := remove(w.key); status != http.StatusNoContent {
			t.Errorf("DELETE: %d", status)
		}
		w.running(box, false)
		<-returned
		if got := w.state(box); got != "running" {
			t.Errorf("the sandbox is %s", got)
		}
	})
}

// TestWhoIsLetIn is about HTTP alone: whose requests are served.
func TestWhoIsLetIn(t *testing.T) {
	w := newWorld(t)
	url := w.serve(func(c *mcpserver.HTTPConfig) { c.Hosts = []string{"mcp.example"} })
	required := w.serve(func(c *mcpserver.HTTPConfig) { c.KeyRequired = true })
	mine := w.http(url, w.key)
	const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
	for name, c := range map[string]struct {
		url, key string
		header   map[string]string
		want     int
	}{
		"a key":                        {url, w.key, nil, 200},
		"another name that was set":    {url, w.key, map[string]string{"Host": "mcp.example"}, 200},
		"its own page":                 {url, w.key, map[string]string{"Origin": strings.TrimSuffix(url, mcpserver.Path)}, 200},
		"a wrong key":                  {url, "adk_wrong", nil, 401},
		"no key":                       {url, "", nil, 401}, // the API says so: it asks for one
		"no key where one is required": {required, "", nil, 401},
		"another name":                 {url, w.key, map[string]string{"Host": "evil.example"}, 403},
		"a name that begins like ours": {url, w.key, map[string]string{"Host": "localhost.evil.example"}, 403},
		"another page":                 {url, w.key, map[string]string{"Origin": "http://evil.example"}, 403},
		"a page of another port":       {url, w.key, map[string]string{"Origin": "http://127.0.0.1:1"}, 403},
		"a page without a name":        {url, w.key, map[string]string{"Origin": "null"}, 403},
		"another site":                 {url, w.key, map[string]string{"Sec-Fetch-Site": "cross-site"}, 403},
		"another path":                 {strings.TrimSuffix(url, mcpserver.Path) + "/", w.key, nil, 404},
		"another's session":            {url, w.other, map[string]string{"Mcp-Session-Id": mine.ID()}, 403},
		"a session without its key":    {url, "", map[string]string{"Mcp-Session-Id": mine.ID()}, 403},
		"no session":                   {url, w.key, map[string]string{"Mcp-Session-Id": "x"}, 404},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.url, strings.NewReader(initialize))
		w.ok(err)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		for k, v := range c.header {
			if k == "Host" {
				r.Host = v
				continue
			}
			r.Header.Set(k, v)
		}
		res, err := (&http.Client{Transport: withKey(c.key)}).Do(r)
		w.ok(err)
		text, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != c.want || res.StatusCode == 401 && res.Header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s: %d, want %d: %s", name, res.StatusCode, c.want, text)
		}
	}
	// Keys are not mixed up: each session has its own tenant.
	theirs := w.http(url, w.other)
	box := mine.sandbox()
	if got := fmt.Sprint(theirs.use("sandbox_list", nil)["sandboxes"]); strings.Contains(got, box) {
		t.Errorf("another tenant sees %s", got)
	}
	if got := fmt.Sprint(mine.use("sandbox_list", nil)["sandboxes"]); !strings.Contains(got, box) {
		t.Errorf("its own is not in %s", got)
	}
}

// A paused sandbox is alive, and holds its part of the quota.
func TestPausedSandboxesAreListed(t *testing.T) {
	w := newWorld(t)
	s := w.stdio(w.key)
	box := s.sandbox()
	_, err := w.client(w.key).PauseSandbox(t.Context(), box)
	w.ok(err)
	if got := fmt.Sprint(s.use("sandbox_list", nil)["sandboxes"]); !strings.Contains(got, box) || !strings.Contains(got, "state:paused") {
		t.Errorf("of a paused sandbox the list says %s", got)
	}
}

// TestOneKeyLeavesSessionsToOthers: who begins sessions without end is refused, until
// one of them ends, and others are not.
func TestOneKeyLeavesSessionsToOthers(t *testing.T) {
	w := newWorld(t)
	url := w.serve(func(c *mcpserver.HTTPConfig) { c.KeyRequired = true })
	ask := func(key, method, session string) (status int, begun string) {
		body := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"many","version":"1"}}}`
		r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		w.ok(err)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		if session != "" {
			r.Header.Set("Mcp-Session-Id", session)
		}
		res, err := (&http.Client{Transport: withKey(key)}).Do(r)
		w.ok(err)
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
		return res.StatusCode, res.Header.Get("Mcp-Session-Id")
	}
	const tooMany = 1000
	last, n := "", 0
	for n < tooMany {
		status, session := ask(w.key, http.MethodPost, "")
		if status == http.StatusServiceUnavailable {
			break
		}
		if status != http.StatusOK || session == "" {
			t.Fatalf("session %d: status %d", n, status)
		}
		last, n = session, n+1
	}
	if n == tooMany {
		t.Errorf("one key has all %d sessions", n)
	}
	if status, _ := ask(w.other, http.MethodPost, ""); status != http.StatusOK {
		t.Errorf("another key is answered with %d", status)
	}
	if status, _ := ask(w.key, http.MethodDelete, last); status >= 300 {
		t.Errorf("the end of a session: %d", status)
	}
	if status, _ := ask(w.key, http.MethodPost, ""); status != http.StatusOK {
		t.Errorf("after one has ended the next is answered with %d", status)
	}
}

func TestAJobThatWaits(t *testing.T) {
	w := newWorld(t)
	s := w.stdio(w.key)
	job := s.use("submit_job", map[string]any{"commands": [][]string{{"make", "test"}}, "labels": map[string]string{"a": "b"}})
	id, _ := job["job_id"].(string)
	begin := time.Now()
	got := s.use("get_job", map[string]any{"job_id": id, "wait_seconds": 1})
	if got["state"] != "queued" || time.Since(begin) < time.Second {
		t.Errorf("after %s: %v", time.Since(begin), got)
	}
}
