package execrpc

import (
	"bufio"
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"connectrpc.com/connect"

	execdv1 "github.com/agentdock/agentdock/api/execd/v1"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
)

// maxTrailer is how much may come after the part of an archive that the
// environment read. tar pads its end; anything more is not an archive.
const maxTrailer = 1 << 20

func (s *server) PutArchive(ctx context.Context, stream *connect.ClientStream[execdv1.PutArchiveRequest]) (*connect.Response[execdv1.PutArchiveResponse], error) {
	if err := s.putArchive(ctx, stream); err != nil {
		return nil, s.fail(ctx, "PutArchive", err)
	}
	return connect.NewResponse(&execdv1.PutArchiveResponse{}), nil
}

func (s *server) putArchive(ctx context.Context, stream *connect.ClientStream[execdv1.PutArchiveRequest]) error {
	if !stream.Receive() {
		return receiveError(stream.Err())
	}
	target := stream.Msg().GetTarget()
	if target == nil {
		return fault.New(fault.Invalid, "the first message of an archive is not its target")
	}
	dir := string(target.GetDir())
	if _, err := execenv.WorkspacePath(dir); err != nil {
		return err
	}
	sb, err := s.sandbox(ctx, target.GetSandboxId())
	if err != nil {
		return err
	}
	in := &archiveReader{ctx: ctx, stream: stream}
	defer in.left.Store(true)
	if err := sb.PutArchive(ctx, dir, in); err != nil {
		return err
	}
	// An environment may stop reading at tar's own end mark. The archive is
	// complete only if the sender says so.
	n, err := io.Copy(io.Discard, io.LimitReader(in, maxTrailer+1))
	if err != nil {
		return err
	}
	if n > maxTrailer {
		return fault.New(fault.Invalid, "more than %d bytes follow the end of the archive", maxTrailer)
	}
	return nil
}

// archiveReader is the data of a PutArchive stream. It reads end of file only
// after the end message, and only errors once its handler has left: an
// environment that was cut short may still be reading.
type archiveReader struct {
	left   atomic.Bool
	ctx    context.Context
	stream *connect.ClientStream[execdv1.PutArchiveRequest]
	rest   []byte
	err    error
}

func (r *archiveReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		r.rest, r.err = r.next()
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (r *archiveReader) next() ([]byte, error) {
	if err := r.ctx.Err(); err != nil || r.left.Load() {
		return nil, receiveError(err)
	}
	if !r.stream.Receive() {
		return nil, receiveError(r.stream.Err())
	}
	switch part := r.stream.Msg().GetPart().(type) {
	case *execdv1.PutArchiveRequest_Data:
		if len(part.Data) > maxPiece {
			return nil, fault.New(fault.Invalid, "%d bytes in one message of an archive are more than %d", len(part.Data), maxPiece)
		}
		return part.Data, nil
	case *execdv1.PutArchiveRequest_End:
		return nil, io.EOF
	default:
		return nil, fault.New(fault.Invalid, "a message of an archive is neither data nor the end")
	}
}

// receiveError is why a stream gave no further message.
func receiveError(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		err = errCut
	}
	if connect.CodeOf(err) == connect.CodeResourceExhausted {
		return fault.Wrap(fault.Invalid, err, "a message is larger than %d bytes", maxMessage)
	}
	return fault.Wrap(fault.Unavailable, err, "the archive did not arrive completely")
}

func (s *server) GetArchive(ctx context.Context, req *connect.Request[execdv1.GetArchiveRequest], stream *connect.ServerStream[execdv1.GetArchiveResponse]) error {
	archive, err := archiveRequestFromWire(req.Msg)
	if err != nil {
		return s.fail(ctx, "GetArchive", err)
	}
	sb, err := s.sandbox(ctx, req.Msg.GetSandboxId())
	if err != nil {
		return s.fail(ctx, "GetArchive", err)
	}
	out := &archiveWriter{stream: stream}
	defer out.leave()
	// tar is written in pieces of 512 bytes; the buffer makes messages of it.
	buffer := bufio.NewWriterSize(out, maxPiece)
	if err := sb.GetArchive(ctx, archive, buffer); err != nil {
		// This one error follows a whole archive (execenv A3). After any other
		// the environment may still be in a Write.
		if fault.Is(err, fault.Denied) {
			_ = buffer.Flush()
		}
		return s.fail(ctx, "GetArchive", err)
	}
	if err := buffer.Flush(); err != nil {
		return s.fail(ctx, "GetArchive", fault.Wrap(fault.Unavailable, err, "the archive was not taken completely"))
	}
	return stream.Send(&execdv1.GetArchiveResponse{
		Part: &execdv1.GetArchiveResponse_End{End: &execdv1.GetArchiveEnd{Bytes: out.sent}},
	})
}

// archiveWriter sends data messages until its handler leaves. An environment
// that was cut short may still be writing then, and a stream must not be used
// after its handler.
type archiveWriter struct {
	stream *connect.ServerStream[execdv1.GetArchiveResponse]

	mu   sync.Mutex
	sent int64
	left bool
}

// leave waits for a Write that is under way; it ends with the call's context.
func (w *archiveWriter) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left = true
}

func (w *archiveWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left {
		return 0, errLeft
	}
	written := 0
	for len(p) > 0 {
		n := min(len(p), maxPiece)
		if err := w.stream.Send(&execdv1.GetArchiveResponse{Part: &execdv1.GetArchiveResponse_Data{Data: p[:n]}}); err != nil {
			return written, err
		}
		w.sent += int64(n)
		written += n
		p = p[n:]
	}
	return written, nil
}
