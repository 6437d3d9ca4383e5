package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/internal/control"
	"github.com/agentdock/agentdock/internal/tenant"
)

// stream is a log that is being read, in either form.
type stream struct {
	t    *testing.T
	res  *http.Response
	in   *bufio.Reader
	sse  bool
	last string // the id of the last server-sent event
}

func (r *rig) follow(key, id, query string, headers ...header) *stream {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), "GET", r.url+"/v1/jobs/"+id+"/log"+query, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	for _, h := range headers {
		req.Header.Set(h[0], h[1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { res.Body.Close() })
	if res.StatusCode != 200 {
		text, _ := io.ReadAll(res.Body)
		r.t.Fatalf("status %d: %s", res.StatusCode, text)
	}
	return &stream{t: r.t, res: res, in: bufio.NewReader(res.Body), sse: res.Header.Get("Content-Type") == sseType}
}

// next returns an event, or io.EOF after the last. A comment of server-sent
// events is a heartbeat.
func (s *stream) next() (api.LogEvent, error) {
	s.t.Helper()
	var e api.LogEvent
	if !s.sse {
		line, err := s.in.ReadBytes('\n')
		if err != nil {
			return e, err
		}
		decode(s.t, line, &e)
		return e, nil
	}
	name := ""
	for {
		line, err := s.in.ReadString('\n')
		if err != nil {
			return e, err
		}
		field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch field {
		case "id":
			s.last = value
		case "event":
			name = value
		case "data":
			decode(s.t, []byte(value), &e)
			if e.Type != name {
				s.t.Errorf("event %q has data of type %q", name, e.Type)
			}
		case "":
			if value == "heartbeat" { // a comment, and the empty line after it
				_, err := s.in.ReadString('\n')
				return api.LogEvent{Type: "heartbeat"}, err
			}
			return e, nil
		}
	}
}

// rest reads to the end of the stream.
func (s *stream) rest() (output []byte, last api.LogEvent) {
	s.t.Helper()
	for {
		e, err := s.next()
		if err == io.EOF {
			return output, last
		}
		if err != nil {
			s.t.Fatal(err)
		}
		if e.Output != nil {
			output = append(output, bytesOf(e.Output)...)
		}
		last = e
	}
}

func bytesOf(o *api.LogOutput) []byte {
	if len(o.Base64) > 0 {
		return o.Base64
	}
	return []byte(o.Text)
}

var forms = map[string]header{"SSE": {"Accept", sseType}, "NDJSON": {"Accept", ndjsonType}}

func TestLogOfAJobThatHasEnded(t *testing.T) {
	r := newRig(t)
	_, key := r.tenant("a", tenant.Quota{}, tenant.JobsRead, tenant.JobsWrite)
	job := r.job(key, trueJob())
	pieces := []string{"plain\n", "NUL \x00 byte", "half \xc3", "\xa4 and not UTF-8 \xff\xfe", "data: x\n\nid: 99\r\nevent: end\n", "ä<&>\u2028\ufffd", "\r", "last"}
	w := r.work()
	for i, p := range pieces {
		w.write([]string{"stdout", "stderr"}[i%2], p)
	}
	w.finish()
	whole := strings.Join(pieces, "")
	for name, form := range forms {
		t.Run(name, func(t *testing.T) {
			s := r.follow(key, job.ID, "", form)
			out, last := s.rest()
			if string(out) != whole {
				t.Errorf("got %q, want %q", out, whole)
			}
			if last.End == nil || last.End.State != api.JobStateSucceeded || *last.End.Outcome.ExitCode != 0 {
				t.Errorf("last event %+v", last)
			}
			if s.sse && s.last != fmt.Sprint(len(pieces)) {
				t.Errorf("last id %s", s.last)
			}
			for after := range len(pieces) + 2 {
				want := strings.Join(pieces[min(after, len(pieces)):], "")
				byHeader, end1 := r.follow(key, job.ID, "?after=1", form, header{"Last-Event-ID", fmt.Sprint(after)}).rest()
				byQuery, end2 := r.follow(key, job.ID, fmt.Sprintf("?after=%d&follow=false", after), form).rest()
				if after > 0 && string(byHeader) != want || string(byQuery) != want || end1.End == nil || end2.End == nil {
					t.Errorf("after %d: %q and %q, want %q; %+v, %+v", after, byHeader, byQuery, want, end1, end2)
				}
			}
		})
	}
	for _, bad := range []header{{"Last-Event-ID", "x"}, {"Last-Event-ID", "-1"}, {"Last-Event-ID", "99999999999999999999"}} {
		if p := r.send("GET", "/v1/jobs/"+job.ID+"/log", key, nil, bad).problem(t); p.Code != api.ProblemCodeInvalid {
			t.Errorf("%v: %+v", bad, p)
		}
	}
}

func TestLogIsFollowed(t *testing.T) {
	r := newRig(t, func(c *Config, _ *control.Config) { c.Timing.Heartbeat = 20 * time.Millisecond })
	_, key := r.tenant("a", tenant.Quota{}, tenant.JobsRead, tenant.JobsWrite)
	for name, form := range forms {
		t.Run(name, func(t *testing.T) {
			job := r.job(key, trueJob())
			s := r.follow(key, job.ID, "", form)
			heartbeats := 0
			await := func() api.LogEvent {
				t.Helper()
				for {
					e, err := s.next()
					if err != nil {
						t.Fatal(err)
					}
					if e.Type != "heartbeat" {
						return e
					}
					heartbeats++
				}
			}
			w := r.work()
			for i := range 3 {
				line := fmt.Sprintf("line %d\n", i)
				w.write("stdout", line)
				if e := await(); e.Output == nil || e.Output.Text != line || e.Output.Seq != int64(i+1) {
					t.Fatalf("got %+v", e)
				}
			}
			for before := heartbeats; heartbeats < before+3; heartbeats++ {
				if e, err := s.next(); err != nil || e.Type != "heartbeat" {
					t.Fatalf("%+v, %v", e, err)
				}
			}
			w.write("stdout", "tail")
			w.finish()
			if e := await(); e.Output == nil || e.Output.Text != "tail" {
				t.Errorf("the tail is lost: %+v", e)
			}
			if e := await(); e.End == nil {
				t.Errorf("got %+v", e)
			}
			if _, err := s.next(); err != io.EOF {
				t.Errorf("after the end: %v", err)
			}
		})
	}
}

func TestStreamsThatAreInterrupted(t *testing.T) {
	r := newRig(t, func(c *Config, _ *control.Config) { c.Timing.Heartbeat = 20 * time.Millisecond })
	tn, key := r.tenant("a", tenant.Quota{}, tenant.JobsRead, tenant.JobsWrite)
	other, otherKey := r.key(tn.ID, time.Time{}, tenant.JobsRead)
	job := r.job(key, trueJob())
	w := r.work()
	w.write("stdout", "x")
	expect := func(s *stream, want, reason string) {
		t.Helper()
		out, last := s.rest()
		if string(out) != want || last.Interrupted == nil || last.Interrupted.Reason != reason {
			t.Errorf("%q, then %+v, want %s", out, last, reason)
		}
	}
	for _, form := range forms {
		expect(r.follow(key, job.ID, "?follow=false", form), "x", notFollowing)
	}
	revoked := r.follow(otherKey, job.ID, "", forms["SSE"])
	if err := r.control.RevokeKey(t.Context(), control.Caller{}, tn.ID, other.ID); err != nil {
		t.Fatal(err)
	}
	expect(revoked, "x", accessEnded)
	var open []*stream
	for _, form := range forms {
		s := r.follow(key, job.ID, "", form)
		if e, err := s.next(); err != nil || e.Output == nil {
			t.Fatalf("%+v, %v", e, err)
		}
		open = append(open, s)
	}
	begin := time.Now()
	stopped := make(chan error)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		stopped <- r.part.Stop(ctx)
	}()
	for _, s := range open {
		expect(s, "", forShutdown)
	}
	http.DefaultClient.CloseIdleConnections()
	if err := <-stopped; err != nil || time.Since(begin) > 5*time.Second {
		t.Errorf("the stop: %v after %s", err, time.Since(begin))
	}
}

