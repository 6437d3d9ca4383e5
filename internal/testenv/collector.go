package testenv

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Collector takes spans by OTLP over HTTP, as programs send them.
type Collector struct {
	// URL is for OTEL_EXPORTER_OTLP_ENDPOINT.
	URL string

	mu    sync.Mutex
	spans []Span
}

// Span is one that a program has sent.
type Span struct {
	// Service is the program.
	Service string
	*tracepb.Span
}

// StartCollector starts one. An export that it cannot read fails the test.
func StartCollector(t testing.TB) *Collector {
	t.Helper()
	c := &Collector{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var req collector.ExportTraceServiceRequest
		if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &req) != nil {
			t.Errorf("a bad export to %s: %v", r.URL.Path, err)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		c.take(&req)
	}))
	t.Cleanup(server.Close)
	c.URL = server.URL
	return c
}

func (c *Collector) take(req *collector.ExportTraceServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rs := range req.GetResourceSpans() {
		service := ""
		for _, a := range rs.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				service = a.GetValue().GetStringValue()
			}
		}
		for _, ss := range rs.GetScopeSpans() {
			for _, s := range ss.GetSpans() {
				c.spans = append(c.spans, Span{service, s})
			}
		}
	}
}

// Trace is what has come of a trace, in the order in which it began.
func (c *Collector) Trace(id []byte) []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []Span
	for _, s := range c.spans {
		if bytes.Equal(s.GetTraceId(), id) {
			found = append(found, s)
		}
	}
	slices.SortStableFunc(found, func(a, b Span) int { return int(int64(a.GetStartTimeUnixNano() - b.GetStartTimeUnixNano())) })
	return found
}
