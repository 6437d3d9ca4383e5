package fake_test

import (
	"context"
	"io"
	"syscall"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
)

// bend is an environment that breaks the contract where a hook is set, and
// passes everything on where none is.
type bend struct {
	execenv.Environment
	capabilities func(execenv.Capabilities) execenv.Capabilities
	create       func(e execenv.Environment, ctx context.Context, spec execenv.Spec) (execenv.Sandbox, error)
	attach       func(s execenv.Sandbox, err error) (execenv.Sandbox, error)
	list         func([]execenv.Info) []execenv.Info
	destroy      func(e execenv.Environment, ctx context.Context, id string) error

	exec func(s execenv.Sandbox, ctx context.Context, spec execenv.ExecSpec) (execenv.Exec, error)
	put  func(s execenv.Sandbox, ctx context.Context, dir string, r io.Reader) error
	// extend and execs are of a sandbox too.
	extend func(s execenv.Sandbox, ctx context.Context, lifetime time.Duration) error
	execs  func([]execenv.ExecInfo) []execenv.ExecInfo
	get    func(s execenv.Sandbox, ctx context.Context, req execenv.ArchiveRequest, w io.Writer) error

	output func(x execenv.Exec, ctx context.Context, from int64, yield func(execenv.Chunk) error) error
	wait   func(x execenv.Exec, ctx context.Context) (execenv.Result, error)
	write  func(x execenv.Exec, ctx context.Context, p []byte) (int, error)
	signal func(x execenv.Exec, ctx context.Context, sig syscall.Signal) error
	kill   func(x execenv.Exec, ctx context.Context) error
	resize func(x execenv.Exec, ctx context.Context, size execenv.WindowSize) error
}

func (b *bend) Capabilities() execenv.Capabilities {
	caps := b.Environment.Capabilities()
	if b.capabilities != nil {
		return b.capabilities(caps)
	}
	return caps
}

func (b *bend) Create(ctx context.Context, spec execenv.Spec) (execenv.Sandbox, error) {
	if b.create != nil {
		return b.box(b.create(b.Environment, ctx, spec))
	}
	return b.box(b.Environment.Create(ctx, spec))
}

func (b *bend) Attach(ctx context.Context, id string) (execenv.Sandbox, error) {
	s, err := b.Environment.Attach(ctx, id)
	if b.attach != nil {
		s, err = b.attach(s, err)
	}
	return b.box(s, err)
}

func (b *bend) List(ctx context.Context) ([]execenv.Info, error) {
	infos, err := b.Environment.List(ctx)
	if b.list != nil {
		infos = b.list(infos)
	}
	return infos, err
}

func (b *bend) Destroy(ctx context.Context, id string) error {
	if b.destroy != nil {
		return b.destroy(b.Environment, ctx, id)
	}
	return b.Environment.Destroy(ctx, id)
}

func (b *bend) box(s execenv.Sandbox, err error) (execenv.Sandbox, error) {
	if err != nil {
		return nil, err
	}
	return &bentBox{s, b}, nil
}

func (b *bend) command(x execenv.Exec, err error) (execenv.Exec, error) {
	if err != nil {
		return nil, err
	}
	return &bentExec{x, b}, nil
}

type bentBox struct {
	execenv.Sandbox
	b *bend
}

func (s *bentBox) Exec(ctx context.Context, spec execenv.ExecSpec) (execenv.Exec, error) {
	if s.b.exec != nil {
		return s.b.command(s.b.exec(s.Sandbox, ctx, spec))
	}
	return s.b.command(s.Sandbox.Exec(ctx, spec))
}

func (s *bentBox) AttachExec(ctx context.Context, id string) (execenv.Exec, error) {
	return s.b.command(s.Sandbox.AttachExec(ctx, id))
}

func (s *bentBox) PutArchive(ctx context.Context, dir string, r io.Reader) error {
	if s.b.put != nil {
		return s.b.put(s.Sandbox, ctx, dir, r)
	}
	return s.Sandbox.PutArchive(ctx, dir, r)
}

func (s *bentBox) GetArchive(ctx context.Context, req execenv.ArchiveRequest, w io.Writer) error {
	if s.b.get != nil {
		return s.b.get(s.Sandbox, ctx, req, w)
	}
	return s.Sandbox.GetArchive(ctx, req, w)
}

func (s *bentBox) Extend(ctx context.Context, lifetime time.Duration) error {
	if s.b.extend != nil {
		return s.b.extend(s.Sandbox, ctx, lifetime)
	}
	return s.Sandbox.Extend(ctx, lifetime)
}

func (s *bentBox) Execs(ctx context.Context) ([]execenv.ExecInfo, error) {
	infos, err := s.Sandbox.Execs(ctx)
	if err == nil && s.b.execs != nil {
		infos = s.b.execs(infos)
	}
	return infos, err
}

type bentExec struct {
	execenv.Exec
	b *bend
}

func (x *bentExec) Output(ctx context.Context, from int64, yield func(execenv.Chunk) error) error {
	if x.b.output != nil {
		return x.b.output(x.Exec, ctx, from, yield)
	}
	return x.Exec.Output(ctx, from, yield)
}

func (x *bentExec) Wait(ctx context.Context) (execenv.Result, error) {
	if x.b.wait != nil {
		return x.b.wait(x.Exec, ctx)
	}
	return x.Exec.Wait(ctx)
}

func (x *bentExec) WriteStdin(ctx context.Context, p []byte) (int, error) {
	if x.b.write != nil {
		return x.b.write(x.Exec, ctx, p)
	}
	return x.Exec.WriteStdin(ctx, p)
}

func (x *bentExec) Signal(ctx context.Context, sig syscall.Signal) error {
	if x.b.signal != nil {
		return x.b.signal(x.Exec, ctx, sig)
	}
	return x.Exec.Signal(ctx, sig)
}

func (x *bentExec) Kill(ctx context.Context) error {
	if x.b.kill != nil {
		return x.b.kill(x.Exec, ctx)
	}
	return x.Exec.Kill(ctx)
}

func (x *bentExec) Resize(ctx context.Context, size execenv.WindowSize) error {
	if x.b.resize != nil {
		return x.b.resize(x.Exec, ctx, size)
	}
	return x.Exec.Resize(ctx, size)
}
