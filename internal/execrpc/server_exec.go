package execrpc

import (
	"context"
	"sync"
	"time"

	"connectrpc.com/connect"

	execdv1 "github.com/agentdock/agentdock/api/execd/v1"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
)

func (s *server) Exec(ctx context.Context, req *connect.Request[execdv1.ExecRequest]) (*connect.Response[execdv1.ExecResponse], error) {
	spec, err := execSpecFromWire(req.Msg.GetSpec())
	if err != nil {
		return nil, s.fail(ctx, "Exec", err)
	}
	sb, err := s.sandbox(ctx, req.Msg.GetSandboxId())
	if err != nil {
		return nil, s.fail(ctx, "Exec", err)
	}
	exec, err := sb.Exec(ctx, spec)
	if err != nil {
		return nil, s.fail(ctx, "Exec", err)
	}
	s.log.InfoContext(ctx, "command started", "sandbox", sb.ID(), "exec", exec.ID())
	return connect.NewResponse(&execdv1.ExecResponse{ExecId: exec.ID()}), nil
}

func (s *server) AttachExec(ctx context.Context, req *connect.Request[execdv1.AttachExecRequest]) (*connect.Response[execdv1.AttachExecResponse], error) {
	if _, err := s.exec(ctx, req.Msg.GetSandboxId(), req.Msg.GetExecId()); err != nil {
		return nil, s.fail(ctx, "AttachExec", err)
	}
	return connect.NewResponse(&execdv1.AttachExecResponse{}), nil
}

func (s *server) ListExecs(ctx context.Context, req *connect.Request[execdv1.ListExecsRequest], stream *connect.ServerStream[execdv1.ListExecsResponse]) error {
	sb, err := s.sandbox(ctx, req.Msg.GetSandboxId())
	if err != nil {
		return s.fail(ctx, "ListExecs", err)
	}
	infos, err := sb.Execs(ctx)
	if err != nil {
		return s.fail(ctx, "ListExecs", err)
	}
	for _, info := range infos {
		if err := stream.Send(&execdv1.ListExecsResponse{Item: &execdv1.ListExecsResponse_Info{Info: execInfoToWire(info)}}); err != nil {
			return err
		}
	}
	return stream.Send(&execdv1.ListExecsResponse{Item: &execdv1.ListExecsResponse_End{End: &execdv1.ListEnd{}}})
}

