package execrpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"connectrpc.com/connect"

	execdv1 "github.com/agentdock/agentdock/api/execd/v1"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
)

// PutArchive sends what r gives. It returns soon after ctx ends even if r is
// stuck in a Read; that one Read may end later, and no other begins.
func (s *sandbox) PutArchive(ctx context.Context, dir string, r io.Reader) error {
	if _, err := execenv.WorkspacePath(dir); err != nil {
		return err
	}
	return untilEnd(ctx, "put an archive into sandbox "+s.id, func(call context.Context, g *gate) error {
		return s.putArchive(ctx, call, g, dir, r)
	})
}

// untilEnd runs do and returns its error, or ctx's as soon as that ends: do may
// be in a Read or Write of the caller's that never returns. Then do's context
// has ended and its gate is shut.
func untilEnd(ctx context.Context, what string, do func(context.Context, *gate) error) error {
	call, cancel := context.WithCancel(ctx)
	defer cancel()
	g := new(gate)
	done := make(chan error, 1)
	go func() { done <- do(call, g) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		g.shut()
		return errorFromWire(ctx, what, ctx.Err())
	}
}

// gate keeps a Read or Write of the caller's from beginning after the caller
// was answered. One that had begun may end later.
type gate struct {
	mu   sync.Mutex
	left bool
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left = true
}

// pass says whether one more may begin.
func (g *gate) pass() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.left
}

func (s *sandbox) putArchive(ctx, call context.Context, g *gate, dir string, r io.Reader) error {
	what := "put an archive into sandbox " + s.id
	stream := s.c.rpc.PutArchive(call)
	err := stream.Send(&execdv1.PutArchiveRequest{Part: &execdv1.PutArchiveRequest_Target{
		Target: &execdv1.PutArchiveTarget{SandboxId: s.id, Dir: []byte(dir)},
	}})
	buffer := make([]byte, maxPiece)
	for err == nil && g.pass() {
		n, readErr := r.Read(buffer)
		if n > 0 {
			err = stream.Send(&execdv1.PutArchiveRequest{Part: &execdv1.PutArchiveRequest_Data{Data: buffer[:n]}})
		}
		if err == nil && errors.Is(readErr, io.EOF) {
			err = stream.Send(&execdv1.PutArchiveRequest{Part: &execdv1.PutArchiveRequest_End{End: &execdv1.PutArchiveEnd{}}})
			break
		}
		if err == nil && readErr != nil {
			// Leaving without the end message: the service takes the
			// archive for what it is, cut.
			return fmt.Errorf("cannot read the archive for sandbox %s: %w", s.id, readErr)
		}
	}
	if call.Err() != nil {
		return errorFromWire(ctx, what, call.Err())
	}
	// io.EOF says that the service has answered already; why is in the answer.
	if err != nil && !errors.Is(err, io.EOF) {
		return errorFromWire(ctx, what, err)
	}
	_, err = stream.CloseAndReceive()
	return errorFromWire(ctx, what, err)
}

// GetArchive writes the archive to w and returns nil only when all of it came.
// It returns soon after ctx ends even if w is stuck in a Write; that one Write
// may end later, and no other begins.
func (s *sandbox) GetArchive(ctx context.Context, req execenv.ArchiveRequest, w io.Writer) error {
	if err := req.Validate(); err != nil {
		return err
	}
	return untilEnd(ctx, "get an archive from sandbox "+s.id, func(call context.Context, g *gate) error {
		return s.getArchive(ctx, call, g, req, w)
	})
}

func (s *sandbox) getArchive(ctx, call context.Context, g *gate, req execenv.ArchiveRequest, w io.Writer) error {
	what := "get an archive from sandbox " + s.id
	call, cancel := context.WithCancel(call)
	stream, err := s.c.rpc.GetArchive(call, connect.NewRequest(archiveRequestToWire(s.id, req)))
	if err != nil {
		cancel()
		return errorFromWire(ctx, what, err)
	}
	defer closeStream(stream, cancel)
	var got int64
	for stream.Receive() {
		switch part := stream.Msg().GetPart().(type) {
		case *execdv1.GetArchiveResponse_Data:
			if !g.pass() {
				return errLeft
			}
			got += int64(len(part.Data))
			if _, err := w.Write(part.Data); err != nil {
				return fmt.Errorf("cannot write the archive of sandbox %s: %w", s.id, err)
			}
		case *execdv1.GetArchiveResponse_End:
			if part.End.GetBytes() != got {
				return fault.New(fault.Unavailable, "cannot %s: %d bytes came of %d", what, got, part.End.GetBytes())
			}
			return nil
		}
	}
	return streamError(ctx, what, stream.Err())
}
