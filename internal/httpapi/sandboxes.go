package httpapi

import (
	"context"
	"strings"
	"time"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/internal/control"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/live"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
)

// sandboxes are the use cases of live sandboxes, where this service has them.
func (h *handlers) sandboxes() (*live.Sandboxes, error) {
	if h.live == nil {
		return nil, fault.New(fault.Unsupported, "this service has no live sandboxes; its operator names no execution service (AGENTDOCK_API_EXECDS)")
	}
	return h.live, nil
}

// open gives the sandbox of a request into its caller's hands.
func (h *handlers) open(ctx context.Context, id string) (*live.Handle, error) {
	s, err := h.sandboxes()
	if err != nil {
		return nil, err
	}
	return s.Open(ctx, h.caller(ctx), id)
}

func (h *handlers) CreateSandbox(ctx context.Context, r CreateSandboxRequestObject) (CreateSandboxResponseObject, error) {
	s, err := h.sandboxes()
	if err != nil {
		return nil, err
	}
	limits, err := limitsOf(r.Body.Limits)
	if err != nil {
		return nil, err
	}
	ttl, err := milliseconds("ttl_ms", r.Body.TTLMS)
	if err != nil {
		return nil, err
	}
	box, created, err := s.Create(ctx, h.caller(ctx), live.Request{
		Image: r.Body.Image, Env: r.Body.Env, Limits: limits, Labels: r.Body.Labels, TTL: ttl, IdempotencyKey: r.Params.IdempotencyKey,
	})
	if err != nil {
		return nil, err
	}
	location := "/v1/sandboxes/" + box.ID
	if !created {
		return CreateSandbox200JSONResponse{Body: fromSandbox(box), Headers: CreateSandbox200ResponseHeaders{Location: location}}, nil
	}
	return CreateSandbox201JSONResponse{Body: fromSandbox(box), Headers: CreateSandbox201ResponseHeaders{Location: location}}, nil
}

func (h *handlers) ListSandboxes(ctx context.Context, r ListSandboxesRequestObject) (ListSandboxesResponseObject, error) {
	s, err := h.sandboxes()
	if err != nil {
		return nil, err
	}
	q := store.SandboxQuery{Limit: r.Params.Limit, Cursor: r.Params.Cursor}
	for _, state := range r.Params.State {
		q.States = append(q.States, run.SandboxState(state))
	}
	if q.Labels, err = labelsOf(r.Params.Label); err != nil {
		return nil, err
	}
	page, err := s.List(ctx, h.caller(ctx), q)
	if err != nil {
		return nil, err
	}
	list := api.SandboxList{Sandboxes: make([]api.Sandbox, 0, len(page.Sandboxes)), Next: page.Next}
	for _, box := range page.Sandboxes {
		list.Sandboxes = append(list.Sandboxes, fromSandbox(box))
	}
	return ListSandboxes200JSONResponse(list), nil
}

// labelsOf reads labels that are all wanted, each written as name=value.
func labelsOf(texts []string) (map[string]string, error) {
	var labels map[string]string
	for _, l := range texts {
		name, value, ok := strings.Cut(l, "=")
		if !ok {
			return nil, refuse(api.ProblemCodeInvalid, "a label is not written as name=value")
		}
		if old, twice := labels[name]; twice && old != value {
			return nil, refuse(api.ProblemCodeInvalid, "nothing has two values for one label")
		}
		if labels == nil {
			labels = map[string]string{}
		}
		labels[name] = value
	}
	return labels, nil
}

func (h *handlers) GetSandbox(ctx context.Context, r GetSandboxRequestObject) (GetSandboxResponseObject, error) {
	s, err := h.sandboxes()
	if err != nil {
		return nil, err
	}
	box, err := s.Get(ctx, h.caller(ctx), r.SandboxID)
	if err != nil {
		return nil, err
	}
	return GetSandbox200JSONResponse(fromSandbox(box)), nil
}

