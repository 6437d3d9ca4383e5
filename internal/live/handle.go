package live

import (
	"context"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agentdock/agentdock/internal/control"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/livefiles"
	"github.com/agentdock/agentdock/internal/run"
)

// Handle is a live sandbox in the hands of a caller who may use it.
type Handle struct {
	// Record is the sandbox as it was when it was opened.
	Record run.Sandbox

	s      *Sandboxes
	caller control.Caller
	box    execenv.Sandbox
	node   *node
	conn   Connection
}

// Open gives a caller's sandbox into his hands. It fails with Gone unless
// commands can run in it.
func (s *Sandboxes) Open(ctx context.Context, caller control.Caller, id string) (*Handle, error) {
	record, err := s.Get(ctx, caller, id)
	if err != nil {
		return nil, err
	}
	return s.open(ctx, caller, record)
}

func (s *Sandboxes) open(ctx context.Context, caller control.Caller, record run.Sandbox) (*Handle, error) {
	if record.State == run.SandboxPaused {
		return nil, fault.New(fault.Conflict, "sandbox %s is paused; resume it first", record.ID)
	}
	return s.reach(ctx, caller, record)
}

// reach is open for a sandbox that may be paused.
func (s *Sandboxes) reach(ctx context.Context, caller control.Caller, record run.Sandbox) (*Handle, error) {
	switch {
	case record.State == run.SandboxCreating:
		return nil, fault.New(fault.Conflict, "sandbox %s is being created; try again when it runs", record.ID)
	case record.Outcome != nil:
		return nil, fault.New(fault.Gone, "sandbox %s has ended: %s", record.ID, record.Outcome.Kind)
	}
	service, err := s.nodes.named(record.Node)
	if err != nil {
		return nil, err
	}
	conn, err := s.nodes.connect(ctx, service)
	if err != nil {
		return nil, err
	}
	h := &Handle{Record: record, s: s, caller: caller, node: service, conn: conn}
	if h.box = s.handles.get(record.ID, conn); h.box == nil {
		if h.box, err = conn.Attach(ctx, record.ID); err != nil {
			return nil, h.failed(ctx, err)
		}
		s.handles.keep(record.ID, conn, h.box)
	}
	return h, nil
}

// failed looks at an error of the execution service: one that has no such
// sandbox any more has lost it, and that goes on record now rather than with
// the next sweep.
func (h *Handle) failed(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	h.node.drop(h.conn, err)
	if fault.Is(err, fault.Gone) || fault.Is(err, fault.NotFound) {
		if ended := h.s.lookAt(ctx, h.Record, h.conn); ended != nil {
			return ended
		}
	}
	return err
}

// Command is a command that a caller wants to run.
type Command struct {
	// ID may be empty; one that the caller chose makes Start idempotent.
	ID string
	// Argv is the program with its arguments. Script, instead, is text for
	// /bin/sh, for tenants that may run shells.
	Argv   []string
	Script string
	// Dir is relative to the workspace, without "..".
	Dir   string
	Env   map[string]string
	Stdin bool
	TTY   *execenv.WindowSize
	// Timeout and OutputBytes lower the sandbox's limits; 0 leaves them.
	Timeout     time.Duration
	OutputBytes int64
	EndAtLimit  []run.Limit
}

// Start starts a command.
func (h *Handle) Start(ctx context.Context, c Command) (execenv.Exec, error) {
	spec, err := c.spec(h.caller)
	if err == nil {
		var x execenv.Exec
		if x, err = h.box.Exec(ctx, spec); err == nil {
			return x, nil
		}
		err = h.failed(ctx, err)
	}
	if fault.Is(err, fault.Denied) {
		h.s.audit(ctx, h.caller, "sandbox.exec", h.Record.ID, err)
	}
	return nil, err
}

