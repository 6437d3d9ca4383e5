package telemetry

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
)

// Store measures what an API or a worker does with the record. A job that is
// made gets the trace context of the request that makes it; a job that is
// claimed is a span that continues that trace until the worker lets go of it.
func (t *Telemetry) Store(s store.Store) store.Store {
	return &measuredStore{Store: s, t: t}
}

type measuredStore struct {
	store.Store
	t *Telemetry
}

func (m *measuredStore) CreateJob(ctx context.Context, job store.NewJob) (run.Job, bool, error) {
	if job.TraceParent == "" {
		job.TraceParent = traceParent(ctx)
	}
	return m.Store.CreateJob(ctx, job)
}

func (m *measuredStore) Claim(ctx context.Context, worker string, ttl time.Duration) (store.Claimed, bool, error) {
	c, ok, err := m.Store.Claim(ctx, worker, ttl)
	if err == nil && ok {
		if c.Job.Attempt == 1 && !c.Adopted {
			m.t.Metrics.claimDelay.Observe(max(0, time.Since(c.Job.CreatedAt).Seconds()))
		}
		m.t.beginJob(c)
	}
	return c, ok, err
}

// ActiveAttempts is the question that every sweep asks.
func (m *measuredStore) ActiveAttempts(ctx context.Context, of []store.Attempt) (map[store.Attempt]bool, error) {
	m.t.Metrics.sweeps.Inc()
	return m.Store.ActiveAttempts(ctx, of)
}

func (m *measuredStore) Finish(ctx context.Context, l store.Lease, end store.End) error {
	err := m.held(l, m.Store.Finish(ctx, l, end))
	if err == nil {
		m.t.Metrics.outcomes.WithLabelValues(string(end.State), string(end.Outcome.Kind)).Inc()
		m.t.endJob(l.JobID, attribute.String("agentdock.state", string(end.State)), attribute.String("agentdock.outcome", string(end.Outcome.Kind)))
	}
	return err
}

func (m *measuredStore) Requeue(ctx context.Context, l store.Lease, lost bool) error {
	err := m.held(l, m.Store.Requeue(ctx, l, lost))
	if err == nil {
		m.t.Metrics.requeued.Inc()
		m.t.endJob(l.JobID, attribute.Bool("agentdock.requeued", true), attribute.Bool("agentdock.lost", lost))
	}
	return err
}

func (m *measuredStore) Renew(ctx context.Context, l store.Lease, ttl time.Duration) (bool, error) {
	cancel, err := m.Store.Renew(ctx, l, ttl)
	return cancel, m.held(l, err)
}

func (m *measuredStore) Place(ctx context.Context, l store.Lease, node string) error {
	return m.held(l, m.Store.Place(ctx, l, node))
}

func (m *measuredStore) Resolve(ctx context.Context, l store.Lease, r run.Resolved) error {
	return m.held(l, m.Store.Resolve(ctx, l, r))
}

func (m *measuredStore) StartStep(ctx context.Context, l store.Lease, step run.Step) error {
	return m.held(l, m.Store.StartStep(ctx, l, step))
}

func (m *measuredStore) EndStep(ctx context.Context, l store.Lease, step run.Step) error {
	return m.held(l, m.Store.EndStep(ctx, l, step))
}

func (m *measuredStore) AppendLog(ctx context.Context, l store.Lease, entries []run.LogEntry) (int64, error) {
	end, err := m.Store.AppendLog(ctx, l, entries)
	return end, m.held(l, err)
}

// held counts a lease once that turns out to be another's.
func (m *measuredStore) held(l store.Lease, err error) error {
	if fault.Is(err, fault.Gone) && m.t.endJob(l.JobID, attribute.Bool("agentdock.lease_lost", true)) {
		m.t.Metrics.leasesLost.Inc()
	}
	return err
}

// jobs are the spans of jobs that this process has.
type jobs struct {
	mu   sync.Mutex
	open map[string]trace.Span
	// over are those of jobs that have ended and whose sandbox may be there: its
	// end belongs to the job too.
	over map[string]trace.Span
}

// keptOver bounds the jobs that have ended and are remembered: of some, no
// sandbox is ever destroyed here. When there are more, what is lost is where the
// end of a sandbox belongs.
const keptOver = 1000

func newJobs() jobs {
	return jobs{open: map[string]trace.Span{}, over: map[string]trace.Span{}}
}

func (t *Telemetry) beginJob(c store.Claimed) {
	ctx := continueTrace(context.Background(), c.Job.TraceParent)
	_, span := t.tracer.Start(ctx, "job", trace.WithAttributes(
		attribute.String("agentdock.job", c.Job.ID), attribute.String("agentdock.tenant", c.Job.TenantID),
		attribute.Int("agentdock.attempt", c.Job.Attempt), attribute.Bool("agentdock.adopted", c.Adopted)))
	t.jobs.mu.Lock()
	defer t.jobs.mu.Unlock()
	if before := t.jobs.open[c.Job.ID]; before != nil {
		before.End()
	}
	t.jobs.open[c.Job.ID] = span
	delete(t.jobs.over, c.Job.ID)
}

// endJob says whether there was one to end.
func (t *Telemetry) endJob(id string, attrs ...attribute.KeyValue) bool {
	t.jobs.mu.Lock()
	defer t.jobs.mu.Unlock()
	span, ok := t.jobs.open[id]
	if ok {
		span.SetAttributes(attrs...)
		span.End()
		delete(t.jobs.open, id)
		if len(t.jobs.over) >= keptOver {
			clear(t.jobs.over)
		}
		t.jobs.over[id] = span
	}
	return ok
}

// forgetJob is for a job of which no sandbox is left.
func (t *Telemetry) forgetJob(id string) {
	t.jobs.mu.Lock()
	defer t.jobs.mu.Unlock()
	delete(t.jobs.over, id)
}

// endJobs is for jobs that a process which stops has let go of.
func (t *Telemetry) endJobs() {
	t.jobs.mu.Lock()
	defer t.jobs.mu.Unlock()
	for id, span := range t.jobs.open {
		span.End()
		delete(t.jobs.open, id)
	}
}

// inJob puts the span of the job into ctx that work for it belongs to, unless
// ctx is in one already.
func (t *Telemetry) inJob(ctx context.Context, id string) context.Context {
	if trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	t.jobs.mu.Lock()
	defer t.jobs.mu.Unlock()
	for _, jobs := range []map[string]trace.Span{t.jobs.open, t.jobs.over} {
		if span, ok := jobs[id]; ok {
			return trace.ContextWithSpan(ctx, span)
		}
	}
	return ctx
}
