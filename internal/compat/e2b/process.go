package e2b

import (
	"context"
	"errors"
	"path"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"

	pb "github.com/agentdock/agentdock/internal/compat/e2b/processpb"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/live"
	"github.com/agentdock/agentdock/internal/livefiles"
)

// processes serves process.Process.
type processes struct{}

// Start starts a command and follows it. A client that goes away ends nothing;
// the time that it gave for the call does.
func (processes) Start(ctx context.Context, req *connect.Request[pb.StartRequest], stream *connect.ServerStream[pb.StartResponse]) error {
	x := exchangeOf(ctx)
	if err := x.gate.Hold(x.caller); err != nil {
		return asConnect(err)
	}
	command, err := x.command(ctx, req.Msg)
	if err != nil {
		return asConnect(err)
	}
	p, err := newProcess(req.Msg.Tag)
	if err != nil {
		return asConnect(err)
	}
	p.TTY, command.ID = command.TTY != nil, p.name()
	exec, err := x.handle.Start(ctx, command)
	if err != nil {
		return asConnect(err)
	}
	return follow(ctx, found{exec, p}, keepAlive(req.Header(), func(e *pb.ProcessEvent) error {
		return stream.Send(&pb.StartResponse{Event: e})
	}, keepAliveEvent))
}

// Connect follows a command that runs, from its first byte on.
func (processes) Connect(ctx context.Context, req *connect.Request[pb.ConnectRequest], stream *connect.ServerStream[pb.ConnectResponse]) error {
	x := exchangeOf(ctx)
	if err := x.gate.Hold(x.caller); err != nil {
		return asConnect(err)
	}
	c, err := x.findRunning(ctx, req.Msg.GetProcess())
	if err != nil {
		return asConnect(err)
	}
	return follow(ctx, c, keepAlive(req.Header(), func(e *pb.ProcessEvent) error {
		return stream.Send(&pb.ConnectResponse{Event: e})
	}, keepAliveEvent))
}

var keepAliveEvent = &pb.ProcessEvent{Event: &pb.ProcessEvent_Keepalive{Keepalive: &pb.ProcessEvent_KeepAlive{}}}

// command is what a client wants to start.
func (x *exchange) command(ctx context.Context, m *pb.StartRequest) (live.Command, error) {
	config := m.GetProcess()
	c := live.Command{
		Argv: append([]string{config.GetCmd()}, config.GetArgs()...), Env: config.GetEnvs(),
		// Clients that do not say have a standard input.
		Stdin: m.Stdin == nil || m.GetStdin(),
	}
	if config.GetCmd() == "" {
		return c, fault.New(fault.Invalid, "the command is empty")
	}
	if m.Pty != nil {
		size, err := windowSize(m.GetPty().GetSize())
		if err != nil {
			return c, err
		}
		c.TTY, c.Stdin = &size, true
		if c.Env["TERM"] == "" {
			c.Env = withVariable(c.Env, "TERM", "xterm-256color")
		}
	}
	if deadline, ok := ctx.Deadline(); ok {
		c.Timeout = max(time.Until(deadline), time.Millisecond)
	}
	err := x.in(ctx, &c, config.GetCwd())
	return c, err
}

// in makes a command start in a directory.
func (x *exchange) in(ctx context.Context, c *live.Command, dir string) error {
	if dir = inHome(dir); dir == "" {
		return nil
	}
	files, err := x.files()
	if err != nil {
		return err
	}
	at, err := livefiles.Resolve(dir)
	if err != nil {
		return err
	}
	e, err := files.Stat(ctx, at)
	switch {
	case fault.Is(err, fault.NotFound):
		return fault.New(fault.Invalid, "the directory %q does not exist", text(dir))
	case err != nil:
		return err
	case e.Kind != livefiles.Directory && e.TargetKind != livefiles.Directory:
		return fault.New(fault.Invalid, "%q is not a directory", text(dir))
	}
	below, ok := strings.CutPrefix(at+"/", execenv.Workspace+"/")
	if ok && e.Kind == livefiles.Directory {
		c.Dir = path.Clean(below)
		if c.Dir == "." || c.Dir == "/" {
			c.Dir = ""
		}
		return nil
	}
	c.Argv = inDirectory(at, c.Argv)
	return nil
}

func windowSize(s *pb.PTY_Size) (execenv.WindowSize, error) {
	cols, rows := s.GetCols(), s.GetRows()
	if cols == 0 || rows == 0 || cols > 1<<15 || rows > 1<<15 {
		return execenv.WindowSize{}, fault.New(fault.Invalid, "a terminal of %d columns and %d rows is not possible", cols, rows)
	}
	return execenv.WindowSize{Cols: uint16(cols), Rows: uint16(rows)}, nil
}

