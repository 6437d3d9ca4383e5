package tunnel

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// pair is a tunnel over a real socket pair.
func pair(t *testing.T, most int) (open, accept *Session) {
	t.Helper()
	ours, theirs := sockets(t)
	open, accept = Open(ours), Accept(theirs, most)
	t.Cleanup(func() { open.Close(); accept.Close() })
	return open, accept
}

func sockets(t *testing.T) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a, err = net.Dial("unix", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func connect(t *testing.T, open, accept *Session) (a, b *Stream) {
	t.Helper()
	a, err := open.Open()
	if err != nil {
		t.Fatal(err)
	}
	if b, err = accept.Accept(); err != nil {
		t.Fatal(err)
	}
	return a, b
}

func TestManyConnectionsCarryTheirOwnBytes(t *testing.T) {
	const connections, size = 40, 3 * Window
	open, accept := pair(t, connections)
	go func() {
		for {
			st, err := accept.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(st, st)
				_ = st.CloseWrite()
			}()
		}
	}()
	var wg sync.WaitGroup
	for range connections {
		wg.Go(func() {
			st, err := open.Open()
			if err != nil {
				t.Error(err)
				return
			}
			sent := make([]byte, size)
			_, _ = rand.Read(sent)
			go func() {
				_, _ = st.Write(sent)
				_ = st.CloseWrite()
			}()
			got, err := io.ReadAll(st)
			if err != nil || !bytes.Equal(got, sent) {
				t.Errorf("%d bytes came back of %d, %v", len(got), size, err)
			}
		})
	}
	wg.Wait()
	open.mu.Lock()
	defer open.mu.Unlock()
	if len(open.streams) != 0 {
		t.Errorf("%d connections are left", len(open.streams))
	}
}

