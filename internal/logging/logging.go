// Package logging is how processes say what they do: one JSON object a line,
// with the ids of what it is about, and never a secret.
package logging

import (
	"context"
	"io"
	"log/slog"

	"go.opentelemetry.io/otel/trace"
)

// New makes a logger that writes to w. Whatever reaches w has passed the
// redaction: no call can leave it out. The secrets are values that this process
// was given; they appear nowhere, whatever they are called.
func New(w io.Writer, level slog.Leveler, secrets ...string) *slog.Logger {
	return slog.New(&handler{slog.NewJSONHandler(newRedactor(w, secrets), &slog.HandlerOptions{
		Level: level, ReplaceAttr: redactByName,
	})})
}

type contextKey struct{}

// With returns a context whose log lines carry further attributes: the ids of
// the job, the tenant and the attempt that the work is for.
func With(ctx context.Context, attrs ...slog.Attr) context.Context {
	before, _ := ctx.Value(contextKey{}).([]slog.Attr)
	return context.WithValue(ctx, contextKey{}, append(before[:len(before):len(before)], attrs...))
}

// handler adds what the context knows.
type handler struct{ slog.Handler }

func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if attrs, ok := ctx.Value(contextKey{}).([]slog.Attr); ok {
		r.AddAttrs(attrs...)
	}
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		r.AddAttrs(slog.String("trace_id", span.TraceID().String()), slog.String("span_id", span.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{h.Handler.WithAttrs(attrs)}
}

func (h *handler) WithGroup(name string) slog.Handler { return &handler{h.Handler.WithGroup(name)} }
