package execrpc

import (
	"context"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/propagation"
)

// traced carries the trace a call belongs to, in the W3C header. The service
// only writes it into its log: it sends nothing to anybody (A3).
type traced struct{}

var _ connect.Interceptor = traced{}

var w3c = propagation.TraceContext{}

func (traced) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		header := propagation.HeaderCarrier(req.Header())
		if req.Spec().IsClient {
			w3c.Inject(ctx, header)
		} else {
			ctx = w3c.Extract(ctx, header)
		}
		return next(ctx, req)
	}
}

func (traced) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		w3c.Inject(ctx, propagation.HeaderCarrier(conn.RequestHeader()))
		return conn
	}
}

func (traced) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		return next(w3c.Extract(ctx, propagation.HeaderCarrier(conn.RequestHeader())), conn)
	}
}