func TestAStuckReaderHoldsUpNobodyElse(t *testing.T) {
	open, accept := pair(t, 2)
	stuck, _ := connect(t, open, accept)
	written := make(chan int)
	go func() {
		n, _ := stuck.Write(make([]byte, 4*Window))
		written <- n
	}()
	a, b := connect(t, open, accept)
	for range 100 {
		if _, err := a.Write(make([]byte, 1024)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(b, make([]byte, 1024)); err != nil {
			t.Fatal(err)
		}
	}
	stuck.Close()
	if n := <-written; n > Window {
		t.Errorf("%d bytes were taken that nobody reads, more than %d", n, Window)
	}
}

func TestWhatIsReadTakesNoMemory(t *testing.T) {
	open, accept := pair(t, 1)
	a, b := connect(t, open, accept)
	if _, err := a.Write(make([]byte, Window)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(b, make([]byte, Window)); err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if cap(b.buf) != 0 {
		t.Errorf("%d bytes are kept of an empty connection", cap(b.buf))
	}
}

func TestEnds(t *testing.T) {
	open, accept := pair(t, 4)
	a, b := connect(t, open, accept)
	_, _ = a.Write([]byte("last"))
	_ = a.CloseWrite()
	if got, err := io.ReadAll(b); string(got) != "last" || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
	if _, err := b.Write([]byte("still")); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadFull(a, make([]byte, 5)); err != nil {
		t.Errorf("the other direction: %v", err)
	}
	_, _ = b.Write([]byte("bye"))
	b.Close()
	if got, err := io.ReadAll(a); string(got) != "bye" || err != nil {
		t.Errorf("after the other side closed: %q, %v", got, err)
	}
	a, b = connect(t, open, accept)
	b.Close()
	for {
		if _, err := a.Write(make([]byte, 1024)); errors.Is(err, errReset) {
			break
		} else if err != nil {
			t.Fatalf("written to what is closed: %v", err)
		}
	}
	a, b = connect(t, open, accept)
	accept.Close()
	if _, err := a.Read(make([]byte, 1)); !errors.Is(err, ErrClosed) {
		t.Errorf("after the end of the session: %v", err)
	}
	if _, err := b.Write(make([]byte, 1)); !errors.Is(err, ErrClosed) {
		t.Errorf("after the end of the session: %v", err)
	}
	<-open.Done()
	if _, err := open.Open(); !errors.Is(err, ErrClosed) {
		t.Errorf("opened after the end: %v", err)
	}
}

func TestDeadlines(t *testing.T) {
	open, accept := pair(t, 1)
	a, b := connect(t, open, accept)
	_ = a.SetReadDeadline(time.Now().Add(time.Millisecond))
	if _, err := a.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a read ended with %v", err)
	}
	_ = a.SetReadDeadline(time.Time{})
	_, _ = b.Write([]byte("x"))
	if _, err := a.Read(make([]byte, 1)); err != nil {
		t.Errorf("without a deadline: %v", err)
	}
	_ = a.SetWriteDeadline(time.Now().Add(time.Millisecond))
	if _, err := a.Write(make([]byte, 2*Window)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a write ended with %v", err)
	}
}

func TestMoreConnectionsThanThereMayBeAreReset(t *testing.T) {
	open, accept := pair(t, 1)
	connect(t, open, accept)
	second, err := open.Open()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := second.Read(make([]byte, 1)); !errors.Is(err, errReset) {
		t.Errorf("one too many: %v", err)
	}
}

func frame(k kind, number uint32, data string) string {
	b := binary.BigEndian.AppendUint16([]byte{byte(k), 0}, uint16(len(data)))
	return string(binary.BigEndian.AppendUint32(b, number)) + data
}

func TestHostilePeersEndTheSession(t *testing.T) {
	block := string(make([]byte, maxData))
	flood := frame(kindOpen, 1, "")
	for range Window/maxData + 1 {
		flood += frame(kindData, 1, block)
	}
	var opens strings.Builder
	for n := range uint32(maxRefused + 100_000) {
		opens.WriteString(frame(kindOpen, n+1, ""))
	}
	for name, sent := range map[string]string{
		"an unknown kind":        frame(kindOpen, 1, "") + frame(9, 1, ""),
		"data for nobody":        frame(kindData, 1, "x"),
		"a number again":         frame(kindOpen, 2, "") + frame(kindOpen, 2, ""),
		"a smaller number":       frame(kindOpen, 2, "") + frame(kindOpen, 1, ""),
		"number zero":            frame(kindOpen, 0, ""),
		"an open with data":      frame(kindOpen, 1, "x"),
		"data after its end":     frame(kindOpen, 1, "") + frame(kindEnd, 1, "") + frame(kindData, 1, "x"),
		"more than the window":   flood,
		"credit without need":    frame(kindOpen, 1, "") + frame(kindCredit, 1, "\x00\x00\x00\x01"),
		"credit of a wrong size": frame(kindOpen, 1, "") + frame(kindCredit, 1, "\x01"),
		"a frame too large":      "\x02\x00\xff\xff\x00\x00\x00\x01" + block + block,
		"opens without reading":  opens.String(),
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := sockets(t)
			s := Accept(theirs, 4)
			go func() { _, _ = io.WriteString(ours, sent) }()
			select {
			case <-s.Done():
			case <-time.After(20 * time.Second):
				t.Fatal("it goes on")
			}
			if err := s.Err(); errors.Is(err, io.EOF) || errors.Is(err, ErrClosed) {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}

func TestTheAcceptingSideOpensNothing(t *testing.T) {
	ours, theirs := sockets(t)
	s := Open(theirs)
	_, _ = io.WriteString(ours, frame(kindOpen, 1, ""))
	<-s.Done()
}

type bytesConn struct {
	io.Reader
	io.Writer
}

func (bytesConn) Close() error { return nil }

func FuzzFrames(f *testing.F) {
	f.Add([]byte(frame(kindOpen, 1, "") + frame(kindData, 1, "hello") + frame(kindEnd, 1, "")))
	f.Add([]byte(frame(kindOpen, 1, "") + frame(kindReset, 1, "") + frame(kindData, 1, "x")))
	f.Fuzz(func(t *testing.T, sent []byte) {
		s := Accept(bytesConn{bytes.NewReader(sent), io.Discard}, 4)
		<-s.Done()
		kept := 0
		for len(s.accepts) > 0 {
			st := <-s.accepts
			st.mu.Lock()
			kept += len(st.buf)
			st.mu.Unlock()
		}
		if kept > 4*Window {
			t.Errorf("%d bytes were kept", kept)
		}
	})
}
