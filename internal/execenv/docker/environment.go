// Package docker runs sandboxes as containers of a rootless Docker daemon. It is
// for development only (REQUIREMENTS A6): a program makes its system calls to the
// host's kernel, behind namespaces, the daemon's seccomp allow-list and the user
// namespace of an ordinary user.
//
// A sandbox is one container without network, without capabilities, with a
// read-only root and three tmpfs mounts. Its first process is the supervisor of
// package supervisor, which starts commands for this package over a connection of
// their own; when that closes, the container ends. So sandboxes end with the
// process that made them, whatever becomes of the daemon, and nothing is read
// from a stream that passes through it. Archives go through the guest helper
// inside, never through the daemon's own copy.
//
// Which limits hold depends on the daemon: without a control group it discards
// those of memory, processor and processes in silence. They are declared as not
// enforced then, and refused.
package docker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moby/moby/client"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/lifecycle"
	"github.com/agentdock/agentdock/internal/fault"
)

// Config is what an Environment needs.
type Config struct {
	// Socket is the daemon's unix socket.
	Socket string
	// StateDir belongs to this Environment alone; the daemon's user can reach it.
	// What a predecessor left in it, and the containers that go with it, are
	// removed by New.
	StateDir string
	// Guest is the path of the agentdock-guest program.
	Guest string
	// AllowRootful admits a daemon that runs as root: only for tests.
	AllowRootful bool
	Logger       *slog.Logger
}

// Environment implements execenv.Environment.
type Environment struct {
	cfg      Config
	engine   *client.Client
	daemon   daemon
	instance string // in the names and labels of its containers
	lock     *os.File
	log      *slog.Logger
	// freeTimeout bounds one attempt to free a sandbox.
	freeTimeout time.Duration

	stop     context.CancelFunc
	watching sync.WaitGroup

	boxes *lifecycle.Registry[*box]
	// room is how many bytes the files of all sandboxes may take, promised how many
	// those that there are can take.
	room     int64
	promised atomic.Int64
}

var _ execenv.Environment = (*Environment)(nil)

// startTimeout bounds what New asks of the daemon.
const startTimeout = 30 * time.Second

// New makes an Environment and removes everything a predecessor with the same
// StateDir left. It fails if another process uses that directory, and if the
// daemon is not one that may be used.
func New(ctx context.Context, cfg Config) (_ *Environment, err error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	e, err := open(cfg)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			e.leaveNothing()
			err = errors.Join(err, e.lock.Close(), e.engine.Close())
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if e.daemon, err = lookAt(ctx, e.engine, cfg.AllowRootful); err != nil {
		return nil, err
	}
	e.room = roomFor(e.daemon.memTotal, cfg.Socket)
	if err := e.sweep(ctx); err != nil {
		return nil, fmt.Errorf("cannot remove what an earlier run left: %w", err)
	}
	if err := e.installGuest(); err != nil {
		return nil, err
	}
	watch, stop := context.WithCancel(context.Background())
	e.stop = stop
	e.watching.Go(func() { e.watch(watch) })
	if missing := e.daemon.enforces().Missing(); len(missing) > 0 {
		e.log.Warn("the daemon cannot enforce some limits, so they are refused", "limits", missing, "cgroup_driver", e.daemon.cgroupDriver)
	}
	return e, nil
}

// open takes the state directory and makes a client.
func open(cfg Config) (*Environment, error) {
	var err error
	if cfg.StateDir, err = filepath.Abs(cfg.StateDir); err != nil {
		return nil, err
	}
	lock, err := lifecycle.LockStateDir(cfg.StateDir)
	if err != nil {
		return nil, err
	}
	engine, err := client.New(client.WithHost("unix://" + cfg.Socket))
	if err != nil {
		lock.Close()
		return nil, fault.Wrap(fault.Invalid, err, "cannot use the Docker daemon at %s", cfg.Socket)
	}
	sum := sha256.Sum256([]byte(cfg.StateDir))
	e := &Environment{
		cfg: cfg, engine: engine, instance: hex.EncodeToString(sum[:6]), lock: lock, log: cfg.Logger,
		freeTimeout: 30 * time.Second,
	}
	e.boxes = lifecycle.NewRegistry(cfg.Logger, func(b *box) { e.promised.Add(-writableBytes(b.Spec.Limits)) })
	return e, nil
}

