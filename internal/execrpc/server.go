package execrpc

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"connectrpc.com/connect"

	execdv1 "github.com/agentdock/agentdock/api/execd/v1"
	"github.com/agentdock/agentdock/api/execd/v1/execdv1connect"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
)

// server answers calls from an Environment. It keeps nothing of its own but
// which Create calls are running (creations).
type server struct {
	env       execenv.Environment
	log       *slog.Logger
	creations *creations
}

var _ execdv1connect.ExecdServiceHandler = (*server)(nil)

// NewServer serves env. Causes of errors go to log and nowhere else. Serve the
// handler with NewHTTPServer: streams in both directions need HTTP/2.
func NewServer(env execenv.Environment, log *slog.Logger) http.Handler {
	s := &server{env: env, log: log, creations: newCreations(env, log)}
	mux := http.NewServeMux()
	mux.Handle(execdv1connect.NewExecdServiceHandler(s,
		connect.WithReadMaxBytes(maxMessage),
		// No compression: it costs more than a local socket, and a message
		// cannot be small on the wire and large in memory.
		connect.WithCompression("gzip", nil, nil),
		connect.WithInterceptors(traced{}),
		connect.WithRecover(s.recovered),
	))
	return endWithContext(mux)
}

// endWithContext makes reads and writes of a call end soon after its context:
// a handler that waits for a client's next message, or for a client to read,
// looks at no context while it does.
func endWithContext(next http.Handler) http.Handler {
	const lastWords = 2 * time.Second // for the answer that says why
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		done := make(chan struct{})
		stop := context.AfterFunc(r.Context(), func() {
			defer close(done)
			call := http.NewResponseController(w)
			_ = call.SetReadDeadline(time.Now())
			_ = call.SetWriteDeadline(time.Now().Add(lastWords))
		})
		defer func() {
			if !stop() {
				<-done // w is not to be used after the handler
			}
		}()
		next.ServeHTTP(w, r)
	})
}

func (s *server) recovered(ctx context.Context, spec connect.Spec, _ http.Header, p any) error {
	return s.fail(ctx, spec.Procedure, fault.Wrap(fault.Internal, fmt.Errorf("panic: %v", p), "internal error"))
}

// fail makes a handler's error and logs what the caller will not be told.
func (s *server) fail(ctx context.Context, op string, err error) error {
	level := slog.LevelDebug
	if code := fault.CodeOf(err); ctx.Err() == nil && (code == fault.Internal || code == fault.Unavailable) {
		level = slog.LevelWarn
	}
	s.log.Log(ctx, level, "call failed", "call", op, "code", fault.CodeOf(err), "error", err)
	return errorToWire(err)
}

// sandbox resolves an ID. What cannot be an ID is not passed on: adapters make
// file names of them.
func (s *server) sandbox(ctx context.Context, id string) (execenv.Sandbox, error) {
	if execenv.ValidateID(id) != nil {
		return nil, notFound("sandbox", id)
	}
	return s.env.Attach(ctx, id)
}

func (s *server) exec(ctx context.Context, sandbox, id string) (execenv.Exec, error) {
	sb, err := s.sandbox(ctx, sandbox)
	if err != nil {
		return nil, err
	}
	if execenv.ValidateID(id) != nil {
		return nil, notFound("command", id)
	}
	return sb.AttachExec(ctx, id)
}

func notFound(what, id string) error {
	return fault.New(fault.NotFound, "%s %.80q does not exist", what, id)
}

func (s *server) GetCapabilities(context.Context, *connect.Request[execdv1.GetCapabilitiesRequest]) (*connect.Response[execdv1.GetCapabilitiesResponse], error) {
	return connect.NewResponse(&execdv1.GetCapabilitiesResponse{Capabilities: capabilitiesToWire(s.env.Capabilities())}), nil
}

func (s *server) Create(ctx context.Context, req *connect.Request[execdv1.CreateRequest]) (*connect.Response[execdv1.CreateResponse], error) {
	spec, err := specFromWire(req.Msg.GetSpec())
	if err != nil {
		return nil, s.fail(ctx, "Create", err)
	}
	if len(req.Msg.GetAttempt()) > 64 {
		return nil, s.fail(ctx, "Create", fault.New(fault.Invalid, "attempt is longer than 64 bytes"))
	}
	if err := s.creations.create(ctx, spec, string(req.Msg.GetAttempt())); err != nil {
		return nil, s.fail(ctx, "Create", err)
	}
	s.log.InfoContext(ctx, "sandbox created", "sandbox", spec.ID)
	return connect.NewResponse(&execdv1.CreateResponse{}), nil
}

func (s *server) AbandonCreate(ctx context.Context, req *connect.Request[execdv1.AbandonCreateRequest]) (*connect.Response[execdv1.AbandonCreateResponse], error) {
	if n := len(req.Msg.GetAttempt()); n == 0 || n > 64 {
		return nil, s.fail(ctx, "AbandonCreate", fault.New(fault.Invalid, "attempt is not 1 to 64 bytes"))
	}
	if err := s.creations.abandon(ctx, req.Msg.GetId(), string(req.Msg.GetAttempt())); err != nil {
		return nil, s.fail(ctx, "AbandonCreate", err)
	}
	return connect.NewResponse(&execdv1.AbandonCreateResponse{}), nil
}