func (s *server) Output(ctx context.Context, req *connect.Request[execdv1.OutputRequest], stream *connect.ServerStream[execdv1.OutputResponse]) error {
	exec, err := s.exec(ctx, req.Msg.GetSandboxId(), req.Msg.GetExecId())
	if err != nil {
		return s.fail(ctx, "Output", err)
	}
	b := startBeating(stream.Send, &execdv1.OutputResponse{
		Event: &execdv1.OutputResponse_Heartbeat{Heartbeat: &execdv1.Heartbeat{}},
	})
	defer b.stop()
	err = exec.Output(ctx, req.Msg.GetFrom(), func(c execenv.Chunk) error {
		for off := 0; off < len(c.Data); off += maxPiece {
			if err := b.send(&execdv1.OutputResponse{Event: &execdv1.OutputResponse_Chunk{Chunk: &execdv1.Chunk{
				Stream: streams.toWire(c.Stream),
				Offset: c.Offset + int64(off),
				Data:   c.Data[off:min(off+maxPiece, len(c.Data))],
			}}}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return s.fail(ctx, "Output", err)
	}
	// The command has ended, so Wait answers at once. Should an environment
	// be slower than that, the end of the log does not wait for it.
	end := &execdv1.OutputEnd{}
	waitCtx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if result, err := exec.Wait(waitCtx); err == nil {
		end.Result = resultToWire(result)
	}
	return b.send(&execdv1.OutputResponse{Event: &execdv1.OutputResponse_End{End: end}})
}

func (s *server) Wait(ctx context.Context, req *connect.Request[execdv1.WaitRequest], stream *connect.ServerStream[execdv1.WaitResponse]) error {
	exec, err := s.exec(ctx, req.Msg.GetSandboxId(), req.Msg.GetExecId())
	if err != nil {
		return s.fail(ctx, "Wait", err)
	}
	b := startBeating(stream.Send, &execdv1.WaitResponse{
		Event: &execdv1.WaitResponse_Heartbeat{Heartbeat: &execdv1.Heartbeat{}},
	})
	defer b.stop()
	result, err := exec.Wait(ctx)
	if err != nil {
		return s.fail(ctx, "Wait", err)
	}
	return b.send(&execdv1.WaitResponse{Event: &execdv1.WaitResponse_Result{Result: resultToWire(result)}})
}

// WriteStdin puts its error into the response: an error of the call could not
// carry how much was written before it.
func (s *server) WriteStdin(ctx context.Context, req *connect.Request[execdv1.WriteStdinRequest]) (*connect.Response[execdv1.WriteStdinResponse], error) {
	if n := len(req.Msg.GetData()); n > maxPiece {
		return nil, s.fail(ctx, "WriteStdin", fault.New(fault.Invalid, "%d bytes of input in one call are more than %d", n, maxPiece))
	}
	exec, err := s.exec(ctx, req.Msg.GetSandboxId(), req.Msg.GetExecId())
	if err != nil {
		return nil, s.fail(ctx, "WriteStdin", err)
	}
	n, err := exec.WriteStdin(ctx, req.Msg.GetData())
	res := &execdv1.WriteStdinResponse{Written: int64(n)}
	if err != nil {
		_ = s.fail(ctx, "WriteStdin", err)
		res.Fault = faultToWire(err)
	}
	return connect.NewResponse(res), nil
}

func (s *server) CloseStdin(ctx context.Context, req *connect.Request[execdv1.CloseStdinRequest]) (*connect.Response[execdv1.CloseStdinResponse], error) {
	err := s.onExec(ctx, "CloseStdin", req.Msg, func(e execenv.Exec) error { return e.CloseStdin(ctx) })
	return answer(&execdv1.CloseStdinResponse{}, err)
}

func (s *server) Signal(ctx context.Context, req *connect.Request[execdv1.SignalRequest]) (*connect.Response[execdv1.SignalResponse], error) {
	err := s.onExec(ctx, "Signal", req.Msg, func(e execenv.Exec) error {
		sig, err := signalFromWire(req.Msg.GetSignal())
		if err != nil {
			return err
		}
		return e.Signal(ctx, sig)
	})
	return answer(&execdv1.SignalResponse{}, err)
}

func (s *server) Kill(ctx context.Context, req *connect.Request[execdv1.KillRequest]) (*connect.Response[execdv1.KillResponse], error) {
	err := s.onExec(ctx, "Kill", req.Msg, func(e execenv.Exec) error { return e.Kill(ctx) })
	return answer(&execdv1.KillResponse{}, err)
}

func (s *server) Resize(ctx context.Context, req *connect.Request[execdv1.ResizeRequest]) (*connect.Response[execdv1.ResizeResponse], error) {
	err := s.onExec(ctx, "Resize", req.Msg, func(e execenv.Exec) error {
		size, err := sizeFromWire(req.Msg.GetSize())
		if err != nil {
			return err
		}
		return e.Resize(ctx, size)
	})
	return answer(&execdv1.ResizeResponse{}, err)
}

// execNamed is a request that names a command.
type execNamed interface {
	GetSandboxId() string
	GetExecId() string
}

func (s *server) onExec(ctx context.Context, op string, req execNamed, do func(execenv.Exec) error) error {
	exec, err := s.exec(ctx, req.GetSandboxId(), req.GetExecId())
	if err == nil {
		err = do(exec)
	}
	if err != nil {
		return s.fail(ctx, op, err)
	}
	return nil
}

func answer[T any](msg *T, err error) (*connect.Response[T], error) {
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(msg), nil
}

// beating sends messages on a stream, and a heartbeat whenever none was sent
// for a while. A stream takes one sender at a time; this is the lock for it.
type beating[T any] struct {
	mu    sync.Mutex
	raw   func(*T) error
	quiet bool // nothing was sent since the last tick
	left  bool // stopped
	done  chan struct{}
	ended sync.WaitGroup
}

func startBeating[T any](send func(*T) error, beat *T) *beating[T] {
	b := &beating[T]{raw: send, done: make(chan struct{})}
	b.ended.Go(func() {
		tick := time.NewTicker(heartbeat)
		defer tick.Stop()
		for {
			select {
			case <-b.done:
				return
			case <-tick.C:
			}
			b.mu.Lock()
			var err error
			if b.quiet && !b.left {
				err = b.raw(beat)
			}
			b.quiet = true
			b.mu.Unlock()
			if err != nil {
				return // the stream is dead; the call's context says so too
			}
		}
	})
	return b
}

func (b *beating[T]) send(msg *T) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left {
		return errLeft
	}
	b.quiet = false
	return b.raw(msg)
}

// stop returns when nothing is being sent any more, and nothing is sent after
// it: a stream must not be used after its handler has returned.
func (b *beating[T]) stop() {
	b.mu.Lock()
	b.left = true
	b.mu.Unlock()
	close(b.done)
	b.ended.Wait()
}