// A log in which there is always more to send has no pause in which to ask who
// still may read it.
func TestARevokedKeyReadsNoBusyLog(t *testing.T) {
	r := newRig(t, func(c *Config, _ *control.Config) { c.Timing.Heartbeat = 20 * time.Millisecond })
	tn, key := r.tenant("a", tenant.Quota{}, tenant.JobsRead, tenant.JobsWrite)
	k, secret := r.key(tn.ID, time.Time{}, tenant.JobsRead)
	job := r.job(key, trueJob())
	w := r.work()
	s := r.follow(secret, job.ID, "", forms["NDJSON"])
	if err := r.control.RevokeKey(t.Context(), control.Caller{}, tn.ID, k.ID); err != nil {
		t.Fatal(err)
	}
	for range 10_000 {
		w.write("stdout", "x")
		e, err := s.next()
		if err != nil {
			t.Fatal(err)
		}
		if e.Interrupted != nil {
			if e.Interrupted.Reason != accessEnded {
				t.Errorf("interrupted for %s", e.Interrupted.Reason)
			}
			return
		}
	}
	t.Error("a revoked key goes on reading a log in which there is always more")
}

// slowly opens a log stream and reads nothing of it.
func (r *rig) slowly(key, id string) net.Conn {
	r.t.Helper()
	conn := mustDial(r.t, r.url)
	if err := conn.(*net.TCPConn).SetReadBuffer(256 << 10); err != nil {
		r.t.Fatal(err)
	}
	fmt.Fprintf(conn, "GET /v1/jobs/%s/log HTTP/1.0\r\nHost: x\r\nAuthorization: Bearer %s\r\nAccept: %s\r\n\r\n", id, key, ndjsonType)
	return conn
}

