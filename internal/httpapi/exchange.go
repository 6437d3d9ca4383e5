package httpapi

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/agentdock/agentdock/internal/control"
)

// exchange is one request and what is known about it so far.
type exchange struct {
	id     string
	begin  time.Time
	w      *responseWriter
	r      *http.Request
	route  *route
	caller control.Caller
	// secret is what the caller showed, for streams, which look again.
	secret string
	// read says that there is nothing left of the body.
	read bool
	// release gives back what the request holds while it lasts.
	release func()
	// err is why the request failed, for the log.
	err error
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	x, ok := ctx.Value(exchangeKey{}).(*exchange)
	if !ok {
		panic("httpapi: a request came past ServeHTTP")
	}
	return x
}

// responseWriter notes what was answered.
type responseWriter struct {
	http.ResponseWriter
	status int
	bytes  int64
}

func (w *responseWriter) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *responseWriter) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (w *responseWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// ServeHTTP gives every request an id, headers that hold whatever comes out of
// it, one line in the log, and an answer even if serving it panics.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{id: rand.Text(), begin: time.Now(), w: &responseWriter{ResponseWriter: w}}
	x.caller.Remote = remoteHost(r.RemoteAddr)
	x.r = r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
	h := w.Header()
	h.Set("X-Request-Id", x.id)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	defer a.finish(x)
	if err := a.admitLocal(x); err != nil {
		a.fail(x.w, x.r, err)
		return
	}
	if a.cfg.Facade != nil && a.cfg.Facade.Claims(x.r) {
		a.serveFacade(x)
		return
	}
	if err := a.admit(x); err != nil {
		a.fail(x.w, x.r, err)
		return
	}
	a.router.ServeHTTP(x.w, x.r)
}

func (a *API) finish(x *exchange) {
	cause := recover()
	if x.release != nil {
		x.release()
	}
	aborted := false
	if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		aborted = true
	} else if cause != nil {
		x.err = fmt.Errorf("panic: %v", cause)
		a.log.ErrorContext(x.r.Context(), "a request panicked", slog.String("request_id", x.id),
			slog.Any("panic", cause), slog.String("stack", string(debug.Stack())))
		if aborted = x.w.status != 0; !aborted {
			a.fail(x.w, x.r, x.err)
		}
	}
	a.note(x, aborted)
	if aborted {
		panic(http.ErrAbortHandler) // cuts the connection
	}
}

// note writes the line of the access log. It has no query, no header and nothing
// of a body: those hold what callers want to keep to themselves.
func (a *API) note(x *exchange, aborted bool) {
	operation := "none"
	if x.route != nil {
		operation = x.route.operation
	}
	status := strconv.Itoa(x.w.status)
	if aborted {
		status = "aborted"
	}
	level := slog.LevelInfo
	attrs := []slog.Attr{
		slog.String("request_id", x.id), slog.String("operation", operation), slog.String("method", clip(x.r.Method)),
		slog.String("path", clip(x.r.URL.Path)), slog.String("status", status), slog.Int64("bytes", x.w.bytes),
		slog.Duration("took", time.Since(x.begin)), slog.String("remote", x.caller.Remote),
	}
	if x.caller.Tenant.ID != "" {
		attrs = append(attrs, slog.String("tenant", x.caller.Tenant.ID), slog.String("key", x.caller.KeyID))
	}
	if x.err != nil {
		attrs = append(attrs, slog.String("error", x.err.Error()))
		if x.w.status >= http.StatusInternalServerError {
			level = slog.LevelError
		}
	}
	a.log.LogAttrs(x.r.Context(), level, "request", attrs...)
}

func remoteHost(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return host
}
