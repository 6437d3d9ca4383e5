// Package oneshot runs one command in a sandbox of its own, with a person or a
// script watching: files in, output as it comes, artifacts out, one outcome.
// Whatever happens on the way, the sandbox is destroyed at the end.
package oneshot

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/agentdock/agentdock/internal/artifact"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// grace is how long what has begun may take to end once the caller has given
// up: to kill the command and learn its outcome, and to destroy the sandbox.
const grace = 30 * time.Second

// Request says what to run.
type Request struct {
	// ID is the execution's, and the sandbox's. NewID makes one.
	ID     string
	Image  string
	Env    map[string]string
	Limits run.Limits
	// Network is what the program may reach; the zero value is nothing.
	Network run.Network
	Argv    []string
	Dir     string
	// EndAtLimit names limits that end the command when it reaches them.
	EndAtLimit []run.Limit

	// Files writes the contents of the workspace as tar; nil leaves it empty.
	Files     func(ctx context.Context, w io.Writer) error
	FilesNote string // what is said while that takes long
	// Checkout, in place of Files, fills the workspace from a repository and
	// returns the commit.
	Checkout func(ctx context.Context, sb execenv.Sandbox) (commit string, err error)
	// Stdin is what the program reads; nil is nothing.
	Stdin io.Reader

	// Artifacts are patterns of what is kept, below Out.
	Artifacts      []string
	Out            string
	ArtifactLimits artifact.Limits
}

// Sinks take what comes out.
type Sinks struct {
	Stdout, Stderr io.Writer
	// Phase is told what begins, and the function it returns that it ended.
	Phase func(what string) (ended func())
}

// NewID makes a random UUID, which is a valid sandbox ID as well.
func NewID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// Run runs the request to its end. When ctx ends, the command is killed and its
// outcome is cancelled.
func Run(ctx context.Context, env execenv.Environment, req Request, sinks Sinks) Report {
	r := Report{ID: req.ID, Limits: req.Limits, Out: req.Out, Asked: len(req.Artifacts) > 0}
	if r.Err = prepareOut(req); r.Err == nil {
		r.Err = execute(ctx, env, req, sinks, &r)
	}
	r.cancelledEarly(ctx)
	return r
}

// errCancelledCollecting is the reason that a caller gave himself.
var errCancelledCollecting = errors.New("you cancelled the run while they were collected")

// prepareOut finds out before the run, and not after it, that its result could
// not be kept.
func prepareOut(req Request) error {
	if len(req.Artifacts) == 0 {
		return nil
	}
	made := false
	if _, err := os.Lstat(req.Out); os.IsNotExist(err) {
		made = true
	}
	if err := os.MkdirAll(req.Out, 0o755); err != nil {
		return fmt.Errorf("cannot make the directory for artifacts: %w", err)
	}
	probe, err := os.CreateTemp(req.Out, ".agentdock-")
	if err != nil {
		return fmt.Errorf("cannot write into the directory for artifacts: %w", err)
	}
	err = errors.Join(probe.Close(), os.Remove(probe.Name()))
	if made {
		// Made again if there is something to put into it.
		_ = os.Remove(req.Out)
	}
	return err
}

func execute(ctx context.Context, env execenv.Environment, req Request, sinks Sinks, r *Report) (err error) {
	sb, err := create(ctx, env, req, sinks)
	if err != nil {
		return err
	}
	defer func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		defer sinks.Phase("removing the sandbox")()
		if destroyErr := env.Destroy(last, req.ID); destroyErr != nil {
			err = errors.Join(err, fmt.Errorf("cannot remove the sandbox: %w", destroyErr))
		}
	}()
	if req.Files != nil {
		if err := putFiles(ctx, sb, req, sinks); err != nil {
			return err
		}
	}
	if req.Checkout != nil {
		ended := sinks.Phase(req.FilesNote)
		r.Commit, err = req.Checkout(ctx, sb)
		ended()
		if err != nil {
			return r.checkoutFailed(err)
		}
	}
	x, err := sb.Exec(ctx, execenv.ExecSpec{
		Argv: req.Argv, Dir: req.Dir, Stdin: req.Stdin != nil, EndAtLimit: req.EndAtLimit,
	})
	if err != nil {
		return err
	}
	result, err := follow(ctx, x, req, sinks)
	r.Result = result
	if req.Network.Open() {
		r.Network = networkUse(ctx, sb)
	}
	if err != nil {
		return err
	}
	if len(req.Artifacts) > 0 && ctx.Err() == nil {
		ended := sinks.Phase("collecting artifacts")
		r.Artifacts, r.ArtifactsErr = collect(ctx, sb, req)
		ended()
		if r.ArtifactsErr != nil && ctx.Err() != nil {
			r.ArtifactsErr = errCancelledCollecting
		}
	}
	return nil
}

func create(ctx context.Context, env execenv.Environment, req Request, sinks Sinks) (execenv.Sandbox, error) {
	defer sinks.Phase("creating the sandbox")()
	return env.Create(ctx, execenv.Spec{
		ID: req.ID, Image: req.Image, Env: req.Env, Limits: req.Limits, Network: req.Network,
		Labels: map[string]string{"agentdock.sandbox": "true", "agentdock.execution_id": req.ID},
	})
}

// networkUse is what the program did with its network. That it is not known makes
// no run fail.
func networkUse(ctx context.Context, sb execenv.Sandbox) *run.NetworkUse {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	use, err := sb.NetworkUse(ctx)
	if err != nil {
		return nil
	}
	return &use
}

