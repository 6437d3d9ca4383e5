package execrpc

import (
	"context"
	"crypto/rand"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"

	execdv1 "github.com/agentdock/agentdock/api/execd/v1"
	"github.com/agentdock/agentdock/api/execd/v1/execdv1connect"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/run"
)

// abandonFor bounds how long a Create that failed takes to be undone. It is
// spent after the caller's context has ended, so it is short.
const abandonFor = 10 * time.Second

// Client is an Environment on the other side of a connection. Make it with
// DialUnix, DialTLS or NewClient.
type Client struct {
	rpc          execdv1connect.ExecdServiceClient
	http         *http.Client
	capabilities execenv.Capabilities
}

var (
	_ execenv.Environment = (*Client)(nil)
	_ execenv.Sandbox     = (*sandbox)(nil)
	_ execenv.Exec        = (*exec)(nil)
)

// NewClient speaks to the service at base through hc, which must speak HTTP/2,
// and asks what the environment can do. It fails when the service cannot be
// reached.
func NewClient(ctx context.Context, hc *http.Client, base string) (*Client, error) {
	c := &Client{
		http: hc,
		rpc: execdv1connect.NewExecdServiceClient(hc, base,
			connect.WithReadMaxBytes(maxMessage),
			connect.WithSendMaxBytes(maxMessage),
			connect.WithAcceptCompression("gzip", nil, nil),
			connect.WithInterceptors(traced{}),
		),
	}
	res, err := c.rpc.GetCapabilities(ctx, connect.NewRequest(&execdv1.GetCapabilitiesRequest{}))
	if err == nil {
		c.capabilities, err = capabilitiesFromWire(res.Msg.GetCapabilities())
	}
	if err != nil {
		c.Close()
		return nil, errorFromWire(ctx, "reach the execution service", err)
	}
	return c, nil
}

// Close gives up connections that nothing uses.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Capabilities are those the service gave when it was reached (G4).
func (c *Client) Capabilities() execenv.Capabilities { return c.capabilities }

// Create creates a sandbox. When it fails without an answer (the context
// ended, the connection broke), it asks the service to undo the call and waits
// for that, for at most abandonFor (P2).
func (c *Client) Create(ctx context.Context, spec execenv.Spec) (execenv.Sandbox, error) {
	if err := validate(spec); err != nil {
		return nil, err
	}
	wire, err := specToWire(spec)
	if err != nil {
		return nil, err
	}
	attempt := []byte(rand.Text())
	_, err = c.rpc.Create(ctx, connect.NewRequest(&execdv1.CreateRequest{Spec: wire, Attempt: attempt}))
	if err == nil {
		return &sandbox{c: c, id: spec.ID}, nil
	}
	if detailOf(err) == nil {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonFor)
		defer cancel()
		// If this fails too, the service is out of reach. The caller knows
		// the ID, and the service's own lifetime limit ends what is left.
		_, _ = c.rpc.AbandonCreate(undo, connect.NewRequest(&execdv1.AbandonCreateRequest{Id: spec.ID, Attempt: attempt}))
	}
	return nil, errorFromWire(ctx, "create sandbox "+spec.ID, err)
}

// Attach returns a handle to a sandbox the service knows.
func (c *Client) Attach(ctx context.Context, id string) (execenv.Sandbox, error) {
	if execenv.ValidateID(id) != nil {
		return nil, notFound("sandbox", id)
	}
	sb := &sandbox{c: c, id: id}
	if _, err := sb.Info(ctx); err != nil {
		return nil, err
	}
	return sb, nil
}

// List names every sandbox of which anything is left. A list that was cut is
// an error, not a shorter list.
func (c *Client) List(ctx context.Context) ([]execenv.Info, error) {
	const what = "list sandboxes"
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.rpc.List(ctx, connect.NewRequest(&execdv1.ListRequest{}))
	if err != nil {
		return nil, errorFromWire(ctx, what, err)
	}
	defer closeStream(stream, cancel)
	infos := []execenv.Info{}
	for stream.Receive() {
		switch item := stream.Msg().GetItem().(type) {
		case *execdv1.ListResponse_Info:
			info, err := infoFromWire(item.Info)
			if err != nil {
				return nil, err
			}
			infos = append(infos, info)
		case *execdv1.ListResponse_End:
			return infos, nil
		}
	}
	return nil, streamError(ctx, what, stream.Err())
}

// Destroy frees a sandbox. It is asked for even if ctx has ended, and the
// service goes on with it when ctx ends (P6).
func (c *Client) Destroy(ctx context.Context, id string) error {
	if execenv.ValidateID(id) != nil {
		return nil // what cannot be an ID names nothing
	}
	done := make(chan error, 1)
	go func() {
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), destroyFor)
		defer cancel()
		_, err := c.rpc.Destroy(call, connect.NewRequest(&execdv1.DestroyRequest{SandboxId: id}))
		done <- errorFromWire(call, "destroy sandbox "+id, err)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return errorFromWire(ctx, "learn whether sandbox "+id+" is destroyed", ctx.Err())
	}
}

// sandbox is a handle: a name and the way there.
type sandbox struct {
	c  *Client
	id string
}

func (s *sandbox) ID() string { return s.id }

func (s *sandbox) Info(ctx context.Context) (execenv.Info, error) {
	res, err := s.c.rpc.Get(ctx, connect.NewRequest(&execdv1.GetRequest{SandboxId: s.id}))
	if err != nil {
		return execenv.Info{}, errorFromWire(ctx, "describe sandbox "+s.id, err)
	}
	return infoFromWire(res.Msg.GetInfo())
}

