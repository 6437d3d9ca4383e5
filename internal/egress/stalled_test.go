package egress

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/run"
)

// soon is when a busy machine has done what takes no time.
const soon = 30 * time.Second

// floods is a server that answers each GET without end, and says of each
// connection when a request has come and when it is over.
type floods struct {
	port        string
	asked, over chan struct{}
	// flow is closed when answers may begin.
	flow chan struct{}
}

func newFloods(t *testing.T) *floods {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	_, port, _ := net.SplitHostPort(l.Addr().String())
	f := &floods{port: port, asked: make(chan struct{}, 100), over: make(chan struct{}, 100), flow: make(chan struct{})}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go f.serve(conn)
		}
	}()
	return f
}

func (f *floods) serve(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	req, err := http.ReadRequest(r)
	if err != nil {
		return
	}
	f.asked <- struct{}{}
	if req.Method == http.MethodGet {
		<-f.flow
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
		_, _ = io.Copy(conn, zeros{})
	} else {
		_, _ = io.Copy(io.Discard, r)
	}
	f.over <- struct{}{}
}

// awaitAll receives from c so many times.
func awaitAll(t *testing.T, what string, c <-chan struct{}, n int) {
	t.Helper()
	end := time.After(soon)
	for i := range n {
		select {
		case <-c:
		case <-end:
			t.Fatalf("%s: %d of %d", what, i, n)
		}
	}
}

// awaitSo tries until it is so.
func awaitSo(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(soon); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not so after %s: %s", soon, what)
		}
	}
}

// stall attaches a sandbox whose helper reads nothing, uploads in some connections,
// and downloads in others until nothing more can be under way to it.
func (w *world) stall(f *floods, uploads, downloads int) {
	w.t.Helper()
	file, err := w.link.Attach(context.Background(), "box", w.allow("example.com:"+f.port))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { file.Close() })
	send := func(number int, request string) {
		for _, frame := range []struct {
			kind byte
			data string
		}{{1, ""}, {2, fmt.Sprintf("CONNECT example.com:%s HTTP/1.1\r\nHost: x\r\n\r\n"+request, f.port, f.port)}} {
			b := binary.BigEndian.AppendUint16([]byte{frame.kind, 0}, uint16(len(frame.data)))
			b = binary.BigEndian.AppendUint32(b, uint32(number))
			if _, err := file.Write(append(b, frame.data...)); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	for i := range uploads {
		send(1+i, "POST / HTTP/1.1\r\nHost: example.com:%s\r\nContent-Length: 1000\r\n\r\nx")
	}
	awaitAll(w.t, "uploads", f.asked, uploads)
	for i := range downloads {
		send(1+uploads+i, "GET / HTTP/1.1\r\nHost: example.com:%s\r\n\r\n")
	}
	awaitAll(w.t, "downloads", f.asked, downloads)
	close(f.flow)
	w.await("downloads", func(u run.NetworkUse) bool { return u.ReceivedBytes >= 128<<10 })
}

// A program can stop its helper. A change of policy neither waits for it nor leaves
// a server connected.
func TestAChangeOfPolicyWaitsForNoHelper(t *testing.T) {
	w := newWorld(t)
	f := newFloods(t)
	const uploads, downloads = 6, 3
	w.stall(f, uploads, downloads)
	if err := w.link.Set(context.Background(), "box", run.Network{Mode: run.NetworkAllow, Allow: []string{"other.example:1"}}); err != nil {
		t.Fatalf("the change: %v", err)
	}
	awaitAll(t, "connections that are over", f.over, uploads+downloads)
}

// A stream of which nobody reads ends, and with it what it holds.
func TestAStreamThatIsNotReadEnds(t *testing.T) {
	w := newWorldWith(t, func(c *Config) { c.Stalled = 500 * time.Millisecond })
	f := newFloods(t)
	w.stall(f, 1, 3)
	awaitSo(t, "no stream is left", func() bool {
		w.gateway.mu.Lock()
		s := w.gateway.sessions["test/box"]
		w.gateway.mu.Unlock()
		return s.unusedSince(time.Now().Add(time.Hour))
	})
	awaitAll(t, "connections that are over", f.over, 4)
}

// Who waits for the bytes of a connection that is over, waits no more: a program
// could have any number of them otherwise.
func TestWhatIsOverDoesNotWaitForItsRate(t *testing.T) {
	w := newWorld(t)
	f := newFloods(t)
	close(f.flow)
	n := w.allow("example.com:" + f.port)
	w.open(n)
	waiting := func() int {
		stacks := make([]byte, 4<<20)
		return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "rate.(*Limiter).WaitN(")
	}
	const connections = 20
	var conns []net.Conn
	for range connections {
		conn := w.tunnel("example.com:" + f.port)
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: example.com:"+f.port+"\r\n\r\n")
		conns = append(conns, conn)
		go func() { _, _ = io.Copy(io.Discard, conn) }()
	}
	awaitAll(t, "downloads", f.asked, connections)
	n.BytesPerSecond = 1024
	if err := w.link.Set(context.Background(), "box", n); err != nil {
		t.Fatal(err)
	}
	awaitSo(t, "all wait", func() bool { return waiting() >= connections })
	for _, conn := range conns {
		_ = conn.Close()
	}
	awaitSo(t, "nothing waits", func() bool { return waiting() == 0 })
}

// A program that reads nothing of an answer, or says nothing to a server that has
// said its last, keeps its server no longer than a connection may be idle.
func TestWhatIsIdleEnds(t *testing.T) {
	w := newWorldWith(t, func(c *Config) { c.Idle = time.Second })
	f := newFloods(t)
	close(f.flow)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	half := make(chan struct{}, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_ = conn.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, conn)
		half <- struct{}{}
	}()
	halfAt := "example.com" + l.Addr().String()[strings.LastIndexByte(l.Addr().String(), ':'):]
	w.open(w.allow("example.com:"+f.port, halfAt))
	_, _ = io.WriteString(w.tunnel(halfAt), hello("example.com"))
	_, _ = io.WriteString(w.tunnel("example.com:"+f.port), "GET / HTTP/1.1\r\nHost: example.com:"+f.port+"\r\n\r\n")
	awaitAll(t, "a server that has said its last", half, 1)
	awaitAll(t, "a server whose answer is not read", f.over, 1)
}
