package e2b

import (
	"context"
	"errors"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/interpreter"
	"github.com/agentdock/agentdock/internal/live"
	"github.com/agentdock/agentdock/internal/run"
)

// kernels are the newest of each context.
func (x *exchange) kernels(ctx context.Context) (interpreter.Kernels, error) {
	infos, err := x.handle.List(ctx)
	if err != nil {
		return nil, err
	}
	all := interpreter.Kernels{}
	for _, info := range infos {
		all.Add(info.ID, info.Argv, info.Result == nil)
	}
	return all, nil
}

// kernel returns the kernel of a context, started if it does not run: the default
// one is made when it is wanted first, and one that has ended begins anew.
func (x *exchange) kernel(ctx context.Context, id string) (interpreter.Kernel, error) {
	if id == "" {
		id = interpreter.DefaultContext
	}
	all, err := x.kernels(ctx)
	if err != nil {
		return interpreter.Kernel{}, err
	}
	k, known := all[id]
	switch {
	case k.Runs:
		return k.Kernel, x.ready(ctx, k.Kernel)
	case known:
		return x.startKernel(ctx, k.Next())
	case id == interpreter.DefaultContext:
		return x.startKernel(ctx, interpreter.Kernel{Context: id, Number: 1, Dir: execenv.Workspace})
	}
	return interpreter.Kernel{}, fault.New(fault.NotFound, "there is no context %q", text(id))
}

// startKernel starts one and waits until it listens. Two callers who start the
// same one start one.
func (x *exchange) startKernel(ctx context.Context, k interpreter.Kernel) (interpreter.Kernel, error) {
	_, err := x.handle.Start(ctx, live.Command{ID: k.Name(), Argv: k.Argv()})
	if err != nil {
		return k, err
	}
	return k, x.ready(ctx, k)
}

var errReady = errors.New("it is ready")

// ready waits until a kernel says that it listens.
func (x *exchange) ready(ctx context.Context, k interpreter.Kernel) error {
	exec, err := x.handle.Attach(ctx, k.Name())
	if err != nil {
		return err
	}
	var greeting interpreter.Greeting
	err = exec.Output(ctx, 0, func(c execenv.Chunk) error {
		if c.Stream == execenv.Stderr {
			greeting.Complain(c.Data)
			return nil
		}
		if greeting.Ready(c.Data) {
			return errReady
		}
		return nil
	})
	if errors.Is(err, errReady) {
		return nil
	}
	if err != nil {
		return err
	}
	result, err := exec.Wait(ctx)
	switch {
	case err != nil:
		return err
	case result.Outcome.Kind == run.NotStarted:
		return fault.New(fault.Unsupported, "the image has no python3, so there is no code interpreter")
	}
	return fault.New(fault.Unavailable, "the interpreter did not start: %s; %s", result.Outcome, greeting.Complaint())
}

// endKernel ends a kernel, if it runs.
func (x *exchange) endKernel(ctx context.Context, k interpreter.Kernel) error {
	exec, err := x.handle.Attach(ctx, k.Name())
	if err == nil {
		err = exec.Kill(ctx)
	}
	if err == nil {
		_, err = exec.Wait(ctx)
	}
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}