func (s *server) Get(ctx context.Context, req *connect.Request[execdv1.GetRequest]) (*connect.Response[execdv1.GetResponse], error) {
	sb, err := s.sandbox(ctx, req.Msg.GetSandboxId())
	if err != nil {
		return nil, s.fail(ctx, "Get", err)
	}
	info, err := sb.Info(ctx)
	if err != nil {
		return nil, s.fail(ctx, "Get", err)
	}
	return connect.NewResponse(&execdv1.GetResponse{Info: infoToWire(info)}), nil
}

func (s *server) List(ctx context.Context, _ *connect.Request[execdv1.ListRequest], stream *connect.ServerStream[execdv1.ListResponse]) error {
	infos, err := s.env.List(ctx)
	if err != nil {
		return s.fail(ctx, "List", err)
	}
	for _, info := range infos {
		if err := stream.Send(&execdv1.ListResponse{Item: &execdv1.ListResponse_Info{Info: infoToWire(info)}}); err != nil {
			return err
		}
	}
	return stream.Send(&execdv1.ListResponse{Item: &execdv1.ListResponse_End{End: &execdv1.ListEnd{}}})
}

func (s *server) Destroy(ctx context.Context, req *connect.Request[execdv1.DestroyRequest]) (*connect.Response[execdv1.DestroyResponse], error) {
	// What cannot be an ID names nothing, so nothing of it is left (P6).
	if id := req.Msg.GetSandboxId(); execenv.ValidateID(id) == nil {
		if err := s.env.Destroy(ctx, id); err != nil {
			return nil, s.fail(ctx, "Destroy", err)
		}
		s.log.InfoContext(ctx, "sandbox destroyed", "sandbox", id)
	}
	return connect.NewResponse(&execdv1.DestroyResponse{}), nil
}

func (s *server) SetNetwork(ctx context.Context, req *connect.Request[execdv1.SetNetworkRequest]) (*connect.Response[execdv1.SetNetworkResponse], error) {
	sb, err := s.sandbox(ctx, req.Msg.GetSandboxId())
	if err == nil {
		err = sb.SetNetwork(ctx, networkFromWire(req.Msg.GetNetwork()))
	}
	if err != nil {
		return nil, s.fail(ctx, "SetNetwork", err)
	}
	return connect.NewResponse(&execdv1.SetNetworkResponse{}), nil
}

func (s *server) GetNetworkUse(ctx context.Context, req *connect.Request[execdv1.GetNetworkUseRequest]) (*connect.Response[execdv1.GetNetworkUseResponse], error) {
	sb, err := s.sandbox(ctx, req.Msg.GetSandboxId())
	if err != nil {
		return nil, s.fail(ctx, "GetNetworkUse", err)
	}
	use, err := sb.NetworkUse(ctx)
	if err != nil {
		return nil, s.fail(ctx, "GetNetworkUse", err)
	}
	return connect.NewResponse(networkUseToWire(use)), nil
}

func (s *server) Extend(ctx context.Context, req *connect.Request[execdv1.ExtendRequest]) (*connect.Response[execdv1.ExtendResponse], error) {
	lifetime, err := durationFromWire("lifetime", req.Msg.GetLifetime())
	if err != nil {
		return nil, s.fail(ctx, "Extend", err)
	}
	sb, err := s.sandbox(ctx, req.Msg.GetSandboxId())
	if err == nil {
		err = sb.Extend(ctx, lifetime)
	}
	if err != nil {
		return nil, s.fail(ctx, "Extend", err)
	}
	return connect.NewResponse(&execdv1.ExtendResponse{}), nil
}

func (s *server) Pause(ctx context.Context, req *connect.Request[execdv1.PauseRequest]) (*connect.Response[execdv1.PauseResponse], error) {
	keep, err := durationFromWire("keep", req.Msg.GetKeep())
	if err != nil {
		return nil, s.fail(ctx, "Pause", err)
	}
	sb, err := s.sandbox(ctx, req.Msg.GetSandboxId())
	if err == nil {
		err = sb.Pause(ctx, keep)
	}
	if err != nil {
		return nil, s.fail(ctx, "Pause", err)
	}
	return connect.NewResponse(&execdv1.PauseResponse{}), nil
}

func (s *server) Resume(ctx context.Context, req *connect.Request[execdv1.ResumeRequest]) (*connect.Response[execdv1.ResumeResponse], error) {
	lifetime, err := durationFromWire("lifetime", req.Msg.GetLifetime())
	if err != nil {
		return nil, s.fail(ctx, "Resume", err)
	}
	sb, err := s.sandbox(ctx, req.Msg.GetSandboxId())
	if err == nil {
		err = sb.Resume(ctx, lifetime)
	}
	if err != nil {
		return nil, s.fail(ctx, "Resume", err)
	}
	return connect.NewResponse(&execdv1.ResumeResponse{}), nil
}

func (s *server) GetUsage(ctx context.Context, req *connect.Request[execdv1.GetUsageRequest]) (*connect.Response[execdv1.GetUsageResponse], error) {
	sb, err := s.sandbox(ctx, req.Msg.GetSandboxId())
	if err != nil {
		return nil, s.fail(ctx, "GetUsage", err)
	}
	usage, err := sb.Usage(ctx)
	if err != nil {
		return nil, s.fail(ctx, "GetUsage", err)
	}
	return connect.NewResponse(&execdv1.GetUsageResponse{Usage: usageToWire(usage)}), nil
}
