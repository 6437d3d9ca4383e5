package httpapi

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/internal/control"
	"github.com/agentdock/agentdock/internal/tenant"
)

// TestHead: what asks for a GET's headers alone, as monitors do, gets them.
func TestHead(t *testing.T) {
	r := newRig(t)
	for path, want := range map[string]int{
		"/healthz": 200, "/readyz": 200, "/metrics": 200, "/v1/jobs": 200, "/v1/jobs?limit=0": 400, "/v1/jobs/x": 404, "/v2": 404,
		"/v1/jobs/x/log": 405, "/v1/jobs/x/artifacts/content": 405, "/v1/jobs/x/cancel": 405,
	} {
		a := r.send("HEAD", path, r.admin, nil)
		if a.status != want || len(a.body) > 0 {
			t.Errorf("%s: %d with %d bytes, want %d", path, a.status, len(a.body), want)
		}
		if get := r.send("GET", path, r.admin, nil); want != 405 && get.header.Get("Content-Type") != a.header.Get("Content-Type") {
			t.Errorf("%s: %q, and GET gives %q", path, a.header.Get("Content-Type"), get.header.Get("Content-Type"))
		}
	}
	if a := r.send("HEAD", "/v1/jobs", "adk_wrong", nil); a.status != 401 {
		t.Errorf("without a key: %d", a.status)
	}
}

func TestService(t *testing.T) {
	r := newRig(t, func(_ *Config, c *control.Config) {
		c.ReceiptKeys = []control.ReceiptKey{{ID: "k", Algorithm: "ed25519", PEM: "-----BEGIN PUBLIC KEY-----"}}
	})
	if a := r.send("GET", "/healthz", "", nil); a.status != 200 {
		t.Errorf("healthz: %d", a.status)
	}
	if a := r.send("GET", "/readyz", "", nil); a.status != 200 || !strings.Contains(string(a.body), `"record":"ok"`) {
		t.Errorf("readyz: %d %s", a.status, a.body)
	}
	if a := r.send("GET", "/v1/receipt-keys", "", nil); !strings.Contains(string(a.body), "BEGIN PUBLIC KEY") {
		t.Errorf("receipt keys: %s", a.body)
	}
	if a := r.send("GET", "/metrics", r.admin, nil); a.status != 200 || !strings.Contains(string(a.body), "agentdock_api_log_streams 0") {
		t.Errorf("metrics: %d %s", a.status, a.body)
	}
	if err := r.record.Close(); err != nil {
		t.Fatal(err)
	}
	if a := r.send("GET", "/readyz", "", nil); a.status != 503 || !strings.Contains(string(a.body), `"record":"unavailable"`) {
		t.Errorf("readyz without a record: %d %s", a.status, a.body)
	}
	if a := r.send("GET", "/healthz", "", nil); a.status != 200 {
		t.Errorf("healthz without a record: %d", a.status)
	}
}

// until reads what a raw connection gets, and for how long.
func until(t *testing.T, conn net.Conn) (string, time.Duration) {
	t.Helper()
	begin := time.Now()
	if err := conn.SetReadDeadline(begin.Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(conn)
	if n, ok := err.(net.Error); ok && n.Timeout() {
		t.Fatal("the connection was kept for 10 s")
	}
	return string(text), time.Since(begin)
}

func TestSlowAndLargeRequestsAreCut(t *testing.T) {
	r := newRig(t, func(c *Config, _ *control.Config) {
		c.Timing.Header, c.Timing.Body, c.Timing.Idle = 200*time.Millisecond, 300*time.Millisecond, 200*time.Millisecond
	})
	_, key := r.tenant("a", tenant.Quota{}, tenant.JobsRead, tenant.JobsWrite)
	post := "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n"
	for name, tc := range map[string]struct{ request, answer string }{
		"nothing":                  {"", ""},
		"half a head":              {"GET /healthz HTTP/1.1\r\nHost: x\r\nX-", ""},
		"a body that stops":        {post + "Authorization: Bearer " + key + "\r\n\r\n{\"sour", "HTTP/1.1 400"},
		"one without a key":        {post + "\r\n{\"sour", "HTTP/1.1 401"},
		"an upload that stops":     {"POST /v1/uploads HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-tar\r\nContent-Length: 1000\r\nAuthorization: Bearer " + key + "\r\n\r\nx", "HTTP/1.1 400"},
		"a large head":             {"GET /healthz HTTP/1.1\r\nHost: x\r\nX-A: " + strings.Repeat("x", 64<<10) + "\r\n\r\n", "HTTP/1.1 431"},
		"two lengths":              {"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", "HTTP/1.1 400"},
		"idle after a request":     {"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200"},
		"no host":                  {"GET /healthz HTTP/1.1\r\n\r\n", "HTTP/1.1 400"},
		"a target that is no path": {"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := mustDial(t, r.url)
			fmt.Fprint(conn, tc.request)
			got, took := until(t, conn)
			if !strings.HasPrefix(got, tc.answer) || tc.answer == "" && got != "" && !strings.HasPrefix(got, "HTTP/1.1 4") {
				t.Errorf("got %q", got)
			}
			if took > 5*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// A stream is not bound by the limits of other requests.
func TestStreamsOutliveTheLimits(t *testing.T) {
	r := newRig(t, func(c *Config, _ *control.Config) {
		c.Timing.Body, c.Timing.Answer, c.Timing.Heartbeat = 50*time.Millisecond, 50*time.Millisecond, 20*time.Millisecond
	})
	_, key := r.tenant("a", tenant.Quota{}, tenant.JobsRead, tenant.JobsWrite)
	job := r.job(key, trueJob())
	s := r.follow(key, job.ID, "", forms["NDJSON"])
	for range 20 { // 400 ms, eight times the limit
		if e, err := s.next(); err != nil || e.Type != "heartbeat" {
			t.Fatalf("%+v, %v", e, err)
		}
	}
	w := r.work()
	w.write("stdout", "x")
	w.finish()
	for {
		e, err := s.next()
		if err != nil {
			t.Fatal(err)
		}
		if e.End != nil {
			break
		}
	}
}

func TestPanics(t *testing.T) {
	r := newRig(t)
	served := r.api.router
	r.api.router = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a defect") })
	a := r.send("GET", "/healthz", "", nil)
	if p := a.problem(t); p.Code != api.ProblemCodeInternal || strings.Contains(string(a.body), "defect") {
		t.Errorf("got %s", a.body)
	}
	if !strings.Contains(r.log.String(), "a defect") || !strings.Contains(r.log.String(), a.header.Get("X-Request-Id")) {
		t.Errorf("the log has %s", r.log.String())
	}
	r.api.router = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 10_000))
		panic("in the middle")
	})
	res, err := http.Get(r.url + "/healthz")
	if err == nil {
		_, err = io.ReadAll(res.Body)
		res.Body.Close()
	}
	if err == nil {
		t.Error("half of an answer looks like a whole")
	}
	r.api.router = served
	if a := r.send("GET", "/healthz", "", nil); a.status != 200 {
		t.Errorf("after the panics: %d", a.status)
	}
}