// Clients that take a byte now and then hold what they hold, and nothing and
// nobody else. In the end they have all of it.
func TestSlowClients(t *testing.T) {
	if testing.Short() {
		t.Skip("it writes 4 MiB of log")
	}
	r := newRigOn(t, func(l net.Listener) net.Listener { return smallBuffers{l} })
	_, key := r.tenant("a", tenant.Quota{}, tenant.JobsRead, tenant.JobsWrite)
	job := r.job(key, trueJob())
	w := r.work()
	const clients, chunk, chunks = 20, 64 << 10, 64
	w.write("stdout", strings.Repeat("x", chunk))
	var conns []net.Conn
	for range clients {
		conns = append(conns, r.slowly(key, job.ID))
	}
	eventually(t, "all streams are open", func() bool { return testutil.ToFloat64(r.api.metrics.streams) == clients })
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	one := make([]byte, 1)
	for i := 1; i < chunks; i++ {
		w.write("stdout", strings.Repeat("x", chunk))
		if _, err := conns[i%clients].Read(one); err != nil {
			t.Fatal(err)
		}
	}
	w.finish() // which no reader holds up
	if a := r.send("GET", "/v1/jobs/"+job.ID, key, nil); a.status != 200 {
		t.Errorf("another request: %d", a.status)
	}
	grown := heap() - before
	t.Logf("%d slow clients of a log of %d MiB: the heap grew by %d KiB", clients, chunk*chunks>>20, grown>>10)
	if grown > clients*(512<<10) {
		t.Errorf("the heap grew by %d bytes with %d slow clients", grown, clients)
	}
	for _, c := range conns[1:] {
		c.Close()
	}
	eventually(t, "streams of clients that are gone end", func() bool { return testutil.ToFloat64(r.api.metrics.streams) <= 1 })
	rest, err := io.ReadAll(conns[0])
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(rest, []byte("xxxxxxxx")) * 8; n < (chunks-1)*chunk {
		t.Errorf("%d bytes of %d arrived", n, chunks*chunk)
	}
	lines := bytes.Split(bytes.TrimSpace(rest), []byte("\n"))
	var last api.LogEvent
	if err := json.Unmarshal(lines[len(lines)-1], &last); err != nil || last.End == nil {
		t.Errorf("last event %+v, %v", last, err)
	}
}

func TestAClientThatTakesNothingIsDisconnected(t *testing.T) {
	small := func(l net.Listener) net.Listener { return smallBuffers{l} }
	r := newRigOn(t, small, func(c *Config, _ *control.Config) { c.Timing.Stall = 100 * time.Millisecond })
	_, key := r.tenant("a", tenant.Quota{}, tenant.JobsRead, tenant.JobsWrite)
	job := r.job(key, trueJob())
	w := r.work()
	for range 40 { // more than the kernel's buffers hold
		w.write("stdout", strings.Repeat("x", 64<<10))
	}
	r.slowly(key, job.ID)
	eventually(t, "the stream is open", func() bool { return testutil.ToFloat64(r.api.metrics.streams) == 1 })
	eventually(t, "it is closed", func() bool { return testutil.ToFloat64(r.api.metrics.streams) == 0 })
}

func TestStreamsOfATenantAreCounted(t *testing.T) {
	r := newRig(t, func(c *Config, _ *control.Config) { c.MaxLongPerTenant = 2 })
	_, key := r.tenant("a", tenant.Quota{}, tenant.JobsRead, tenant.JobsWrite)
	_, other := r.tenant("b", tenant.Quota{}, tenant.JobsRead, tenant.JobsWrite)
	job := r.job(key, trueJob())
	first := r.follow(key, job.ID, "")
	r.follow(key, job.ID, "")
	if a := r.send("GET", "/v1/jobs/"+job.ID+"/log", key, nil); a.problem(t).Code != api.ProblemCodeExhausted || a.header.Get("Retry-After") == "" {
		t.Errorf("the third stream: %d", a.status)
	}
	r.follow(other, r.job(other, trueJob()).ID, "")
	first.res.Body.Close()
	eventually(t, "there is room again", func() bool {
		req, _ := http.NewRequestWithContext(t.Context(), "GET", r.url+"/v1/jobs/"+job.ID+"/log?follow=false", nil)
		req.Header.Set("Authorization", "Bearer "+key)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == 200
	})
}

// A heartbeat that comes due as the last word is said does not follow it.
func TestNothingFollowsTheLastWord(t *testing.T) {
	for name, sse := range map[string]bool{"SSE": true, "NDJSON": false} {
		out := &bytes.Buffer{}
		e := &events{sse: sse, out: out, conn: http.NewResponseController(httptest.NewRecorder())}
		if err := e.send(lastWord, 0, api.LogEvent{Type: lastWord}); err != nil {
			t.Fatal(err)
		}
		said := out.String()
		if err := e.heartbeat(); err != nil || out.String() != said || !strings.Contains(said, lastWord) {
			t.Errorf("%s: %v: %q", name, err, out)
		}
	}
}