func (s *sandbox) Usage(ctx context.Context) (run.Usage, error) {
	res, err := s.c.rpc.GetUsage(ctx, connect.NewRequest(&execdv1.GetUsageRequest{SandboxId: s.id}))
	if err != nil {
		return run.Usage{}, errorFromWire(ctx, "measure sandbox "+s.id, err)
	}
	return usageFromWire(res.Msg.GetUsage())
}

// Exec starts a command. A command without an ID gets one here, so that one
// whose answer was lost is not started twice by a repeated call of the
// transport.
func (s *sandbox) Exec(ctx context.Context, spec execenv.ExecSpec) (execenv.Exec, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if spec.ID == "" {
		spec.ID = "x-" + strings.ToLower(rand.Text())
	}
	res, err := s.c.rpc.Exec(ctx, connect.NewRequest(&execdv1.ExecRequest{SandboxId: s.id, Spec: execSpecToWire(spec)}))
	if err != nil {
		return nil, errorFromWire(ctx, "start command "+spec.ID, err)
	}
	return &exec{s: s, id: res.Msg.GetExecId()}, nil
}

// SetNetwork changes what the sandbox may reach.
func (s *sandbox) SetNetwork(ctx context.Context, n run.Network) error {
	_, err := s.c.rpc.SetNetwork(ctx, connect.NewRequest(&execdv1.SetNetworkRequest{SandboxId: s.id, Network: networkToWire(n)}))
	return errorFromWire(ctx, "change the network of sandbox "+s.id, err)
}

// NetworkUse says what the sandbox reached and was refused.
func (s *sandbox) NetworkUse(ctx context.Context) (run.NetworkUse, error) {
	resp, err := s.c.rpc.GetNetworkUse(ctx, connect.NewRequest(&execdv1.GetNetworkUseRequest{SandboxId: s.id}))
	if err != nil {
		return run.NetworkUse{}, errorFromWire(ctx, "learn what sandbox "+s.id+" reached", err)
	}
	return networkUseFromWire(resp.Msg)
}

// Extend moves the end of the lifetime.
func (s *sandbox) Extend(ctx context.Context, lifetime time.Duration) error {
	if err := execenv.ValidateLifetime(lifetime); err != nil {
		return err
	}
	_, err := s.c.rpc.Extend(ctx, connect.NewRequest(&execdv1.ExtendRequest{SandboxId: s.id, Lifetime: durationToWire(lifetime)}))
	return errorFromWire(ctx, "extend sandbox "+s.id, err)
}

// Pause puts the sandbox away.
func (s *sandbox) Pause(ctx context.Context, keep time.Duration) error {
	if err := execenv.ValidateLifetime(keep); err != nil {
		return err
	}
	_, err := s.c.rpc.Pause(ctx, connect.NewRequest(&execdv1.PauseRequest{SandboxId: s.id, Keep: durationToWire(keep)}))
	return errorFromWire(ctx, "pause sandbox "+s.id, err)
}

// Resume brings it back.
func (s *sandbox) Resume(ctx context.Context, lifetime time.Duration) error {
	if err := execenv.ValidateLifetime(lifetime); err != nil {
		return err
	}
	_, err := s.c.rpc.Resume(ctx, connect.NewRequest(&execdv1.ResumeRequest{SandboxId: s.id, Lifetime: durationToWire(lifetime)}))
	return errorFromWire(ctx, "resume sandbox "+s.id, err)
}

// Execs names the commands. A list that was cut is an error, not a shorter list.
func (s *sandbox) Execs(ctx context.Context) ([]execenv.ExecInfo, error) {
	what := "list the commands of sandbox " + s.id
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := s.c.rpc.ListExecs(ctx, connect.NewRequest(&execdv1.ListExecsRequest{SandboxId: s.id}))
	if err != nil {
		return nil, errorFromWire(ctx, what, err)
	}
	defer closeStream(stream, cancel)
	infos := []execenv.ExecInfo{}
	for stream.Receive() {
		switch item := stream.Msg().GetItem().(type) {
		case *execdv1.ListExecsResponse_Info:
			info, err := execInfoFromWire(item.Info)
			if err != nil {
				return nil, err
			}
			infos = append(infos, info)
		case *execdv1.ListExecsResponse_End:
			return infos, nil
		}
	}
	return nil, streamError(ctx, what, stream.Err())
}

func (s *sandbox) AttachExec(ctx context.Context, id string) (execenv.Exec, error) {
	if execenv.ValidateID(id) != nil {
		return nil, notFound("command", id)
	}
	_, err := s.c.rpc.AttachExec(ctx, connect.NewRequest(&execdv1.AttachExecRequest{SandboxId: s.id, ExecId: id}))
	if err != nil {
		return nil, errorFromWire(ctx, "find command "+id, err)
	}
	return &exec{s: s, id: id}, nil
}

// streamError is why a stream gave no further message although its end message
// has not come.
func streamError(ctx context.Context, what string, err error) error {
	if err == nil {
		err = errCut
	}
	return errorFromWire(ctx, what, err)
}

// closeStream cancels before it closes: closing alone would read what is left
// of a stream the caller no longer wants.
func closeStream(stream interface{ Close() error }, cancel context.CancelFunc) {
	cancel()
	_ = stream.Close()
}