// follow sends everything about a command: its number, its output, its end.
func follow(ctx context.Context, c found, to *alive[pb.ProcessEvent]) error {
	defer to.stop()
	err := to.send(&pb.ProcessEvent{Event: &pb.ProcessEvent_Start{Start: &pb.ProcessEvent_StartEvent{Pid: c.pid}}})
	if err != nil {
		return err
	}
	whole := &wholeRunes{terminal: c.TTY, send: to.send}
	if err = c.Output(ctx, 0, whole.chunk); err == nil {
		err = whole.rest()
	}
	var result execenv.Result
	if err == nil {
		result, err = c.Wait(ctx)
	}
	var end *pb.ProcessEvent_EndEvent
	if err == nil {
		end, err = endEvent(result)
	}
	if err == nil {
		err = to.send(&pb.ProcessEvent{Event: &pb.ProcessEvent_End{End: end}})
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return connect.NewError(connect.CodeDeadlineExceeded, errors.New("the time for this call has passed"))
	}
	return asConnect(err)
}

func (processes) List(ctx context.Context, _ *connect.Request[pb.ListRequest]) (*connect.Response[pb.ListResponse], error) {
	all, err := exchangeOf(ctx).processes(ctx)
	res := &pb.ListResponse{}
	for _, p := range all {
		if !p.ended() {
			res.Processes = append(res.Processes, p.describe())
		}
	}
	return respond(res, err)
}

func (processes) Update(ctx context.Context, req *connect.Request[pb.UpdateRequest]) (*connect.Response[pb.UpdateResponse], error) {
	size, err := windowSize(req.Msg.GetPty().GetSize())
	if err == nil {
		err = with(ctx, req.Msg.GetProcess(), func(c found) error {
			if !c.TTY {
				return fault.New(fault.Invalid, "process %d has no terminal", c.pid)
			}
			return c.Resize(ctx, size)
		})
	}
	return respond(&pb.UpdateResponse{}, err)
}

func (processes) SendInput(ctx context.Context, req *connect.Request[pb.SendInputRequest]) (*connect.Response[pb.SendInputResponse], error) {
	err := with(ctx, req.Msg.GetProcess(), func(c found) error { return c.input(ctx, req.Msg.GetInput()) })
	return respond(&pb.SendInputResponse{}, err)
}

func (c found) input(ctx context.Context, in *pb.ProcessInput) error {
	data := in.GetStdin()
	if p := in.GetPty(); p != nil {
		data = p
	}
	if len(data) == 0 {
		return nil
	}
	_, err := c.WriteStdin(ctx, data)
	return err
}

func (processes) StreamInput(ctx context.Context, stream *connect.ClientStream[pb.StreamInputRequest]) (*connect.Response[pb.StreamInputResponse], error) {
	var to *pb.ProcessSelector
	for stream.Receive() {
		var err error
		switch e := stream.Msg().GetEvent().(type) {
		case *pb.StreamInputRequest_Start:
			to = e.Start.GetProcess()
		case *pb.StreamInputRequest_Data:
			err = with(ctx, to, func(c found) error { return c.input(ctx, e.Data.GetInput()) })
		}
		if err != nil {
			return nil, asConnect(err)
		}
	}
	return respond(&pb.StreamInputResponse{}, stream.Err())
}

func (processes) SendSignal(ctx context.Context, req *connect.Request[pb.SendSignalRequest]) (*connect.Response[pb.SendSignalResponse], error) {
	err := with(ctx, req.Msg.GetProcess(), func(c found) error {
		switch req.Msg.GetSignal() {
		case pb.Signal_SIGNAL_SIGKILL:
			return c.Kill(ctx)
		case pb.Signal_SIGNAL_SIGTERM:
			return c.Signal(ctx, syscall.SIGTERM)
		}
		return fault.New(fault.Invalid, "only the signals 9 and 15 can be sent")
	})
	return respond(&pb.SendSignalResponse{}, err)
}

func (processes) CloseStdin(ctx context.Context, req *connect.Request[pb.CloseStdinRequest]) (*connect.Response[pb.CloseStdinResponse], error) {
	err := with(ctx, req.Msg.GetProcess(), func(c found) error { return c.CloseStdin(ctx) })
	return respond(&pb.CloseStdinResponse{}, err)
}

// with does something with a command that runs. Gone says here that the command,
// or its input, has ended, and not the sandbox.
func with(ctx context.Context, which *pb.ProcessSelector, do func(found) error) error {
	c, err := exchangeOf(ctx).findRunning(ctx, which)
	if err != nil {
		return err
	}
	if err = do(c); fault.Is(err, fault.Gone) {
		return connect.NewError(connect.CodeFailedPrecondition, errors.New(fault.Public(err)))
	}
	return err
}
