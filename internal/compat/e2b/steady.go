package e2b

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// steadyWriter is an answer that may take as long as it wants, as long as its
// client takes something from time to time.
type steadyWriter struct {
	http.ResponseWriter
	conn  *http.ResponseController
	stall time.Duration
}

func steady(w http.ResponseWriter, r *http.Request, stall time.Duration) *steadyWriter {
	s := &steadyWriter{w, http.NewResponseController(w), stall}
	_ = s.conn.SetWriteDeadline(time.Time{}) // until something is written
	_ = s.conn.SetReadDeadline(time.Now().Add(stall))
	if r.ContentLength == 0 {
		_ = s.conn.SetReadDeadline(time.Time{})
	}
	return s
}

func (s *steadyWriter) Write(p []byte) (int, error) {
	_ = s.conn.SetWriteDeadline(time.Now().Add(s.stall))
	return s.ResponseWriter.Write(p)
}

func (s *steadyWriter) Flush() {
	_ = s.conn.SetWriteDeadline(time.Now().Add(s.stall))
	_ = s.conn.Flush()
	// What comes next may come late; only sending it must not take long.
	_ = s.conn.SetWriteDeadline(time.Time{})
}

func (s *steadyWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *steadyWriter) body(b io.ReadCloser) io.ReadCloser { return &steadyBody{b, s} }

type steadyBody struct {
	io.ReadCloser
	s *steadyWriter
}

func (b *steadyBody) Read(p []byte) (int, error) {
	_ = b.s.conn.SetReadDeadline(time.Now().Add(b.s.stall))
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		// A deadline that passes later would end the request.
		_ = b.s.conn.SetReadDeadline(time.Time{})
	}
	return n, err
}
