package execrpc

import (
	"context"
	"sync/atomic"
	"syscall"

	"connectrpc.com/connect"

	execdv1 "github.com/agentdock/agentdock/api/execd/v1"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
)

// exec is a handle to a command. It remembers a Result that came with the end
// of its output; a Result never changes (X4).
type exec struct {
	s      *sandbox
	id     string
	result atomic.Pointer[execenv.Result]
}

func (e *exec) ID() string { return e.id }

// Output returns nil only after the service's end message. After any error it
// can be called again from the offset where the last chunk ended.
func (e *exec) Output(ctx context.Context, from int64, yield func(execenv.Chunk) error) error {
	what := "follow the output of command " + e.id
	call, cancel := context.WithCancel(ctx)
	stream, err := e.s.c.rpc.Output(call, connect.NewRequest(&execdv1.OutputRequest{SandboxId: e.s.id, ExecId: e.id, From: from}))
	if err != nil {
		cancel()
		return errorFromWire(ctx, what, err)
	}
	defer closeStream(stream, cancel)
	for stream.Receive() {
		switch event := stream.Msg().GetEvent().(type) {
		case *execdv1.OutputResponse_Chunk:
			c := event.Chunk
			from, err := streams.fromWire("stream", c.GetStream())
			if err != nil {
				return err
			}
			if err := yield(execenv.Chunk{Stream: from, Offset: c.GetOffset(), Data: c.GetData()}); err != nil {
				return err
			}
		case *execdv1.OutputResponse_End:
			if wire := event.End.GetResult(); wire != nil {
				result, err := resultFromWire(wire)
				if err != nil {
					return err
				}
				e.result.Store(&result)
			}
			return nil
		}
	}
	return streamError(ctx, what, stream.Err())
}

func (e *exec) Wait(ctx context.Context) (execenv.Result, error) {
	if r := e.result.Load(); r != nil {
		return *r, nil
	}
	what := "wait for command " + e.id
	call, cancel := context.WithCancel(ctx)
	stream, err := e.s.c.rpc.Wait(call, connect.NewRequest(&execdv1.WaitRequest{SandboxId: e.s.id, ExecId: e.id}))
	if err != nil {
		cancel()
		return execenv.Result{}, errorFromWire(ctx, what, err)
	}
	defer closeStream(stream, cancel)
	for stream.Receive() {
		if wire := stream.Msg().GetResult(); wire != nil {
			result, err := resultFromWire(wire)
			if err != nil {
				return execenv.Result{}, err
			}
			e.result.Store(&result)
			return result, nil
		}
	}
	return execenv.Result{}, streamError(ctx, what, stream.Err())
}

// WriteStdin sends p in pieces. After an error the count is of the pieces that
// were answered; if the answer itself was lost, the program may have read more.
func (e *exec) WriteStdin(ctx context.Context, p []byte) (int, error) {
	written := 0
	for {
		piece := p[written:min(written+maxPiece, len(p))]
		res, err := e.s.c.rpc.WriteStdin(ctx, connect.NewRequest(&execdv1.WriteStdinRequest{SandboxId: e.s.id, ExecId: e.id, Data: piece}))
		if err != nil {
			return written, errorFromWire(ctx, "write to command "+e.id, err)
		}
		n := int(res.Msg.GetWritten())
		if n < 0 || n > len(piece) {
			return written, fault.New(fault.Internal, "cannot understand the execution service: it wrote %d of %d bytes", n, len(piece))
		}
		written += n
		if f := res.Msg.GetFault(); f != nil {
			return written, answered(ctx, "write to command "+e.id, faultFromWire(f))
		}
		if n < len(piece) {
			return written, fault.New(fault.Internal, "cannot understand the execution service: it wrote %d of %d bytes and gave no reason", n, len(piece))
		}
		if written == len(p) {
			return written, nil
		}
	}
}

func (e *exec) CloseStdin(ctx context.Context) error {
	_, err := e.s.c.rpc.CloseStdin(ctx, connect.NewRequest(&execdv1.CloseStdinRequest{SandboxId: e.s.id, ExecId: e.id}))
	return errorFromWire(ctx, "close the input of command "+e.id, err)
}

func (e *exec) Signal(ctx context.Context, sig syscall.Signal) error {
	_, err := e.s.c.rpc.Signal(ctx, connect.NewRequest(&execdv1.SignalRequest{SandboxId: e.s.id, ExecId: e.id, Signal: int32(sig)}))
	return errorFromWire(ctx, "signal command "+e.id, err)
}

func (e *exec) Kill(ctx context.Context) error {
	_, err := e.s.c.rpc.Kill(ctx, connect.NewRequest(&execdv1.KillRequest{SandboxId: e.s.id, ExecId: e.id}))
	return errorFromWire(ctx, "kill command "+e.id, err)
}

func (e *exec) Resize(ctx context.Context, size execenv.WindowSize) error {
	_, err := e.s.c.rpc.Resize(ctx, connect.NewRequest(&execdv1.ResizeRequest{SandboxId: e.s.id, ExecId: e.id, Size: sizeToWire(&size)}))
	return errorFromWire(ctx, "resize the terminal of command "+e.id, err)
}
