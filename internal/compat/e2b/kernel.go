package e2b

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"strconv"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/live"
	"github.com/agentdock/agentdock/internal/run"
)

// kernelProgram runs in the sandbox, as a command like any other. What it says is
// as hostile as everything there.
//
//go:embed kernel.py
var kernelProgram string

// A kernel is a command of the sandbox, and all that is known about it is in its
// name and its arguments: so any process finds it. It has the name of its context
// and a number, which grows when it is started again.
var kernelName = regexp.MustCompile(`^e2b-kernel-([a-z0-9]{1,32})-([0-9]{1,9})$`)

// defaultContext is the one of code that names none.
const defaultContext = "python"

// kernel is one that runs.
type kernel struct {
	context string
	number  int
	dir     string
}

func (k kernel) name() string   { return fmt.Sprintf("e2b-kernel-%s-%d", k.context, k.number) }
func (k kernel) socket() string { return "/tmp/." + k.name() }

func (k kernel) argv() []string {
	return []string{"python3", "-c", kernelProgram, k.socket(), k.dir}
}

// kernels are the newest of each context, by context, and which of them run.
func (x *exchange) kernels(ctx context.Context) (newest map[string]kernel, runs map[string]bool, err error) {
	infos, err := x.handle.List(ctx)
	if err != nil {
		return nil, nil, err
	}
	newest, runs = map[string]kernel{}, map[string]bool{}
	for _, info := range infos {
		m := kernelName.FindStringSubmatch(info.ID)
		if m == nil || len(info.Argv) == 0 {
			continue
		}
		number, _ := strconv.Atoi(m[2])
		if old, known := newest[m[1]]; known && old.number > number {
			continue
		}
		newest[m[1]] = kernel{context: m[1], number: number, dir: info.Argv[len(info.Argv)-1]}
		runs[m[1]] = info.Result == nil
	}
	return newest, runs, nil
}

// kernel returns the kernel of a context, started if it does not run: the default
// one is made when it is wanted first, and one that has ended begins anew.
func (x *exchange) kernel(ctx context.Context, id string) (kernel, error) {
	if id == "" {
		id = defaultContext
	}
	newest, runs, err := x.kernels(ctx)
	if err != nil {
		return kernel{}, err
	}
	k, known := newest[id]
	switch {
	case runs[id]:
		return k, x.ready(ctx, k)
	case known:
		return x.startKernel(ctx, kernel{id, k.number + 1, k.dir})
	case id == defaultContext:
		return x.startKernel(ctx, kernel{id, 1, execenv.Workspace})
	}
	return kernel{}, fault.New(fault.NotFound, "there is no context %q", text(id))
}

// startKernel starts one and waits until it listens. Two callers who start the
// same one start one.
func (x *exchange) startKernel(ctx context.Context, k kernel) (kernel, error) {
	_, err := x.handle.Start(ctx, live.Command{ID: k.name(), Argv: k.argv()})
	if err != nil {
		return k, err
	}
	return k, x.ready(ctx, k)
}

var errReady = errors.New("it is ready")

// ready waits until a kernel says that it listens.
func (x *exchange) ready(ctx context.Context, k kernel) error {
	exec, err := x.handle.Attach(ctx, k.name())
	if err != nil {
		return err
	}
	var said, complaint []byte
	err = exec.Output(ctx, 0, func(c execenv.Chunk) error {
		if c.Stream == execenv.Stderr {
			complaint = append(complaint, c.Data[:min(len(c.Data), max(0, 2000-len(complaint)))]...)
			return nil
		}
		said = append(said, c.Data[:min(len(c.Data), max(0, 64-len(said)))]...)
		if bytes.Contains(said, []byte("ready\n")) {
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
	return fault.New(fault.Unavailable, "the interpreter did not start: %s; %s", result.Outcome, lastLine(complaint))
}

func lastLine(b []byte) string {
	b = bytes.TrimSpace(b)
	return text(string(b[bytes.LastIndexByte(b, '\n')+1:]))
}

// endKernel ends a kernel, if it runs.
func (x *exchange) endKernel(ctx context.Context, k kernel) error {
	exec, err := x.handle.Attach(ctx, k.name())
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
