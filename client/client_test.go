package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentdock/agentdock/api"
)

const secret = "adk_secret"

// against makes a client of a service that does as it is told.
func against(t *testing.T, h http.HandlerFunc, options ...Option) *Client {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	c, err := New(server.URL, append([]Option{WithAPIKey(secret), WithBackoff(time.Millisecond, 5*time.Millisecond)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func answer(w http.ResponseWriter, status int, code api.ProblemCode) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(api.Problem{Title: http.StatusText(status), Status: status, Code: code, Detail: "no", RequestID: "r1"})
}

func TestAddresses(t *testing.T) {
	for address, ok := range map[string]bool{
		"https://a.example": true, "https://a.example/": true, "https://a.example/api": true, "http://127.0.0.1:7300": true,
		"http://localhost:1": true, "http://[::1]:1": true,
		"http://a.example": false, "http://127.0.0.1.evil.example": false, "http://localhost.evil.example": false,
		"a.example": false, "ftp://a.example": false, "https://user:pw@a.example": false, "https://a.example?x=1": false, "": false,
		"127.0.0.1:7300": false, "https://user:pw@a.example:port": false,
	} {
		_, err := New(address, WithAPIKey(secret))
		if (err == nil) != ok {
			t.Errorf("%q: %v", address, err)
		}
		if err != nil && strings.Contains(err.Error(), "pw") {
			t.Errorf("the error repeats a password: %v", err)
		}
		if err != nil && !strings.Contains(err.Error(), "give one like") && !strings.Contains(err.Error(), "https") {
			t.Errorf("%q: the error does not say what to give: %v", address, err)
		}
	}
	if _, err := New("http://a.example", WithAPIKey(secret), WithPlainHTTP()); err != nil {
		t.Error(err)
	}
}

func TestTheKeyGoesNowhereElse(t *testing.T) {
	var elsewhere atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	same := strings.Replace(other.URL, "127.0.0.1", "localhost", 1)
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, to := range []string{other.URL, same, "https://127.0.0.1/"} {
			c := against(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", to)
				w.WriteHeader(status)
			})
			if _, err := c.WhoAmI(t.Context()); !errors.Is(err, errRedirected) {
				t.Errorf("%d to %s: %v", status, to, err)
			}
			if _, err := c.CreateJob(t.Context(), api.JobSpec{}, ""); !errors.Is(err, errRedirected) {
				t.Errorf("%d to %s: %v", status, to, err)
			}
		}
	}
	if n := elsewhere.Load(); n != 0 {
		t.Errorf("%d requests went elsewhere", n)
	}
}

func TestCallsAreRepeated(t *testing.T) {
	for name, tc := range map[string]struct {
		fail func(w http.ResponseWriter)
		want int64 // requests
	}{
		"unavailable":  {func(w http.ResponseWriter) { answer(w, 503, api.ProblemCodeUnavailable) }, 3},
		"a proxy":      {func(w http.ResponseWriter) { w.WriteHeader(502) }, 3},
		"rate limited": {func(w http.ResponseWriter) { answer(w, 429, api.ProblemCodeRateLimited) }, 3},
		"cut":          {func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, 3},
		"a quota":      {func(w http.ResponseWriter) { answer(w, 429, api.ProblemCodeExhausted) }, 1},
		"invalid":      {func(w http.ResponseWriter) { answer(w, 400, api.ProblemCodeInvalid) }, 1},
		"a defect":     {func(w http.ResponseWriter) { answer(w, 500, api.ProblemCodeInternal) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var n atomic.Int64
			keys := map[string]bool{}
			c := against(t, func(w http.ResponseWriter, r *http.Request) {
				keys[r.Header.Get("Idempotency-Key")] = true
				if n.Add(1) < 3 {
					tc.fail(w)
					return
				}
				w.WriteHeader(201)
				fmt.Fprint(w, `{"id":"x"}`)
			})
			job, err := c.CreateJob(t.Context(), api.JobSpec{}, "")
			if n.Load() != tc.want || len(keys) != 1 || keys[""] {
				t.Errorf("%d requests with the keys %v", n.Load(), keys)
			}
			if (err == nil) != (tc.want == 3) || err == nil && job.ID != "x" {
				t.Errorf("%+v, %v", job, err)
			}
		})
	}
}

func TestWhatIsNotRepeated(t *testing.T) {
	var n atomic.Int64
	c := against(t, func(w http.ResponseWriter, _ *http.Request) { n.Add(1); answer(w, 503, api.ProblemCodeUnavailable) }, WithAttempts(3))
	_, err := c.CreateTenant(t.Context(), api.TenantSpec{Name: "x"})
	if n.Load() != 1 || !Is(err, api.ProblemCodeUnavailable) {
		t.Errorf("%d requests, %v", n.Load(), err)
	}
	if _, err := c.Job(t.Context(), "x"); n.Load() != 4 || !Is(err, api.ProblemCodeUnavailable) {
		t.Errorf("%d requests, %v", n.Load(), err)
	}
}

func TestRetryAfter(t *testing.T) {
	c := against(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "30")
		answer(w, 429, api.ProblemCodeRateLimited)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	begin := time.Now()
	_, err := c.WhoAmI(ctx)
	var e *Error
	if !errors.As(err, &e) || e.RetryAfter != 30*time.Second || time.Since(begin) > 3*time.Second {
		t.Errorf("after %s: %v", time.Since(begin), err)
	}
}

func TestErrors(t *testing.T) {
	c := against(t, func(w http.ResponseWriter, _ *http.Request) { answer(w, 404, api.ProblemCodeNotFound) })
	_, err := c.Job(t.Context(), "x")
	if !Is(err, api.ProblemCodeNotFound) || err.Error() != "no (not_found, request r1)" {
		t.Errorf("got %v", err)
	}
	c = against(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>", 404) })
	if _, err = c.Job(t.Context(), "x"); CodeOf(err) != "" || err.Error() != "Not Found (404)" {
		t.Errorf("got %v", err)
	}
	c = against(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") })
	if _, err = c.Job(t.Context(), "x"); err == nil {
		t.Error("HTML is taken for a job")
	}
	if Is(nil, "") || CodeOf(nil) != "" {
		t.Error("nil is an error")
	}
}

func TestIDsLeadNowhereElse(t *testing.T) {
	var got string
	c := against(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.RequestURI
		answer(w, 404, api.ProblemCodeNotFound)
	})
	if _, err := c.Job(t.Context(), "../admin/tenants?x=1#y"); !Is(err, api.ProblemCodeNotFound) || got != "/v1/jobs/..%2Fadmin%2Ftenants%3Fx=1%23y" {
		t.Errorf("%s, %v", got, err)
	}
}

// script is what connections to a log get, one after the other.
func script(t *testing.T, connections []string, options ...Option) (*Client, *[]string) {
	t.Helper()
	var n atomic.Int64
	var from []string
	return against(t, func(w http.ResponseWriter, r *http.Request) {
		from = append(from, r.Header.Get("Last-Event-ID"))
		i := int(n.Add(1)) - 1
		if i >= len(connections) {
			answer(w, 503, api.ProblemCodeUnavailable)
			return
		}
		text := connections[i]
		hang := strings.HasSuffix(text, "…")
		_, _ = io.WriteString(w, strings.TrimSuffix(text, "…"))
		_ = http.NewResponseController(w).Flush()
		if hang {
			<-r.Context().Done()
		}
		if !strings.HasSuffix(text, "\n") {
			panic(http.ErrAbortHandler)
		}
	}, options...), &from
}

func output(seq int, text string) string {
	return fmt.Sprintf(`{"type":"output","output":{"seq":%d,"attempt":1,"step":0,"stream":"stdout","offset":0,"at":"2026-01-02T15:04:05Z","text":%q}}`+"\n", seq, text)
}

const (
	ended    = `{"type":"end","end":{"state":"succeeded","outcome":{"kind":"exited","exit_code":0,"evidence":"","limits_hit":[]}}}` + "\n"
	shutdown = `{"type":"interrupted","interrupted":{"reason":"shutdown"}}` + "\n"
	noAccess = `{"type":"interrupted","interrupted":{"reason":"access_ended"}}` + "\n"
	beat     = `{"type":"heartbeat"}` + "\n"
)

func TestLogIsTakenUpAgain(t *testing.T) {
	for name, connections := range map[string][]string{
		"whole":              {output(1, "a") + beat + output(2, "b") + output(3, "c") + ended},
		"cut between":        {output(1, "a"), output(2, "b") + output(3, "c") + ended},
		"cut within":         {output(1, "a") + output(2, "b")[:20], output(2, "b") + output(3, "c") + ended},
		"cut before the end": {output(1, "a") + output(2, "b") + output(3, "c"), ended},
		"nothing at first":   {beat, output(1, "a") + shutdown, shutdown, output(2, "b") + output(3, "c") + ended},
		"doubled":            {output(1, "a") + output(2, "b"), output(1, "a") + output(2, "b") + output(3, "c") + ended},
		"silent":             {output(1, "a") + "…", output(2, "b") + output(3, "c") + ended},
	} {
		t.Run(name, func(t *testing.T) {
			c, from := script(t, connections, WithSilence(100*time.Millisecond))
			var out bytes.Buffer
			end, err := c.CopyLog(t.Context(), "j", &out, io.Discard)
			if err != nil || out.String() != "abc" || end.State != api.JobStateSucceeded {
				t.Errorf("%q, %+v, %v", out.String(), end, err)
			}
			if len(*from) != len(connections) {
				t.Errorf("%d connections, from %q", len(*from), *from)
			}
		})
	}
}

// The end of a stream is never taken for the end of a job.
func TestAStreamThatIsCutIsAnError(t *testing.T) {
	for name, connections := range map[string][]string{
		"at once": {}, "after output": {output(1, "a")}, "empty": {""},
		"many": {shutdown, shutdown, shutdown, shutdown, shutdown, shutdown, shutdown, shutdown},
	} {
		c, _ := script(t, connections, WithAttempts(3))
		if end, err := c.CopyLog(t.Context(), "j", io.Discard, io.Discard); end != nil || err == nil {
			t.Errorf("%s: %+v, %v", name, end, err)
		}
	}
	c, from := script(t, []string{noAccess, ended})
	if _, err := c.CopyLog(t.Context(), "j", io.Discard, io.Discard); !Is(err, api.ProblemCodeUnauthenticated) || len(*from) != 1 {
		t.Errorf("%v after %d connections", err, len(*from))
	}
}

func TestAReaderThatHasEnough(t *testing.T) {
	c, _ := script(t, []string{output(1, "a") + output(2, "b") + "…"})
	for event, err := range c.Log(t.Context(), "j", LogOptions{}) {
		if err != nil || event.Output.Text != "a" {
			t.Errorf("%+v, %v", event, err)
		}
		break
	}
}

func TestADownloadThatIsWrongIsAnError(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"changed": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Repr-Digest", "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:") // of nothing
			fmt.Fprint(w, "x")
		},
		"cut": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "2")
			fmt.Fprint(w, "x")
			panic(http.ErrAbortHandler)
		},
		"no digest": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "x") },
	} {
		if err := against(t, h).DownloadArtifact(t.Context(), "j", "f", io.Discard); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
