package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/internal/control"
	"github.com/agentdock/agentdock/internal/fault"
)

// events is a stream of events, as server-sent events or as one JSON object per
// line. It says that the connection lives, and, unless its source has said the
// last word, why it ends. Nothing follows the last word.
type events struct {
	*API
	x   *exchange
	ctx context.Context
	sse bool

	mu   sync.Mutex // of what follows, and of the connection
	out  io.Writer
	conn *http.ResponseController
	// broken is why nothing more can be sent.
	broken error
	// over is set with the last word.
	over bool
}

// lastWord is the kind of event that says how what was followed ended.
const lastWord = "end"

func (h *handlers) events(ctx context.Context) *events {
	x := exchangeOf(ctx)
	return &events{API: h.API, x: x, ctx: ctx, sse: accepted(x.route.gives, x.r.Header.Values("Accept")) == sseType}
}

// interruption is why a stream is ended from here.
type interruption string

func (i interruption) Error() string { return string(i) }

// serve sends what a source sends until it returns. A source that returns an
// error has not said the last word.
func (e *events) serve(w http.ResponseWriter, source func(context.Context) error) error {
	e.metrics.streams.Inc()
	defer e.metrics.streams.Dec()
	e.out, e.conn = steadyWriter(w, e.cfg.Timing.Stall), http.NewResponseController(w)
	h := w.Header()
	h.Set("Content-Type", ndjsonType)
	if e.sse {
		h.Set("Content-Type", sseType)
	}
	h.Set("X-Accel-Buffering", "no") // proxies that hold streams back
	w.WriteHeader(http.StatusOK)
	if err := e.conn.Flush(); err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(e.ctx)
	var beating sync.WaitGroup
	beating.Go(func() { e.beat(ctx, stop) })
	err := source(ctx)
	why := context.Cause(ctx)
	stop(nil)
	beating.Wait()
	return e.end(err, why)
}

// end says the last word where the source has not.
func (e *events) end(err, why error) error {
	var reason interruption
	switch {
	case err == nil:
		return nil
	case e.broken != nil:
		return e.broken
	case errors.As(why, &reason), errors.As(err, &reason):
	case e.ctx.Err() != nil: // the client is gone
		return nil
	default:
		e.x.err = err
		reason = forUnavailable
	}
	return e.interrupted(string(reason))
}

func (e *events) interrupted(reason string) error {
	return e.send("interrupted", 0, api.ExecEvent{Type: "interrupted", Interrupted: &api.LogInterrupted{Reason: reason}})
}

// beat shows that the connection lives, and ends the stream when the service
// stops or its caller's key has been taken away.
func (e *events) beat(ctx context.Context, stop context.CancelCauseFunc) {
	ticker := time.NewTicker(e.cfg.Timing.Heartbeat)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.draining:
			stop(interruption(forShutdown))
			return
		case <-ticker.C:
		}
		if e.cfg.Auth == AuthAPIKey {
			if _, err := e.control.Authenticate(ctx, e.x.secret); fault.Is(err, control.Unauthenticated) || fault.Is(err, fault.Denied) {
				stop(interruption(accessEnded))
				return
			}
		}
		if err := e.heartbeat(); err != nil {
			stop(err)
			return
		}
	}
}

func (e *events) heartbeat() error {
	if e.sse {
		return e.write([]byte(": heartbeat\n\n"), false)
	}
	return e.send("heartbeat", 0, api.ExecEvent{Type: "heartbeat"})
}

// send sends one event; id is where to resume after it, if that is anywhere.
func (e *events) send(kind string, id int64, event any) error {
	data, err := json.Marshal(event)
	if err != nil {
		return err
	}
	if !e.sse {
		return e.write(append(data, '\n'), kind == lastWord)
	}
	var b bytes.Buffer
	if id > 0 {
		fmt.Fprintf(&b, "id: %d\n", id)
	}
	fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", kind, data)
	return e.write(b.Bytes(), kind == lastWord)
}

func (e *events) write(p []byte, last bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.broken != nil || e.over {
		return e.broken
	}
	e.over = last
	if _, e.broken = e.out.Write(p); e.broken == nil {
		e.broken = e.conn.Flush()
	}
	return e.broken
}

// textOrBytes writes bytes as text where nothing of them is lost by that.
func textOrBytes(p []byte) (string, []byte) {
	if utf8.Valid(p) && bytes.IndexByte(p, 0) < 0 {
		return string(p), nil
	}
	return "", bytes.Clone(p)
}
