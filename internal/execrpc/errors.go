package execrpc

import (
	"context"
	"errors"
	"strings"
	"time"

	"connectrpc.com/connect"

	execdv1 "github.com/agentdock/agentdock/api/execd/v1"
	"github.com/agentdock/agentdock/internal/fault"
)

// faultCodes pairs each code with its wire name and with the Connect code that
// proxies and generic clients understand.
var faultCodes = []struct {
	code    fault.Code
	wire    execdv1.FaultCode
	connect connect.Code
}{
	{fault.Invalid, execdv1.FaultCode_FAULT_CODE_INVALID, connect.CodeInvalidArgument},
	{fault.NotFound, execdv1.FaultCode_FAULT_CODE_NOT_FOUND, connect.CodeNotFound},
	{fault.Conflict, execdv1.FaultCode_FAULT_CODE_CONFLICT, connect.CodeAlreadyExists},
	{fault.Denied, execdv1.FaultCode_FAULT_CODE_DENIED, connect.CodePermissionDenied},
	{fault.Unsupported, execdv1.FaultCode_FAULT_CODE_UNSUPPORTED, connect.CodeUnimplemented},
	{fault.Exhausted, execdv1.FaultCode_FAULT_CODE_EXHAUSTED, connect.CodeResourceExhausted},
	{fault.Gone, execdv1.FaultCode_FAULT_CODE_GONE, connect.CodeFailedPrecondition},
	{fault.Unavailable, execdv1.FaultCode_FAULT_CODE_UNAVAILABLE, connect.CodeUnavailable},
	{fault.Internal, execdv1.FaultCode_FAULT_CODE_INTERNAL, connect.CodeInternal},
}

// faultToWire is what the other side may know of err. An error that is not a
// fault has only a neutral sentence; a context that ended is Unavailable, for
// what happened then is not known.
func faultToWire(err error) *execdv1.Fault {
	var f *fault.Error
	if !errors.As(err, &f) && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		return &execdv1.Fault{Code: execdv1.FaultCode_FAULT_CODE_UNAVAILABLE, Message: "the call was cut short on the service's side"}
	}
	wire := execdv1.FaultCode_FAULT_CODE_INTERNAL
	for _, c := range faultCodes {
		if c.code == fault.CodeOf(err) {
			wire = c.wire
		}
	}
	return &execdv1.Fault{Code: wire, Message: text(fault.Public(err))}
}

func faultFromWire(f *execdv1.Fault) *fault.Error {
	for _, c := range faultCodes {
		if c.wire == f.GetCode() {
			return &fault.Error{Code: c.code, Message: f.GetMessage()}
		}
	}
	// A newer service may know codes this client does not.
	return &fault.Error{Code: fault.Internal, Message: f.GetMessage()}
}

// errorToWire makes the error a handler returns.
func errorToWire(err error) *connect.Error {
	wire := faultToWire(err)
	code := connect.CodeInternal
	for _, c := range faultCodes {
		if c.wire == wire.Code {
			code = c.connect
		}
	}
	out := connect.NewError(code, errors.New(wire.Message))
	if detail, detailErr := connect.NewErrorDetail(wire); detailErr == nil {
		out.AddDetail(detail)
	}
	return out
}

// errorFromWire turns what a call gave into an error of the port. what names
// the call: "cannot <what>".
func errorFromWire(ctx context.Context, what string, err error) error {
	if err == nil {
		return nil
	}
	var f *fault.Error
	if errors.As(err, &f) {
		return f
	}
	if f := detailOf(err); f != nil {
		return answered(ctx, what, f)
	}
	if ctx.Err() != nil {
		return contextEnded(ctx, what)
	}
	var ce *connect.Error
	if errors.As(err, &ce) && ce.Code() == connect.CodeResourceExhausted && strings.Contains(ce.Message(), "larger than configured max") {
		return fault.Wrap(fault.Invalid, err, "cannot %s: a message is larger than %d bytes", what, maxMessage)
	}
	return fault.Wrap(fault.Unavailable, err, "cannot %s: no answer from the execution service", what)
}

// answered is a fault that the service gave. If it saw the caller's deadline or
// departure, that is the caller's own context and reported as such.
func answered(ctx context.Context, what string, f *fault.Error) error {
	if f.Code == fault.Unavailable && over(ctx) {
		return contextEnded(ctx, what)
	}
	return f
}

func contextEnded(ctx context.Context, what string) error {
	return fault.Wrap(fault.Unavailable, ctx.Err(), "cannot %s: the caller's context ended first", what)
}

// over reports whether the caller's context has ended. A deadline travels as a
// number of whole milliseconds, so that the service sees it a little earlier, and
// its answer may be here before the context knows.
func over(ctx context.Context) bool {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < 50*time.Millisecond {
		<-ctx.Done()
	}
	return ctx.Err() != nil
}

// detailOf is the fault the service put into err, or nil for an error of the
// transport.
func detailOf(err error) *fault.Error {
	var ce *connect.Error
	if !errors.As(err, &ce) || !connect.IsWireError(err) {
		return nil
	}
	for _, d := range ce.Details() {
		msg, err := d.Value()
		if err != nil {
			continue
		}
		if f, ok := msg.(*execdv1.Fault); ok {
			return faultFromWire(f)
		}
	}
	return nil
}

// errCut is a stream that ended without its end message.
var errCut = errors.New("the stream ended before it was complete")

// errLeft is the use of a stream whose handler has returned.
var errLeft = errors.New("the call has ended")