// spec refuses what the caller may not run.
func (c Command) spec(caller control.Caller) (execenv.ExecSpec, error) {
	argv := c.Argv
	switch {
	case c.Script != "" && len(argv) > 0:
		return execenv.ExecSpec{}, fault.New(fault.Invalid, "a command has argv or a script, and not both")
	case strings.IndexByte(c.Script, 0) >= 0:
		return execenv.ExecSpec{}, fault.New(fault.Invalid, "the script holds a NUL byte")
	case c.Script != "":
		argv = []string{"/bin/sh", "-c", c.Script}
	}
	if len(argv) > control.MaxArgs {
		return execenv.ExecSpec{}, fault.New(fault.Invalid, "argv has %d arguments, more than %d", len(argv), control.MaxArgs)
	}
	if err := control.CheckEnv("env", c.Env); err != nil {
		return execenv.ExecSpec{}, err
	}
	spec := execenv.ExecSpec{
		ID: c.ID, Argv: argv, Dir: c.Dir, Env: maps.Clone(c.Env), Stdin: c.Stdin, TTY: c.TTY,
		Timeout: c.Timeout, OutputBytes: c.OutputBytes, EndAtLimit: c.EndAtLimit,
	}
	if err := spec.Validate(); err != nil {
		return spec, err
	}
	if shell := control.FindShell(argv); shell != "" && !caller.Tenant.Grants.Shell {
		return spec, fault.New(fault.Denied, "cannot run %q: this tenant may not run shells; name the program itself, or ask for the grant", shell)
	}
	return spec, nil
}

// Attach finds a command by its id, running or ended.
func (h *Handle) Attach(ctx context.Context, exec string) (execenv.Exec, error) {
	if execenv.ValidateID(exec) != nil {
		return nil, fault.New(fault.NotFound, "there is no such command in sandbox %s", h.Record.ID)
	}
	x, err := h.box.AttachExec(ctx, exec)
	if err != nil {
		return nil, h.failed(ctx, err)
	}
	return x, nil
}

// List names the commands that run, and those that ended and are still known,
// without the helpers that worked on files meanwhile.
func (h *Handle) List(ctx context.Context) ([]execenv.ExecInfo, error) {
	infos, err := h.box.Execs(ctx)
	infos = slices.DeleteFunc(infos, func(i execenv.ExecInfo) bool { return livefiles.IsHelper(i.Argv) })
	return infos, h.failed(ctx, err)
}

// Put unpacks a tar below a directory of the workspace (execenv A1).
func (h *Handle) Put(ctx context.Context, dir string, r io.Reader) error {
	return h.failed(ctx, h.box.PutArchive(ctx, dir, r))
}

// Fetch packs files of the workspace as a tar (execenv A3).
func (h *Handle) Fetch(ctx context.Context, r execenv.ArchiveRequest, w io.Writer) error {
	if err := r.Validate(); err != nil {
		return err
	}
	return h.failed(ctx, h.box.GetArchive(ctx, r, w))
}

// Files works on the files of the sandbox, from inside and as its user.
func (h *Handle) Files() (*livefiles.Files, error) {
	return livefiles.Open(h.box, h.Record.Spec.Limits.OutputBytes)
}

// Usage is what the sandbox uses now.
func (h *Handle) Usage(ctx context.Context) (run.Usage, error) {
	u, err := h.box.Usage(ctx)
	return u, h.failed(ctx, err)
}

// Port is the sandbox itself, for services of ours that run a helper of ours in
// it. What a caller wants to run goes through Start.
func (h *Handle) Port() execenv.Sandbox { return h.box }

// handles remembers the port's handles, so that using a sandbox again costs no
// question to the service whether it is there. They hold nothing.
type handles struct {
	mu  sync.Mutex
	all map[string]kept
}

type kept struct {
	box  execenv.Sandbox
	conn Connection
}

// mostHandles bounds what is remembered; beyond it all are forgotten.
const mostHandles = 10_000

func (k *handles) get(id string, conn Connection) execenv.Sandbox {
	k.mu.Lock()
	defer k.mu.Unlock()
	if one := k.all[id]; one.conn == conn {
		return one.box
	}
	return nil
}

func (k *handles) keep(id string, conn Connection, box execenv.Sandbox) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.all == nil || len(k.all) >= mostHandles {
		k.all = map[string]kept{}
	}
	k.all[id] = kept{box, conn}
}

func (k *handles) forget(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.all, id)
}
