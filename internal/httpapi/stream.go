package httpapi

import (
	"context"
	"net/http"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/internal/control"
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
	log, err := h.control.OpenLog(ctx, exchangeOf(ctx).caller, r.JobID, after)
	if err != nil {
		return nil, err
	}
	return &logStream{events: h.events(ctx), log: log, following: r.Params.Follow == nil || *r.Params.Follow}, nil
}

// logStream sends a log for as long as there is something to send. What a slow
// client costs is this, one batch of entries and a connection.
type logStream struct {
	*events
	log       *control.Log
	following bool
}

func (s *logStream) VisitGetJobLogResponse(w http.ResponseWriter) error {
	defer s.log.Close()
	return s.serve(w, s.follow)
}

func (s *logStream) follow(ctx context.Context) error {
	for {
		entries, ended, err := s.next(ctx)
		switch {
		case err != nil:
			return err
		case ended != nil:
			return s.last(ended)
		case len(entries) == 0 && !s.following:
			return interruption(notFollowing)
		}
		for _, e := range entries {
			if err := s.send("output", e.Seq, api.LogEvent{Type: "output", Output: fromEntry(e)}); err != nil {
				return err
			}
		}
	}
}

func (s *logStream) next(ctx context.Context) ([]run.LogEntry, *run.Job, error) {
	if !s.following {
		return s.log.Now(ctx)
	}
	return s.log.Next(ctx)
}

func (s *logStream) last(job *run.Job) error {
	end := api.LogEnd{State: api.JobState(job.State)}
	if o := fromOutcome(job.Outcome); o != nil {
		end.Outcome = *o
	}
	return s.send(lastWord, 0, api.LogEvent{Type: lastWord, End: &end})
}

func fromEntry(e run.LogEntry) *api.LogOutput {
	out := &api.LogOutput{Seq: e.Seq, Attempt: e.Attempt, Step: e.Step, Stream: e.Stream, Offset: e.Offset, At: e.At.UTC()}
	out.Text, out.Base64 = textOrBytes(e.Data)
	return out
}
