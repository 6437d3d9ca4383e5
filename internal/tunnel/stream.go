package tunnel

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

// errReset is a connection that the other side gave up or refused.
var errReset = errors.New("the connection was reset by the other side of the tunnel")

// Stream is one connection of a tunnel. One goroutine may read while another
// writes, and any may close.
type Stream struct {
	session *Session
	number  uint32

	mu      sync.Mutex
	changed sync.Cond // what a reader or a writer waits for has happened
	err     error     // why neither direction goes on
	// What came and was not read yet: buf[read:].
	buf      []byte
	read     int
	consumed int  // read, and the other side was not told
	theirEnd bool // nothing more will come
	ourEnd   bool // we said so
	credits  int  // bytes that may be sent
	readBy   deadline
	writeBy  deadline
}

func newStream(s *Session, number uint32) *Stream {
	st := &Stream{session: s, number: number, credits: Window}
	st.changed.L = &st.mu
	return st
}

// Read implements io.Reader.
func (st *Stream) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	st.mu.Lock()
	for len(st.buf) == st.read {
		switch {
		case st.theirEnd && !errors.Is(st.err, ErrClosed):
			st.mu.Unlock()
			return 0, io.EOF
		case st.err != nil:
			err := st.err
			st.mu.Unlock()
			return 0, err
		case st.readBy.passed:
			st.mu.Unlock()
			return 0, os.ErrDeadlineExceeded
		}
		st.changed.Wait()
	}
	n := copy(p, st.buf[st.read:])
	st.read += n
	if st.read == len(st.buf) {
		st.buf, st.read = nil, 0 // what is not under way takes no memory
	}
	st.consumed += n
	tell := 0
	// In large steps, or each read would cost a frame.
	if st.consumed >= Window/4 && st.err == nil && !st.theirEnd {
		tell, st.consumed = st.consumed, 0
	}
	st.mu.Unlock()
	if tell > 0 {
		if err := st.session.send(kindCredit, st.number, binary.BigEndian.AppendUint32(nil, uint32(tell))); err != nil {
			st.session.fail(err)
		}
	}
	return n, nil
}

// Write implements io.Writer. It waits while the other side does not read.
func (st *Stream) Write(p []byte) (written int, err error) {
	for written < len(p) {
		n, err := st.mayWrite(min(len(p)-written, maxData))
		if err != nil {
			return written, err
		}
		if err := st.session.send(kindData, st.number, p[written:written+n]); err != nil {
			st.session.fail(err)
			return written, ErrClosed
		}
		written += n
	}
	return written, nil
}

// mayWrite takes up to so many bytes of what may be sent, and waits for one.
func (st *Stream) mayWrite(n int) (int, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for {
		switch {
		case st.err != nil:
			return 0, st.err
		case st.ourEnd:
			return 0, ErrClosed
		case st.writeBy.passed:
			return 0, os.ErrDeadlineExceeded
		case st.credits > 0:
			n = min(n, st.credits)
			st.credits -= n
			return n, nil
		}
		st.changed.Wait()
	}
}

// CloseWrite lets the other side read end of file.
func (st *Stream) CloseWrite() error {
	st.mu.Lock()
	if st.err != nil || st.ourEnd {
		st.mu.Unlock()
		return nil
	}
	st.ourEnd = true
	over := st.theirEnd
	st.changed.Broadcast()
	st.mu.Unlock()
	if over {
		st.session.forget(st)
	}
	if err := st.session.send(kindEnd, st.number, nil); err != nil {
		st.session.fail(err)
		return ErrClosed
	}
	return nil
}

// Close ends the connection in both directions. The other side reads what was
// written before, and then end of file.
func (st *Stream) Close() error {
	_ = st.CloseWrite()
	st.mu.Lock()
	over := st.err != nil || st.theirEnd
	st.mu.Unlock()
	st.session.forget(st)
	st.abort(ErrClosed)
	if over {
		return nil
	}
	if err := st.session.send(kindReset, st.number, nil); err != nil {
		st.session.fail(err)
	}
	return nil
}

// abort ends both directions. What came before a reset can still be read.
func (st *Stream) abort(err error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.err == nil {
		st.err = err
	}
	if errors.Is(err, ErrClosed) {
		st.err = err
		st.buf, st.read = nil, 0
	}
	st.readBy.stop()
	st.writeBy.stop()
	st.changed.Broadcast()
}

// receive keeps what came.
func (st *Stream) receive(data []byte) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	switch {
	case st.err != nil:
		return nil
	case st.theirEnd:
		return errProtocol("sent data after its end")
	case len(st.buf)-st.read+st.consumed+len(data) > Window:
		return errProtocol("sent more than it may")
	}
	if st.read > 0 && len(st.buf)+len(data) > cap(st.buf) {
		st.buf = st.buf[:copy(st.buf, st.buf[st.read:])]
		st.read = 0
	}
	st.buf = append(st.buf, data...)
	st.changed.Broadcast()
	return nil
}

func (st *Stream) credit(n uint32) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if n > Window || st.credits+int(n) > Window {
		return errProtocol("allows more than was sent")
	}
	st.credits += int(n)
	st.changed.Broadcast()
	return nil
}

// ended notes that nothing more will come.
func (st *Stream) ended() {
	st.mu.Lock()
	st.theirEnd = true
	over := st.ourEnd
	st.changed.Broadcast()
	st.mu.Unlock()
	if over {
		st.session.forget(st)
	}
}

// SetDeadline bounds reads and writes.
func (st *Stream) SetDeadline(t time.Time) error {
	_ = st.SetReadDeadline(t)
	return st.SetWriteDeadline(t)
}

// SetReadDeadline makes reads fail from then on.
func (st *Stream) SetReadDeadline(t time.Time) error { return st.set(&st.readBy, t) }

// SetWriteDeadline makes writes fail from then on that have to wait.
func (st *Stream) SetWriteDeadline(t time.Time) error { return st.set(&st.writeBy, t) }

func (st *Stream) set(d *deadline, t time.Time) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	d.stop()
	d.passed = false
	if t.IsZero() || st.err != nil {
		return nil
	}
	d.set++
	this := d.set
	d.timer = time.AfterFunc(time.Until(t), func() {
		st.mu.Lock()
		defer st.mu.Unlock()
		if d.set == this {
			d.passed = true
			st.changed.Broadcast()
		}
	})
	return nil
}

// deadline of one direction.
type deadline struct {
	timer  *time.Timer
	set    int // how often it was, so that an old timer changes nothing
	passed bool
}

func (d *deadline) stop() {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
		d.set++
	}
}
