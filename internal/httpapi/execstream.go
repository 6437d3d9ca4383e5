package httpapi

import (
	"context"
	"net/http"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/internal/execenv"
)

func (h *handlers) RunExec(ctx context.Context, r RunExecRequestObject) (RunExecResponseObject, error) {
	x, err := h.start(ctx, r.SandboxID, *r.Body)
	if err != nil {
		return nil, err
	}
	return &execStream{events: h.events(ctx), exec: x, fresh: true}, nil
}

func (h *handlers) FollowExec(ctx context.Context, r FollowExecRequestObject) (FollowExecResponseObject, error) {
	from := r.Params.From
	if r.Params.LastEventID != 0 {
		from = r.Params.LastEventID
	}
	if from < 0 {
		return nil, refuse(api.ProblemCodeInvalid, "the offset to begin at is negative")
	}
	x, err := h.exec(ctx, r.SandboxID, r.ExecID)
	if err != nil {
		return nil, err
	}
	return &execStream{events: h.events(ctx), exec: x, from: from}, nil
}

// execStream sends what a command writes, and how it ends.
type execStream struct {
	*events
	exec  execenv.Exec
	from  int64
	fresh bool // it was started for this stream
}

func (s *execStream) VisitRunExecResponse(w http.ResponseWriter) error    { return s.visit(w) }
func (s *execStream) VisitFollowExecResponse(w http.ResponseWriter) error { return s.visit(w) }

func (s *execStream) visit(w http.ResponseWriter) error {
	return s.serve(w, s.follow)
}

func (s *execStream) follow(ctx context.Context) error {
	if s.fresh {
		if err := s.send("started", 0, api.ExecEvent{Type: "started", Started: &api.ExecStarted{ID: s.exec.ID()}}); err != nil {
			return err
		}
	}
	err := s.exec.Output(ctx, s.from, func(c execenv.Chunk) error {
		out := &api.ExecOutput{Stream: c.Stream.String(), Offset: c.Offset, Next: c.Offset + int64(len(c.Data))}
		out.Text, out.Base64 = textOrBytes(c.Data)
		return s.send("output", out.Next, api.ExecEvent{Type: "output", Output: out})
	})
	if err != nil {
		return err
	}
	result, err := s.exec.Wait(ctx)
	if err != nil {
		return err
	}
	end := fromResult(result)
	return s.send(lastWord, 0, api.ExecEvent{Type: lastWord, End: &end})
}
