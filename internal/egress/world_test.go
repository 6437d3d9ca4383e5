package egress

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/egress/link"
	"github.com/agentdock/agentdock/internal/egress/policy"
	"github.com/agentdock/agentdock/internal/peersocket"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/testenv/nameserver"
	"github.com/agentdock/agentdock/internal/tunnel"
)

// world is a gateway with a name server and servers of its own, and one sandbox
// that is reached at proxy.
type world struct {
	t       *testing.T
	dns     *nameserver.Server
	gateway *Gateway
	link    link.Client
	proxy   string
	tls     *httptest.Server // a certificate for example.com
	plain   *httptest.Server
	visits  atomic.Int64 // of both
}

// patience is short, and long enough for a busy machine.
const patience = 2 * time.Second

const mirrors = "mirror example.com 127.0.0.0/8\nmirror other.example 127.0.0.0/8\nmirror kelvin.example 127.0.0.0/8\nmirror 127.0.0.1 127.0.0.0/8\nmirror 127.0.0.9 127.0.0.0/8\n"

func newWorld(t *testing.T) *world { return newWorldWith(t, func(*Config) {}) }

func newWorldWith(t *testing.T, change func(*Config)) *world {
	t.Helper()
	w := &world{t: t, dns: nameserver.Start(t)}
	file, err := policy.Parse(strings.NewReader(mirrors))
	if err != nil {
		t.Fatal(err)
	}
	config := Config{File: file, Resolver: w.dns.Resolver(), Log: slog.New(slog.DiscardHandler), Patience: patience}
	change(&config)
	w.gateway = New(config)
	socket := filepath.Join(t.TempDir(), "s")
	l, err := peersocket.Listen(socket, nil, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- w.gateway.Serve(l) }()
	t.Cleanup(func() {
		l.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
		w.gateway.Close()
	})
	w.link = link.Client{Socket: socket, Service: "test"}
	handler := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.visits.Add(1)
		if r.URL.Path == "/large" {
			_, _ = io.Copy(rw, io.LimitReader(zeros{}, 1<<20))
			return
		}
		body, _ := io.ReadAll(r.Body)
		rw.Header().Set("Seen-Host", r.Host)
		_, _ = io.WriteString(rw, r.Method+" "+r.URL.Path+" "+string(body))
	})
	w.tls, w.plain = httptest.NewTLSServer(handler), httptest.NewServer(handler)
	t.Cleanup(w.tls.Close)
	t.Cleanup(w.plain.Close)
	w.dns.Set("example.com", "127.0.0.1")
	w.dns.Set("other.example", "127.0.0.1")
	return w
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func port(s *httptest.Server) string { return s.URL[strings.LastIndexByte(s.URL, ':')+1:] }

// allow is a network with both servers as example.com.
func (w *world) allow(more ...string) run.Network {
	return run.Network{Mode: run.NetworkAllow, Allow: append([]string{"example.com:" + port(w.tls), "example.com:" + port(w.plain)}, more...)}
}

// open attaches a sandbox with its listener, as the helper inside one does.
func (w *world) open(n run.Network) {
	w.t.Helper()
	f, err := w.link.Attach(context.Background(), "box", n)
	if err != nil {
		w.t.Fatal(err)
	}
	conn, err := net.FileConn(f)
	f.Close()
	if err != nil {
		w.t.Fatal(err)
	}
	out := tunnel.Open(conn)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { l.Close(); out.Close() })
	w.proxy = l.Addr().String()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			st, err := out.Open()
			if err != nil {
				conn.Close()
				continue
			}
			go func() {
				defer conn.Close()
				defer st.Close()
				var both sync.WaitGroup
				both.Go(func() {
					_, _ = io.Copy(st, conn)
					_ = st.CloseWrite()
				})
				_, _ = io.Copy(conn, st)
				_ = conn.(*net.TCPConn).CloseWrite()
				both.Wait()
			}()
		}
	}()
}

// client goes through the proxy, which scheme is of.
func (w *world) client(scheme string) *http.Client {
	transport := w.tls.Client().Transport.(*http.Transport).Clone()
	transport.Proxy = http.ProxyURL(&url.URL{Scheme: scheme, Host: w.proxy})
	transport.DialContext = nil
	w.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 20 * time.Second}
}

// say sends bytes to the proxy and returns what comes back until its end.
func (w *world) say(text string) string {
	w.t.Helper()
	conn, err := net.Dial("tcp", w.proxy)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(4 * patience))
	_, _ = io.WriteString(conn, text)
	answer, err := io.ReadAll(conn)
	if err != nil && len(answer) == 0 {
		return "(" + err.Error() + ")"
	}
	return string(answer)
}

// tunnel opens one with CONNECT.
func (w *world) tunnel(authority string) net.Conn {
	w.t.Helper()
	conn, err := net.Dial("tcp", w.proxy)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	_, _ = io.WriteString(conn, "CONNECT "+authority+" HTTP/1.1\r\nHost: "+authority+"\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(oneByte{conn}), &http.Request{Method: http.MethodConnect})
	if err != nil {
		w.t.Fatalf("CONNECT %s: %v", authority, err)
	}
	resp.Body.Close() // it has none
	if resp.StatusCode != http.StatusOK {
		w.t.Fatalf("CONNECT %s: %s", authority, resp.Status)
	}
	return conn
}

// status of a request for the plain server.
func (w *world) status() int {
	w.t.Helper()
	resp, err := w.client("http").Get("http://example.com:" + port(w.plain))
	if err != nil {
		w.t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

type oneByte struct{ io.Reader }

func (o oneByte) Read(p []byte) (int, error) { return o.Reader.Read(p[:min(1, len(p))]) }

func (w *world) use() run.NetworkUse {
	w.t.Helper()
	use, err := w.link.Use(context.Background(), "box")
	if err != nil {
		w.t.Fatal(err)
	}
	return use
}

// await waits until the transcript is as wanted.
func (w *world) await(what string, wanted func(run.NetworkUse) bool) run.NetworkUse {
	w.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		use := w.use()
		if wanted(use) {
			return use
		}
		if time.Now().After(end) {
			w.t.Fatalf("the transcript has not %s: %+v", what, use)
		}
	}
}

func portNumber(s *httptest.Server) int64 {
	n, _ := strconv.ParseInt(port(s), 10, 64)
	return n
}
