package telemetry

import (
	"context"
	"io"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
)

// Connection is an execution service that answered.
type Connection interface {
	execenv.Environment
	Close()
}

// Environment measures an execution service by the name jobs have on record.
func (t *Telemetry) Environment(node string, c Connection) Connection {
	return &measuredEnvironment{Connection: c, t: t, node: node}
}

type measuredEnvironment struct {
	Connection
	t    *Telemetry
	node string
}

// jobOf is the job that a sandbox is for: sandboxes are named JOB-ATTEMPT.
func jobOf(sandbox string) string {
	if i := strings.LastIndexByte(sandbox, '-'); i > 0 {
		return sandbox[:i]
	}
	return sandbox
}

// result is "ok" or the code of a fault: few values.
func result(err error) string {
	if err == nil {
		return "ok"
	}
	return string(fault.CodeOf(err))
}

func (m *measuredEnvironment) Create(ctx context.Context, spec execenv.Spec) (execenv.Sandbox, error) {
	ctx, end := m.t.Span(m.t.inJob(ctx, jobOf(spec.ID)), "sandbox.create", m.about(spec.ID)...)
	begin := time.Now()
	sb, err := m.Connection.Create(ctx, spec)
	m.t.Metrics.createSeconds.WithLabelValues(m.node, result(err)).Observe(time.Since(begin).Seconds())
	end(err)
	return m.sandbox(sb, err)
}

func (m *measuredEnvironment) Attach(ctx context.Context, id string) (execenv.Sandbox, error) {
	sb, err := m.Connection.Attach(m.t.inJob(ctx, jobOf(id)), id)
	return m.sandbox(sb, err)
}

func (m *measuredEnvironment) Destroy(ctx context.Context, id string) error {
	ctx, end := m.t.Span(m.t.inJob(ctx, jobOf(id)), "sandbox.destroy", m.about(id)...)
	err := m.Connection.Destroy(ctx, id)
	m.t.Metrics.destroyed.WithLabelValues(m.node, result(err)).Inc()
	end(err)
	if err == nil {
		m.t.forgetJob(jobOf(id))
	}
	return err
}

func (m *measuredEnvironment) about(sandbox string) []attribute.KeyValue {
	return []attribute.KeyValue{attribute.String("agentdock.node", m.node), attribute.String("agentdock.sandbox", sandbox)}
}

func (m *measuredEnvironment) sandbox(sb execenv.Sandbox, err error) (execenv.Sandbox, error) {
	if err != nil {
		return nil, err
	}
	return &measuredSandbox{Sandbox: sb, m: m}, nil
}

type measuredSandbox struct {
	execenv.Sandbox
	m *measuredEnvironment
}

func (s *measuredSandbox) Exec(ctx context.Context, spec execenv.ExecSpec) (execenv.Exec, error) {
	m := s.m
	ctx, end := m.t.Span(m.t.inJob(ctx, jobOf(s.ID())), "exec.start", m.about(s.ID())...)
	begin := time.Now()
	x, err := s.Sandbox.Exec(ctx, spec)
	m.t.Metrics.execSeconds.WithLabelValues(m.node, result(err)).Observe(time.Since(begin).Seconds())
	end(err)
	if err != nil {
		return nil, err
	}
	return &measuredExec{Exec: x, s: s, since: begin}, nil
}

func (s *measuredSandbox) AttachExec(ctx context.Context, id string) (execenv.Exec, error) {
	x, err := s.Sandbox.AttachExec(ctx, id)
	if err != nil {
		return nil, err
	}
	return &measuredExec{Exec: x, s: s, since: time.Now()}, nil
}

func (s *measuredSandbox) PutArchive(ctx context.Context, dir string, r io.Reader) error {
	ctx, end := s.m.t.Span(s.m.t.inJob(ctx, jobOf(s.ID())), "archive.put", s.m.about(s.ID())...)
	err := s.Sandbox.PutArchive(ctx, dir, r)
	end(err)
	return err
}

func (s *measuredSandbox) GetArchive(ctx context.Context, req execenv.ArchiveRequest, w io.Writer) error {
	ctx, end := s.m.t.Span(s.m.t.inJob(ctx, jobOf(s.ID())), "archive.get", s.m.about(s.ID())...)
	err := s.Sandbox.GetArchive(ctx, req, w)
	end(err)
	return err
}

type measuredExec struct {
	execenv.Exec
	s *measuredSandbox
	// since is when this process began to have to do with it.
	since time.Time
}

// Wait ends the span of the command, which began with its start: whoever runs
// one reads its output first, and waits when that is over.
func (x *measuredExec) Wait(ctx context.Context) (execenv.Result, error) {
	m := x.s.m
	ctx, span := m.t.tracer.Start(m.t.inJob(ctx, jobOf(x.s.ID())), "exec.run", trace.WithTimestamp(x.since),
		trace.WithAttributes(append(m.about(x.s.ID()), attribute.String("agentdock.exec", x.ID()))...))
	res, err := x.Exec.Wait(ctx)
	if err == nil {
		m.t.Metrics.ranSeconds.WithLabelValues(m.node, string(res.Outcome.Kind)).Observe(res.Duration.Seconds())
	}
	finish(span, err)
	return res, err
}
