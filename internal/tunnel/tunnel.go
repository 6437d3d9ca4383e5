// Package tunnel carries many connections over one stream of bytes, such as the
// only descriptor that a sandbox has to the outside. One side opens, the other
// accepts.
//
// A frame is a kind, a length of two bytes, the connection's number of four, and
// as many bytes. Numbers grow and are never used again.
//
// The other side may be hostile. What it can make this side keep is bounded to the
// byte: Window for each connection, and at most Config.Streams of them. Whatever
// it may not send ends the session. It rests on the standard library without
// package net, because the helper inside sandboxes links it.
package tunnel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

const (
	// Window is how many bytes of a connection may be under way without being
	// read.
	Window = 256 << 10
	// maxData is the most in one frame.
	maxData = 32 << 10
	// maxRefused is how many refusals may wait to be told. A peer that opens more
	// and does not listen is not worth an answer.
	maxRefused = 4096
	// maxNumber is the last connection that a session can have.
	maxNumber = 1<<32 - 1
)

// kind of a frame.
type kind uint8

const (
	kindOpen   kind = 1
	kindData   kind = 2
	kindCredit kind = 3 // so many bytes more may be sent
	kindEnd    kind = 4 // no data follows in this direction
	kindReset  kind = 5 // nothing follows in either
)

const headerBytes = 8

// ErrClosed is what calls on a session or connection return that has ended.
var ErrClosed = errors.New("the tunnel is closed")

// errProtocol is a peer that does what it may not.
func errProtocol(what string) error { return fmt.Errorf("the other side of the tunnel %s", what) }

// Session is one side of a tunnel.
type Session struct {
	conn io.ReadWriteCloser
	most int

	writeMu sync.Mutex
	frame   [headerBytes + maxData]byte // guarded by writeMu

	accepts chan *Stream
	refused chan uint32
	done    chan struct{}

	mu      sync.Mutex
	streams map[uint32]*Stream
	last    uint32 // the newest connection, of either side
	err     error  // why it ended
}

// Open is the side that opens connections.
func Open(conn io.ReadWriteCloser) *Session { return start(conn, 0) }

// Accept is the side that accepts them, of which at most so many are open at once.
// Others are reset.
func Accept(conn io.ReadWriteCloser, most int) *Session { return start(conn, most) }

func start(conn io.ReadWriteCloser, most int) *Session {
	s := &Session{
		conn: conn, most: most, streams: map[uint32]*Stream{}, done: make(chan struct{}),
		accepts: make(chan *Stream, most), refused: make(chan uint32, maxRefused),
	}
	go func() { s.fail(s.receive()) }()
	go s.refuse()
	return s
}

// Done is closed when the session has ended.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err says why it has ended.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close ends the session and all its connections.
func (s *Session) Close() error {
	s.fail(ErrClosed)
	return nil
}

func (s *Session) fail(err error) {
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return
	}
	s.err = err
	streams := s.streams
	s.streams = map[uint32]*Stream{}
	s.mu.Unlock()
	close(s.done)
	_ = s.conn.Close()
	for _, st := range streams {
		st.abort(ErrClosed)
	}
}

// Open opens a connection. It may be refused later: then reading from it fails.
func (s *Session) Open() (*Stream, error) {
	s.mu.Lock()
	if s.err != nil || s.last == maxNumber {
		s.mu.Unlock()
		return nil, ErrClosed
	}
	s.last++
	st := newStream(s, s.last)
	s.streams[st.number] = st
	// Numbers must arrive in their order, so the frame is sent before the next
	// one is handed out.
	s.writeMu.Lock()
	s.mu.Unlock()
	err := s.sendLocked(kindOpen, st.number, nil)
	s.writeMu.Unlock()
	if err != nil {
		s.fail(err)
		return nil, ErrClosed
	}
	return st, nil
}

// Accept waits for the next connection.
func (s *Session) Accept() (*Stream, error) {
	select {
	case st := <-s.accepts:
		return st, nil
	case <-s.done:
		return nil, ErrClosed
	}
}

func (s *Session) send(k kind, number uint32, data []byte) error {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	return s.sendLocked(k, number, data)
}

func (s *Session) sendLocked(k kind, number uint32, data []byte) error {
	s.frame[0] = byte(k)
	s.frame[1] = 0
	binary.BigEndian.PutUint16(s.frame[2:], uint16(len(data)))
	binary.BigEndian.PutUint32(s.frame[4:], number)
	n := headerBytes + copy(s.frame[headerBytes:], data)
	_, err := s.conn.Write(s.frame[:n])
	return err
}

// refuse tells the other side of connections that were not accepted. receive does
// not do so itself: it must go on reading while the other side reads nothing.
func (s *Session) refuse() {
	for {
		select {
		case number := <-s.refused:
			if err := s.send(kindReset, number, nil); err != nil {
				s.fail(err)
				return
			}
		case <-s.done:
			return
		}
	}
}

// receive reads frames until the stream ends or the other side breaks a rule.
func (s *Session) receive() error {
	var header [headerBytes]byte
	data := make([]byte, maxData)
	for {
		if _, err := io.ReadFull(s.conn, header[:]); err != nil {
			return err
		}
		size, number := int(binary.BigEndian.Uint16(header[2:])), binary.BigEndian.Uint32(header[4:])
		if size > maxData || header[1] != 0 {
			return errProtocol("sent a frame that cannot be")
		}
		if _, err := io.ReadFull(s.conn, data[:size]); err != nil {
			return err
		}
		if err := s.take(kind(header[0]), number, data[:size]); err != nil {
			return err
		}
	}
}

func (s *Session) take(k kind, number uint32, data []byte) error {
	if k == kindOpen {
		return s.accept(number, data)
	}
	s.mu.Lock()
	st, known := s.streams[number], number <= s.last
	s.mu.Unlock()
	switch {
	case !known:
		return errProtocol("spoke of a connection that never was")
	case st == nil:
		return nil // it was closed here, and the other side does not know yet
	}
	switch k {
	case kindData:
		return st.receive(data)
	case kindCredit:
		if len(data) != 4 {
			return errProtocol("sent a frame that cannot be")
		}
		return st.credit(binary.BigEndian.Uint32(data))
	case kindEnd:
		st.ended()
		return nil
	case kindReset:
		s.forget(st)
		st.abort(errReset)
		return nil
	}
	return errProtocol("sent a frame of a kind that there is not")
}

func (s *Session) accept(number uint32, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.most == 0 || number <= s.last || len(data) > 0 {
		return errProtocol("opened a connection that it may not")
	}
	s.last = number
	if s.err == nil && len(s.streams) < s.most {
		st := newStream(s, number)
		select {
		case s.accepts <- st:
			s.streams[number] = st
			return nil
		default: // some were closed before anybody took them
		}
	}
	select {
	case s.refused <- number:
		return nil
	default:
		return errProtocol("opens connections and does not read that they are refused")
	}
}

func (s *Session) forget(st *Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, st.number)
}
