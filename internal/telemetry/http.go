package telemetry

import (
	"net/http"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// HTTP measures requests: a span, which continues the caller's trace if it sent
// one, a count and a duration. route names the route of a request that has been
// served, and never a value in it.
func (t *Telemetry) HTTP(next http.Handler, route func(*http.Request) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := w3c.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, span := t.tracer.Start(ctx, r.Method, trace.WithSpanKind(trace.SpanKindServer))
		defer span.End()
		r = r.WithContext(ctx)
		seen := &statusWriter{ResponseWriter: w}
		begin := time.Now()
		defer func() {
			name, method := route(r), knownMethod(r.Method)
			if name == "" {
				name = "none"
			}
			t.Metrics.requests.WithLabelValues(method, name, strconv.Itoa(seen.code())).Inc()
			t.Metrics.requestTime.WithLabelValues(method, name).Observe(time.Since(begin).Seconds())
			span.SetName(method + " " + name)
			span.SetAttributes(attribute.String("http.request.method", method), attribute.String("http.route", name),
				attribute.Int("http.response.status_code", seen.code()))
			if seen.code() >= 500 {
				span.SetStatus(codes.Error, "")
			}
		}()
		next.ServeHTTP(seen, r)
	})
}

// knownMethod keeps callers from making up label values.
func knownMethod(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return m
	}
	return "other"
}

// statusWriter remembers the status. Flushing and deadlines go through Unwrap.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(p)
}

func (w *statusWriter) code() int {
	if w.status == 0 {
		return http.StatusOK
	}
	return w.status
}

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush is for what asks for a http.Flusher instead of a ResponseController.
func (w *statusWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }
