// Package telemetry measures at the ports: stores, environments and handlers
// are wrapped where a process is wired, and what they do is counted, timed and
// traced. Nothing that is measured knows of it.
//
// Traces go out by OTLP over HTTP if the standard variables (OTEL_…) say so, and
// nowhere otherwise. Metrics are for Prometheus.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/version"
)

// scope names the spans' library.
const scope = "github.com/agentdock/agentdock"

// Telemetry is what one process measures with.
type Telemetry struct {
	Metrics *Metrics

	tracer   trace.Tracer
	jobs     jobs
	shutdown func(context.Context) error
}

// Start sets up what a process of that name measures with. env looks up
// variables; the exporter reads its own further ones by itself.
func Start(ctx context.Context, process string, env func(string) string, log *slog.Logger) (*Telemetry, error) {
	t := &Telemetry{Metrics: newMetrics(), jobs: newJobs(), shutdown: func(context.Context) error { return nil }}
	on, err := tracing(env)
	if err != nil {
		return nil, err
	}
	if !on {
		t.tracer = noop.NewTracerProvider().Tracer(scope)
		return t, nil
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot export traces: %w; look at the OTEL_EXPORTER_OTLP_ variables", err)
	}
	about, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", process), attribute.String("service.version", version.Get().Commit)),
		resource.WithFromEnv()) // last: OTEL_SERVICE_NAME wins
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot export traces: %w; look at OTEL_RESOURCE_ATTRIBUTES", err), exporter.Shutdown(ctx))
	}
	// The exporter has no other way to say that a collector is away.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("cannot export traces", "error", err) }))
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))
	t.tracer, t.shutdown = provider.Tracer(scope), provider.Shutdown
	return t, nil
}

// tracing says whether traces are wanted.
func tracing(env func(string) string) (bool, error) {
	if env("OTEL_SDK_DISABLED") == "true" {
		return false, nil
	}
	switch exporter := env("OTEL_TRACES_EXPORTER"); exporter {
	case "none":
		return false, nil
	case "otlp":
		return true, nil
	case "":
		return env("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "", nil
	default:
		return false, fmt.Errorf("cannot start: OTEL_TRACES_EXPORTER is %q; give otlp or none", exporter)
	}
}

// flushFor bounds how long a process that stops waits for its last spans to be
// taken: a collector that is away must not hold it up.
const flushFor = 3 * time.Second

// Stop sends what has not been sent.
func (t *Telemetry) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), flushFor)
	defer cancel()
	t.endJobs()
	return t.shutdown(ctx)
}

// Span begins a piece of work. End it with what it returns.
func (t *Telemetry) Span(ctx context.Context, name string, attrs ...attribute.KeyValue) (context.Context, func(error)) {
	ctx, span := t.tracer.Start(ctx, name, trace.WithAttributes(attrs...))
	return ctx, func(err error) {
		finish(span, err)
	}
}

// finish ends a span. The code says what happened; the text of an error may
// hold what a collector should not have.
func finish(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, string(fault.CodeOf(err)))
	}
	span.End()
}

// w3c is the one form in which trace contexts travel.
var w3c = propagation.TraceContext{}

const parentHeader = "traceparent"

// traceParent writes down the span that ctx is in; empty if there is none.
func traceParent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	w3c.Inject(ctx, carrier)
	return carrier[parentHeader]
}

// continueTrace puts a span that was written down into ctx. What is no trace
// context changes nothing.
func continueTrace(ctx context.Context, parent string) context.Context {
	if parent == "" {
		return ctx
	}
	return w3c.Extract(ctx, propagation.MapCarrier{parentHeader: parent})
}