// leaveNothing removes the state directory's lock where there is nothing else: who
// finds one takes it that something has to be removed, and asks the daemon, which
// may be why nothing was made.
func (e *Environment) leaveNothing() {
	if entries, err := os.ReadDir(e.cfg.StateDir); err == nil && len(entries) == 1 {
		_ = os.Remove(e.lock.Name())
	}
}

func (e *Environment) sandboxesDir() string { return filepath.Join(e.cfg.StateDir, "sandboxes") }
func (e *Environment) guestDir() string     { return filepath.Join(e.cfg.StateDir, "guest") }
func (e *Environment) guest() string        { return filepath.Join(e.guestDir(), "agentdock-guest") }

// installGuest puts the helper where the daemon can mount it from. It can be
// executed and not read: such a program is not dumpable from its first moment on.
func (e *Environment) installGuest() error {
	for _, dir := range []string{e.guestDir(), e.sandboxesDir()} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return err
		}
	}
	from, err := os.Open(e.cfg.Guest)
	if err != nil {
		return fmt.Errorf("cannot find the guest helper: %w", err)
	}
	defer from.Close()
	_ = os.Remove(e.guest())
	to, err := os.OpenFile(e.guest(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o700)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Chmod(0o711), to.Close())
}

// Close destroys every sandbox and removes what the Environment made.
func (e *Environment) Close(ctx context.Context) error {
	if err := e.boxes.DestroyAll(ctx); err != nil {
		return err
	}
	if err := e.sweep(ctx); err != nil {
		return err
	}
	e.stop()
	e.watching.Wait()
	if err := errors.Join(os.RemoveAll(e.guestDir()), e.engine.Close()); err != nil {
		return err
	}
	// The lock goes last; whoever waits for the directory may have it now.
	return errors.Join(os.Remove(e.lock.Name()), e.lock.Close())
}

// Capabilities implements execenv.Environment.
func (e *Environment) Capabilities() execenv.Capabilities {
	return execenv.Capabilities{
		Name:      "docker",
		Version:   e.daemon.version,
		Isolation: execenv.IsolationContainer,
		Enforces:  e.daemon.enforces(),
		// A tmpfs and the kernel refuse in silence; only the log is ours.
		Reports: execenv.Reports{Output: true},
		TTY:     true, NetworkNone: true, Unprivileged: true, ReadOnlyRoot: true,
	}
}

// Create implements execenv.Environment.
func (e *Environment) Create(ctx context.Context, spec execenv.Spec) (execenv.Sandbox, error) {
	if err := e.check(spec); err != nil {
		return nil, err
	}
	return e.boxes.Create(ctx, spec, func() *box { return newBox(e, spec) })
}

func (e *Environment) check(spec execenv.Spec) error {
	if err := spec.Validate(); err != nil {
		return err
	}
	if err := e.Capabilities().CanReach(spec.Network); err != nil {
		return err
	}
	if err := e.Capabilities().Supported(spec.Limits); err != nil {
		return err
	}
	if l := spec.Limits; l.MemoryBytes > 0 && l.DiskBytes > l.MemoryBytes {
		return fault.New(fault.Unsupported, "environment docker keeps files in memory, and a disk limit of %d bytes is above the memory limit of %d; lower one or raise the other", l.DiskBytes, l.MemoryBytes)
	}
	return e.fits(spec.Limits)
}

// Attach implements execenv.Environment.
func (e *Environment) Attach(ctx context.Context, id string) (execenv.Sandbox, error) {
	return e.boxes.Attach(ctx, id)
}

// List implements execenv.Environment.
func (e *Environment) List(ctx context.Context) ([]execenv.Info, error) { return e.boxes.List(ctx) }

// Destroy implements execenv.Environment.
func (e *Environment) Destroy(ctx context.Context, id string) error { return e.boxes.Destroy(ctx, id) }