func TestTheLogHasNoSecrets(t *testing.T) {
	r := newRig(t)
	_, key := r.tenant("a", tenant.Quota{}, tenant.JobsRead, tenant.JobsWrite)
	spec := trueJob()
	spec.Env = map[string]string{"X": "hunter2"}
	r.job(key, spec)
	r.send("GET", "/v1/jobs?label=token%3Dhunter2", key, nil)
	r.send("GET", "/v1/jobs?token=hunter2", key, nil)
	r.send("GET", "/v1/whoami", "hunter2", nil, header{"Cookie", "hunter2"}, header{"X-Api-Key", "hunter2"}, header{"User-Agent", "hunter2"})
	out := r.log.String()
	if strings.Contains(out, "hunter2") || strings.Contains(out, key[12:]) {
		t.Errorf("the log has a secret: %s", out)
	}
	if strings.Count(out, `"msg":"request"`) != 4 || !strings.Contains(out, `"operation":"createJob"`) || !strings.Contains(out, `"tenant":"`) {
		t.Errorf("the log has %s", out)
	}
}

func TestDevModeListensOnLoopbackOnly(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", "[::]:0", ":0"} {
		l, err := Listen(AuthDev, address)
		if err == nil {
			l.Close()
			t.Errorf("it listens on %s", address)
			continue
		}
		if !strings.Contains(err.Error(), "AUTH_MODE=dev") || !strings.Contains(err.Error(), "127.0.0.1") {
			t.Errorf("%s: %v", address, err)
		}
	}
	if _, err := ParseAuthMode("none"); err == nil {
		t.Error("none is a mode")
	}
	if m, err := ParseAuthMode(""); err != nil || m != AuthAPIKey {
		t.Errorf("the default is %q, %v", m, err)
	}
	open, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	a, err := New(Config{Auth: AuthDev}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Part(open); err == nil {
		t.Error("a listener that others reach is served")
	}
}

func TestDevModeRefusesWebPages(t *testing.T) {
	r := newRig(t, func(c *Config, _ *control.Config) { c.Auth = AuthDev })
	port := r.url[strings.LastIndexByte(r.url, ':'):]
	for name, tc := range map[string]struct {
		headers []header
		status  int
	}{
		"curl":                     {nil, 200},
		"localhost":                {[]header{{"Host", "localhost" + port}}, 200},
		"another loopback address": {[]header{{"Host", "127.0.0.2"}}, 200},
		"IPv6":                     {[]header{{"Host", "[::1]" + port}}, 200},
		"own page":                 {[]header{{"Host", "localhost" + port}, {"Origin", "http://localhost" + port}, {"Sec-Fetch-Site", "same-origin"}}, 200},
		"address bar":              {[]header{{"Sec-Fetch-Site", "none"}}, 200},
		"rebound name":             {[]header{{"Host", "evil.example" + port}}, 403},
		"rebound, and its origin":  {[]header{{"Host", "evil.example"}, {"Origin", "http://evil.example"}}, 403},
		"looks local":              {[]header{{"Host", "localhost.evil.example"}}, 403},
		"another page":             {[]header{{"Origin", "https://evil.example"}}, 403},
		"a page from a file":       {[]header{{"Origin", "null"}}, 403},
		"another port":             {[]header{{"Host", "localhost" + port}, {"Origin", "http://localhost:1"}}, 403},
		"a form":                   {[]header{{"Sec-Fetch-Site", "cross-site"}}, 403},
		"a subdomain":              {[]header{{"Sec-Fetch-Site", "same-site"}}, 403},
	} {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{"/v1/whoami", "/healthz"} {
				if a := r.send("GET", path, "", nil, tc.headers...); a.status != tc.status {
					t.Errorf("%s: status %d, want %d: %s", path, a.status, tc.status, a.body)
				}
			}
		})
	}
	r.job("", trueJob())
}

// Requests that follow on one connection do not inherit each other's limits.
func TestRequestsOnOneConnection(t *testing.T) {
	r := newRig(t, func(c *Config, _ *control.Config) {
		c.Timing.Body, c.Timing.Answer = 100*time.Millisecond, 100*time.Millisecond
	})
	conn := mustDial(t, r.url)
	in := bufio.NewReader(conn)
	for i := range 4 {
		fmt.Fprint(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
		time.Sleep(110 * time.Millisecond) // longer than both limits
	}
}