// putFiles copies the workspace's contents in. If both sides fail, the side
// that reads the files knows why.
func putFiles(ctx context.Context, sb execenv.Sandbox, req Request, sinks Sinks) error {
	defer sinks.Phase(req.FilesNote)()
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := req.Files(ctx, w)
		packed <- err
		w.CloseWithError(err)
	}()
	putErr := sb.PutArchive(ctx, "", r)
	// So that the packer ends, whatever it is doing.
	r.CloseWithError(errNotTaken)
	packErr := <-packed
	switch {
	case packErr != nil && !errors.Is(packErr, errNotTaken):
		return packErr
	case fault.Is(putErr, fault.Exhausted):
		return fault.Wrap(fault.Exhausted, putErr, "the files do not fit into the workspace; raise --disk or --inodes")
	case fault.Is(putErr, fault.Gone) && ranOutOfMemory(ctx, sb):
		return fault.Wrap(fault.Exhausted, putErr, "the sandbox ran out of memory while the files were copied in; raise --memory")
	case putErr != nil:
		return fmt.Errorf("cannot copy the files: %w", putErr)
	}
	return nil
}

func ranOutOfMemory(ctx context.Context, sb execenv.Sandbox) bool {
	info, err := sb.Info(ctx)
	return err == nil && info.Outcome != nil && info.Outcome.Kind == run.OutOfMemory
}

var errNotTaken = errors.New("the sandbox takes no more")

// follow passes the command's input and output on until it has ended.
func follow(ctx context.Context, x execenv.Exec, req Request, sinks Sinks) (*execenv.Result, error) {
	// The caller's context ends the command; to see how it ended takes longer.
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	kill := func() {
		time.AfterFunc(grace, cancel)
		_ = x.Kill(life) // if that fails, destroying the sandbox does it
	}
	defer context.AfterFunc(ctx, kill)()

	broken := make(chan error, 1)
	if req.Stdin != nil {
		// It may outlive this: a read from a terminal ends with the process.
		go func() {
			if err := feed(life, x, req.Stdin); err != nil {
				broken <- err // before the kill: whoever sees that sees why
				kill()
			}
		}()
	}

	outputErr := passOutput(life, x, sinks)
	if outputErr != nil {
		// Nobody gets what the program says: it would run for nothing.
		kill()
	}
	result, err := x.Wait(life)
	if err != nil {
		return nil, fmt.Errorf("cannot learn how the command ended: %w", errors.Join(err, outputErr))
	}
	select {
	case err := <-broken:
		return &result, err
	default:
	}
	if ctx.Err() != nil {
		return &result, nil
	}
	return &result, outputErr
}

// passOutput writes the log to the sinks. A connection that breaks is tried
// again from where it broke: the log is still there if the service is.
func passOutput(ctx context.Context, x execenv.Exec, sinks Sinks) error {
	var next int64
	var writeErr error
	for attempt := 0; ; attempt++ {
		err := x.Output(ctx, next, func(c execenv.Chunk) error {
			to := sinks.Stdout
			if c.Stream == execenv.Stderr {
				to = sinks.Stderr
			}
			if _, writeErr = to.Write(c.Data); writeErr != nil {
				return writeErr
			}
			next, attempt = c.Offset+int64(len(c.Data)), 0
			return nil
		})
		switch {
		case err == nil:
			return nil
		case writeErr != nil:
			return fault.Wrap(fault.Internal, writeErr, "cannot pass on the program's output")
		case attempt >= 3 || !fault.Is(err, fault.Unavailable) || ctx.Err() != nil:
			return fmt.Errorf("cannot follow the program's output: %w", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// feed passes input on as the program takes it. An input that cannot be read to
// its end is an error: the program must not take a part for the whole.
func feed(ctx context.Context, x execenv.Exec, r io.Reader) error {
	buf := make([]byte, 64<<10)
	for {
		n, readErr := r.Read(buf)
		if n > 0 {
			if _, err := x.WriteStdin(ctx, buf[:n]); err != nil {
				return nil // the program has ended, or the wait for it says why
			}
		}
		if errors.Is(readErr, io.EOF) {
			_ = x.CloseStdin(ctx)
			return nil
		}
		if readErr != nil {
			return fault.Wrap(fault.Invalid, readErr, "cannot read the input for the program")
		}
	}
}

// Failed is the report of a run that failed before it had a sandbox. If ctx has
// ended, that is why.
func Failed(ctx context.Context, req Request, err error) Report {
	r := Report{ID: req.ID, Limits: req.Limits, Err: err}
	r.cancelledEarly(ctx)
	return r
}

// checkoutFailed takes an error that knows its outcome for one. Its cause is
// said too: on a command line it is the user's to see.
func (r *Report) checkoutFailed(err error) error {
	var failed interface{ Outcome() run.Outcome }
	if !errors.As(err, &failed) {
		return err
	}
	o := failed.Outcome()
	var f *fault.Error
	if errors.As(err, &f) && f.Cause != nil {
		o.Evidence += ": " + f.Cause.Error()
	}
	r.Result = &execenv.Result{Outcome: o}
	return nil
}

func (r *Report) cancelledEarly(ctx context.Context) {
	if r.Err != nil && r.Result == nil && ctx.Err() != nil {
		evidence := "before the command was started"
		// What lives on must be known, whoever gave up.
		var left interface{ LivesOn() string }
		if errors.As(r.Err, &left) {
			evidence += "; " + left.LivesOn()
		}
		r.Err = nil
		r.Result = &execenv.Result{Outcome: run.Outcome{Kind: run.Cancelled, Evidence: evidence}}
	}
}
