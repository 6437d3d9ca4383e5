package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/internal/control"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// Reasons of an interruption.
const (
	forShutdown    = "shutdown"
	notFollowing   = "not_following"
	accessEnded    = "access_ended"
	forUnavailable = "unavailable"
)

func (h *handlers) GetJobLog(ctx context.Context, r GetJobLogRequestObject) (GetJobLogResponseObject, error) {
	after := r.Params.After
	if r.Params.LastEventID != 0 {
		after = r.Params.LastEventID
	}
	if after < 0 {
		return nil, refuse(api.ProblemCodeInvalid, "the place to begin after is negative")
	}
	x := exchangeOf(ctx)
	log, err := h.control.OpenLog(ctx, x.caller, r.JobID, after)
	if err != nil {
		return nil, err
	}
	s := &logStream{API: h.API, x: x, ctx: ctx, log: log, follow: r.Params.Follow == nil || *r.Params.Follow}
	s.sse = accepted(x.route.gives, x.r.Header.Values("Accept")) == sseType
	return s, nil
}

// logStream sends a log for as long as there is something to send. What a slow
// client costs is this, one batch of entries and a connection.
type logStream struct {
	*API
	x      *exchange
	ctx    context.Context
	log    *control.Log
	follow bool
	sse    bool
	out    io.Writer
	conn   *http.ResponseController
	// checked is when the caller was last asked for.
	checked time.Time
}

// VisitGetJobLogResponse sends the stream. Whatever happens, its last event
// says why there are no more; a stream without one was cut.
func (s *logStream) VisitGetJobLogResponse(w http.ResponseWriter) error {
	defer s.log.Close()
	s.metrics.streams.Inc()
	defer s.metrics.streams.Dec()
	s.checked = time.Now()
	s.out, s.conn = steadyWriter(w, s.cfg.Timing.Stall), http.NewResponseController(w)
	h := w.Header()
	h.Set("Content-Type", ndjsonType)
	if s.sse {
		h.Set("Content-Type", sseType)
	}
	h.Set("X-Accel-Buffering", "no") // proxies that hold streams back
	w.WriteHeader(http.StatusOK)
	if err := s.conn.Flush(); err != nil {
		return err
	}
	for {
		last, err := s.step()
		if err != nil || last {
			return err
		}
	}
}

// step sends what there is next, and reports whether that was the last.
func (s *logStream) step() (last bool, _ error) {
	if s.stopping() {
		return true, s.interrupted(forShutdown)
	}
	if s.expelled() {
		return true, s.interrupted(accessEnded)
	}
	entries, ended, err := s.next()
	switch {
	case s.ctx.Err() != nil: // the client is gone
		return true, nil
	case err != nil:
		s.x.err = err
		return true, s.interrupted(forUnavailable)
	case ended != nil:
		end := api.LogEnd{State: api.JobState(ended.State)}
		if o := fromOutcome(ended.Outcome); o != nil {
			end.Outcome = *o
		}
		return true, s.send(0, api.LogEvent{Type: "end", End: &end})
	case len(entries) > 0:
		return false, s.output(entries)
	case !s.follow:
		return true, s.interrupted(notFollowing)
	case s.stopping():
		return true, s.interrupted(forShutdown)
	}
	return false, s.beat()
}

func (s *logStream) next() ([]run.LogEntry, *run.Job, error) {
	if !s.follow {
		return s.log.Now(s.ctx)
	}
	return s.log.Next(s.ctx, s.cfg.Timing.Heartbeat, s.draining)
}

func (s *logStream) output(entries []run.LogEntry) error {
	for _, e := range entries {
		if err := s.send(e.Seq, api.LogEvent{Type: "output", Output: fromEntry(e)}); err != nil {
			return err
		}
	}
	return nil
}

func (s *logStream) stopping() bool {
	select {
	case <-s.draining:
		return true
	default:
		return false
	}
}

// expelled reports whether the caller's key has been taken away meanwhile. It
// asks once in a heartbeat, however much there is to send.
func (s *logStream) expelled() bool {
	if s.cfg.Auth != AuthAPIKey || time.Since(s.checked) < s.cfg.Timing.Heartbeat {
		return false
	}
	s.checked = time.Now()
	_, err := s.control.Authenticate(s.ctx, s.x.secret)
	return fault.Is(err, control.Unauthenticated) || fault.Is(err, fault.Denied)
}

// beat shows that the connection lives.
func (s *logStream) beat() error {
	if s.sse {
		return s.write([]byte(": heartbeat\n\n"))
	}
	return s.send(0, api.LogEvent{Type: "heartbeat"})
}

func (s *logStream) interrupted(reason string) error {
	return s.send(0, api.LogEvent{Type: "interrupted", Interrupted: &api.LogInterrupted{Reason: reason}})
}

func (s *logStream) send(id int64, event api.LogEvent) error {
	data, err := json.Marshal(event)
	if err != nil {
		return err
	}
	if !s.sse {
		return s.write(append(data, '\n'))
	}
	var b bytes.Buffer
	if id > 0 {
		fmt.Fprintf(&b, "id: %d\n", id)
	}
	fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", event.Type, data)
	return s.write(b.Bytes())
}

func (s *logStream) write(p []byte) error {
	if _, err := s.out.Write(p); err != nil {
		return err
	}
	return s.conn.Flush()
}

func fromEntry(e run.LogEntry) *api.LogOutput {
	out := &api.LogOutput{Seq: e.Seq, Attempt: e.Attempt, Step: e.Step, Stream: e.Stream, Offset: e.Offset, At: e.At.UTC()}
	out.Text, out.Base64 = textOrBytes(e.Data)
	return out
}
