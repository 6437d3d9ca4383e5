package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

func TestClientsGetThrough(t *testing.T) {
	w := newWorld(t)
	w.open(w.allow())
	for _, tc := range []struct{ scheme, url string }{
		{"http", "https://example.com:" + port(w.tls)},
		{"http", "http://example.com:" + port(w.plain)},
		{"socks5h", "https://example.com:" + port(w.tls)},
		{"socks5h", "http://example.com:" + port(w.plain)},
	} {
		client := w.client(tc.scheme)
		for range 2 {
			resp, err := client.Post(tc.url+"/path", "text/plain", strings.NewReader("body"))
			if err != nil {
				t.Fatalf("%s over %s: %v", tc.url, tc.scheme, err)
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || string(body) != "POST /path body" {
				t.Errorf("%s over %s: %q, %v", tc.url, tc.scheme, body, err)
			}
			if host := resp.Header.Get("Seen-Host"); "http://"+host != tc.url && "https://"+host != tc.url {
				t.Errorf("%s over %s: the server was asked for %q", tc.url, tc.scheme, host)
			}
		}
		resp, err := client.Get(tc.url + "/large")
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if n != 1<<20 || err != nil {
			t.Errorf("%s over %s: %d bytes, %v", tc.url, tc.scheme, n, err)
		}
		client.CloseIdleConnections()
	}
	use := w.await("ended all", func(u run.NetworkUse) bool {
		for _, c := range u.Connections {
			if c.Duration == 0 {
				return false
			}
		}
		return true
	})
	if len(use.Denied) != 0 || use.ReceivedBytes < 4<<20 || use.SentBytes == 0 {
		t.Errorf("the transcript is %+v", use)
	}
	for _, c := range use.Connections {
		if c.Decision != run.EgressAllowed || c.Name != "example.com" || !strings.HasPrefix(c.Address, "127.0.0.1:") ||
			!strings.HasPrefix(c.Rule, "example.com:") || c.SentBytes == 0 || c.ReceivedBytes == 0 || c.Reason != "" {
			t.Errorf("a line is %+v", c)
		}
	}
}

func TestAChangeOfPolicyHoldsAtOnce(t *testing.T) {
	w := newWorld(t)
	w.open(w.allow())
	conn := w.tunnel("example.com:" + port(w.plain))
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: example.com:"+port(w.plain)+"\r\n\r\n")
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	long := w.tunnel("example.com:" + port(w.tls))
	w.await("the open connection", func(u run.NetworkUse) bool { return len(u.Connections) == 2 })
	if err := w.link.Set(context.Background(), "box", run.Network{Mode: run.NetworkAllow, Allow: []string{"other.example:1"}}); err != nil {
		t.Fatal(err)
	}
	// It was open and is cut, before anything was said in it.
	if _, err := io.ReadAll(long); err != nil {
		t.Errorf("an open tunnel ended with %v", err)
	}
	w.await("the cut", func(u run.NetworkUse) bool {
		return u.Connections[1].Duration > 0 && strings.Contains(u.Connections[1].Reason, "policy was changed")
	})
	if got := w.status(); got != http.StatusForbidden {
		t.Errorf("after the change: %d", got)
	}
	if err := w.link.Set(context.Background(), "box", w.allow()); err != nil {
		t.Fatal(err)
	}
	if got := w.status(); got != http.StatusOK {
		t.Errorf("allowed again: %d", got)
	}
	if err := w.link.Set(context.Background(), "other", w.allow()); !fault.Is(err, fault.NotFound) {
		t.Errorf("a sandbox that there is not: %v", err)
	}
}

func TestLimits(t *testing.T) {
	w := newWorld(t)
	n := w.allow()
	n.MaxBytes, n.MaxConnections = 300_000, 2
	w.open(n)
	w.tunnel("example.com:" + port(w.tls))
	w.tunnel("example.com:" + port(w.tls))
	if got := w.say("CONNECT example.com:" + port(w.tls) + " HTTP/1.1\r\nHost: x\r\n\r\n"); !strings.Contains(got, "403 agentdock: no connection") || !strings.Contains(got, "2 connections are open") {
		t.Errorf("one connection too many: %q", got)
	}
	w.open(n)
	n.MaxConnections = 10
	if err := w.link.Set(context.Background(), "box", n); err != nil {
		t.Fatal(err)
	}
	resp, err := w.client("http").Get("http://example.com:" + port(w.plain) + "/large")
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if got > 300_000 || err == nil {
		t.Errorf("%d bytes came through, %v", got, err)
	}
	if got := w.status(); got != http.StatusForbidden {
		t.Errorf("when the bytes were used up: %d", got)
	}
}

func TestForgetAndStop(t *testing.T) {
	w := newWorld(t)
	w.open(w.allow())
	conn := w.tunnel("example.com:" + port(w.tls))
	if err := w.link.Forget(context.Background(), "box"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(conn); err != nil {
		t.Errorf("a tunnel of a sandbox that is gone ended with %v", err)
	}
	if _, err := w.link.Use(context.Background(), "box"); !fault.Is(err, fault.NotFound) {
		t.Errorf("a sandbox that is gone: %v", err)
	}
	if err := w.link.Forget(context.Background(), "box"); err != nil {
		t.Errorf("forgotten twice: %v", err)
	}
	if _, err := w.link.Attach(context.Background(), "box", run.Network{Mode: run.NetworkAllow, Allow: []string{"*"}}); !fault.Is(err, fault.Invalid) {
		t.Errorf("a policy that cannot be: %v", err)
	}
	w.open(w.allow())
	w.gateway.Close()
	if _, err := w.link.Attach(context.Background(), "box", w.allow()); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a gateway that is gone: %v", err)
	}
}

// A sandbox has one stream: whoever attaches again and again keeps no more.
func TestTheNewestStreamCounts(t *testing.T) {
	w := newWorld(t)
	var earlier []net.Conn
	for range 20 {
		file, err := w.link.Attach(context.Background(), "box", w.allow())
		if err != nil {
			t.Fatal(err)
		}
		conn, err := net.FileConn(file)
		file.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		earlier = append(earlier, conn)
	}
	w.open(w.allow())
	for i, conn := range earlier {
		_ = conn.SetReadDeadline(time.Now().Add(soon))
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("stream %d ended with %v", i, err)
		}
	}
	if got := w.status(); got != http.StatusOK {
		t.Errorf("over the newest: %d", got)
	}
}

// All sandboxes together have so many connections, and each gives its place back.
func TestConnectionsOfAllSandboxesAreBounded(t *testing.T) {
	w := newWorldWith(t, func(c *Config) { c.MaxConnections = 2 })
	w.open(w.allow("nobody.example:443"))
	for range 5 {
		if got := w.say("CONNECT nobody.example:443 HTTP/1.1\r\nHost: x\r\n\r\n"); !strings.Contains(got, " 502 ") {
			t.Fatalf("a name that is not known: %q", got)
		}
	}
	conn := w.tunnel("example.com:" + port(w.tls))
	w.tunnel("example.com:" + port(w.tls))
	if got := w.say("CONNECT example.com:" + port(w.tls) + " HTTP/1.1\r\nHost: x\r\n\r\n"); !strings.Contains(got, "403 agentdock: no connection") || !strings.Contains(got, "all sandboxes together") {
		t.Errorf("one connection too many: %q", got)
	}
	_ = conn.Close()
	awaitSo(t, "the place is free", func() bool { return w.status() == http.StatusOK })
}
