package httpapi

import (
	"context"
	"errors"
	"io"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/live"
	"github.com/agentdock/agentdock/internal/run"
)

// stdinPiece is how much of a body is handed to a program at a time.
const stdinPiece = 64 << 10

func (h *handlers) start(ctx context.Context, sandbox string, spec api.ExecSpec) (execenv.Exec, error) {
	command, err := commandOf(spec)
	if err != nil {
		return nil, err
	}
	box, err := h.open(ctx, sandbox)
	if err != nil {
		return nil, err
	}
	return box.Start(ctx, command)
}

func commandOf(s api.ExecSpec) (live.Command, error) {
	timeout, err := milliseconds("timeout_ms", s.TimeoutMS)
	if err != nil {
		return live.Command{}, err
	}
	c := live.Command{
		ID: s.ID, Argv: s.Argv, Script: s.Script, Dir: s.Dir, Env: s.Env, Stdin: s.Stdin, Timeout: timeout, OutputBytes: s.OutputBytes,
	}
	if s.TTY != nil {
		size, err := sizeOf(*s.TTY)
		if err != nil {
			return live.Command{}, err
		}
		c.TTY = &size
	}
	for _, l := range s.EndAtLimit {
		c.EndAtLimit = append(c.EndAtLimit, run.Limit(l))
	}
	return c, nil
}

func sizeOf(s api.TerminalSize) (execenv.WindowSize, error) {
	const most = 1<<16 - 1
	if s.Cols < 1 || s.Rows < 1 || s.Cols > most || s.Rows > most {
		return execenv.WindowSize{}, refuse(api.ProblemCodeInvalid, "a terminal has 1 to 65535 columns and rows")
	}
	return execenv.WindowSize{Cols: uint16(s.Cols), Rows: uint16(s.Rows)}, nil
}

func (h *handlers) exec(ctx context.Context, sandbox, id string) (execenv.Exec, error) {
	box, err := h.open(ctx, sandbox)
	if err != nil {
		return nil, err
	}
	return box.Attach(ctx, id)
}

func (h *handlers) StartExec(ctx context.Context, r StartExecRequestObject) (StartExecResponseObject, error) {
	x, err := h.start(ctx, r.SandboxID, *r.Body)
	if err != nil {
		return nil, err
	}
	return StartExec201JSONResponse{
		Body:    api.ExecStarted{ID: x.ID()},
		Headers: StartExec201ResponseHeaders{Location: "/v1/sandboxes/" + r.SandboxID + "/execs/" + x.ID()},
	}, nil
}

func (h *handlers) ListExecs(ctx context.Context, r ListExecsRequestObject) (ListExecsResponseObject, error) {
	box, err := h.open(ctx, r.SandboxID)
	if err != nil {
		return nil, err
	}
	infos, err := box.List(ctx)
	if err != nil {
		return nil, err
	}
	list := api.ExecList{Execs: make([]api.Exec, 0, len(infos))}
	for _, info := range infos {
		list.Execs = append(list.Execs, fromExec(info))
	}
	return ListExecs200JSONResponse(list), nil
}

func (h *handlers) GetExec(ctx context.Context, r GetExecRequestObject) (GetExecResponseObject, error) {
	box, err := h.open(ctx, r.SandboxID)
	if err != nil {
		return nil, err
	}
	infos, err := box.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, info := range infos {
		if info.ID == r.ExecID {
			return GetExec200JSONResponse(fromExec(info)), nil
		}
	}
	return nil, fault.New(fault.NotFound, "there is no command %q in sandbox %s, or not any more", clip(r.ExecID), r.SandboxID)
}

func (h *handlers) KillExec(ctx context.Context, r KillExecRequestObject) (KillExecResponseObject, error) {
	x, err := h.exec(ctx, r.SandboxID, r.ExecID)
	if err == nil {
		err = x.Kill(ctx)
	}
	if err != nil {
		return nil, err
	}
	return KillExec204Response{}, nil
}

func (h *handlers) SignalExec(ctx context.Context, r SignalExecRequestObject) (SignalExecResponseObject, error) {
	sig, ok := run.SignalNumber(r.Body.Signal)
	if !ok {
		return nil, refuse(api.ProblemCodeInvalid, "there is no signal \""+clip(r.Body.Signal)+"\"; name one such as SIGTERM")
	}
	x, err := h.exec(ctx, r.SandboxID, r.ExecID)
	if err == nil {
		err = x.Signal(ctx, sig)
	}
	if err != nil {
		return nil, err
	}
	return SignalExec204Response{}, nil
}

func (h *handlers) ResizeExec(ctx context.Context, r ResizeExecRequestObject) (ResizeExecResponseObject, error) {
	size, err := sizeOf(*r.Body)
	if err != nil {
		return nil, err
	}
	x, err := h.exec(ctx, r.SandboxID, r.ExecID)
	if err == nil {
		err = x.Resize(ctx, size)
	}
	if err != nil {
		return nil, err
	}
	return ResizeExec204Response{}, nil
}

// WriteStdin hands the body over piece by piece: a program that does not read
// makes the caller wait, and nothing of this service grows.
func (h *handlers) WriteStdin(ctx context.Context, r WriteStdinRequestObject) (WriteStdinResponseObject, error) {
	x, err := h.exec(ctx, r.SandboxID, r.ExecID)
	if err != nil {
		return nil, err
	}
	piece := make([]byte, stdinPiece)
	for {
		n, err := io.ReadFull(r.Body, piece)
		if n > 0 {
			if _, err := x.WriteStdin(ctx, piece[:n]); err != nil {
				return nil, err
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return nil, refuse(api.ProblemCodeInvalid, "cannot read the body to its end; what came before is written")
		}
	}
	if r.Params.Close {
		if err := x.CloseStdin(ctx); err != nil {
			return nil, err
		}
	}
	return WriteStdin204Response{}, nil
}

func fromExec(i execenv.ExecInfo) api.Exec {
	x := api.Exec{
		ID: i.ID, Argv: i.Argv, Dir: i.Dir, TTY: i.TTY, Stdin: i.Stdin, Running: i.Result == nil, StartedAt: utc(i.StartedAt),
	}
	if i.Result != nil {
		result := fromResult(*i.Result)
		x.Result = &result
	}
	return x
}

func fromResult(r execenv.Result) api.ExecResult {
	return api.ExecResult{
		Outcome: *fromOutcome(&r.Outcome), StdoutBytes: r.StdoutBytes, StderrBytes: r.StderrBytes, Truncated: r.Truncated,
		DurationMS: r.Duration.Milliseconds(),
	}
}