func (h *handlers) KillSandbox(ctx context.Context, r KillSandboxRequestObject) (KillSandboxResponseObject, error) {
	s, err := h.sandboxes()
	if err != nil {
		return nil, err
	}
	box, err := s.Kill(ctx, h.caller(ctx), r.SandboxID)
	if err != nil {
		return nil, err
	}
	return KillSandbox200JSONResponse(fromSandbox(box)), nil
}

func (h *handlers) ExtendSandbox(ctx context.Context, r ExtendSandboxRequestObject) (ExtendSandboxResponseObject, error) {
	s, err := h.sandboxes()
	if err != nil {
		return nil, err
	}
	ttl, err := milliseconds("ttl_ms", r.Body.TTLMS)
	if err != nil {
		return nil, err
	}
	box, err := s.Extend(ctx, h.caller(ctx), r.SandboxID, ttl, r.Body.AtLeast)
	if err != nil {
		return nil, err
	}
	return ExtendSandbox200JSONResponse(fromSandbox(box)), nil
}

func (h *handlers) PauseSandbox(ctx context.Context, r PauseSandboxRequestObject) (PauseSandboxResponseObject, error) {
	s, err := h.sandboxes()
	if err != nil {
		return nil, err
	}
	box, err := s.Pause(ctx, h.caller(ctx), r.SandboxID)
	if err != nil {
		return nil, err
	}
	return PauseSandbox200JSONResponse(fromSandbox(box)), nil
}

func (h *handlers) ResumeSandbox(ctx context.Context, r ResumeSandboxRequestObject) (ResumeSandboxResponseObject, error) {
	s, err := h.sandboxes()
	if err != nil {
		return nil, err
	}
	ttl, err := milliseconds("ttl_ms", r.Body.TTLMS)
	if err != nil {
		return nil, err
	}
	box, err := s.Resume(ctx, h.caller(ctx), r.SandboxID, ttl)
	if err != nil {
		return nil, err
	}
	return ResumeSandbox200JSONResponse(fromSandbox(box)), nil
}

func (h *handlers) GetSandboxMetrics(ctx context.Context, r GetSandboxMetricsRequestObject) (GetSandboxMetricsResponseObject, error) {
	s, err := h.sandboxes()
	if err != nil {
		return nil, err
	}
	box, samples, err := s.Metrics(ctx, h.caller(ctx), r.SandboxID)
	if err != nil {
		return nil, err
	}
	m := api.SandboxMetrics{Limits: fromLimits(box.Spec.Limits), Samples: []api.SandboxSample{}}
	for _, sample := range samples {
		m.Samples = append(m.Samples, api.SandboxSample{At: sample.At.UTC(), Usage: fromUsage(sample.Usage)})
	}
	return GetSandboxMetrics200JSONResponse(m), nil
}

// fromSandbox leaves out where it runs, which is the operator's business, and
// its access token, which is for other protocols.
func fromSandbox(b run.Sandbox) api.Sandbox {
	s := api.Sandbox{
		ID: b.ID, State: api.SandboxState(b.State), Image: b.Spec.Image, EnvNames: b.Spec.EnvNames,
		Limits: fromLimits(b.Spec.Limits), Labels: b.Spec.Labels, Outcome: fromOutcome(b.Outcome), Resolved: fromResolved(b.Resolved),
		CreatedAt: b.CreatedAt.UTC(), ExpiresAt: b.ExpiresAt.UTC(), Deadline: b.Deadline.UTC(), EndedAt: utc(b.EndedAt),
	}
	if s.EnvNames == nil {
		s.EnvNames = []string{}
	}
	if s.Labels == nil {
		s.Labels = map[string]string{}
	}
	return s
}

// milliseconds reads a time of a request that is about no job.
func milliseconds(field string, ms int64) (time.Duration, error) {
	d, err := control.Milliseconds(field, ms)
	if err != nil {
		return 0, refuse(api.ProblemCodeInvalid, field+" is out of range")
	}
	return d, nil
}
