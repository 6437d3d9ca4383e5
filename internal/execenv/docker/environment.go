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
	"sort"
	"sync"
	"time"

	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/execenv"
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

	mu    sync.Mutex
	boxes map[string]*box
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
			err = errors.Join(err, e.lock.Close(), e.engine.Close())
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if e.daemon, err = lookAt(ctx, e.engine, cfg.AllowRootful); err != nil {
		return nil, err
	}
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
	lock, err := lockDir(cfg.StateDir)
	if err != nil {
		return nil, err
	}
	engine, err := client.New(client.WithHost("unix://" + cfg.Socket))
	if err != nil {
		lock.Close()
		return nil, fault.Wrap(fault.Invalid, err, "cannot use the Docker daemon at %s", cfg.Socket)
	}
	sum := sha256.Sum256([]byte(cfg.StateDir))
	return &Environment{
		cfg: cfg, engine: engine, instance: hex.EncodeToString(sum[:6]), lock: lock, log: cfg.Logger,
		freeTimeout: 30 * time.Second, boxes: map[string]*box{},
	}, nil
}

func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the state directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot lock the state directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fault.New(fault.Conflict, "cannot use state directory %s: another execution service is using it", dir)
	}
	return f, nil
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
	e.mu.Lock()
	ids := make([]string, 0, len(e.boxes))
	for id := range e.boxes {
		ids = append(ids, id)
	}
	e.mu.Unlock()
	errs := make([]error, len(ids))
	var wg sync.WaitGroup
	for i, id := range ids {
		wg.Go(func() { errs[i] = e.Destroy(ctx, id) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
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
	for {
		if err := ctx.Err(); err != nil {
			return nil, fault.Wrap(fault.Unavailable, err, "creation of sandbox %s was given up", spec.ID)
		}
		b, created := e.claim(spec)
		if created {
			return e.boot(ctx, b)
		}
		if !b.spec.Equal(spec) {
			return nil, fault.New(fault.Conflict, "sandbox %s exists with a different specification", spec.ID)
		}
		select {
		case <-ctx.Done():
			return nil, fault.Wrap(fault.Unavailable, ctx.Err(), "creation of sandbox %s was given up", spec.ID)
		case <-b.made:
		}
		if b.makeErr == nil {
			return b, nil
		}
		if now, ok := e.find(spec.ID); ok && now == b {
			return nil, fault.New(fault.Unavailable, "sandbox %s could not be created before and is still being freed", spec.ID)
		}
		// Whoever made it failed and took it off the list; try ourselves.
	}
}

func (e *Environment) check(spec execenv.Spec) error {
	if err := spec.Validate(); err != nil {
		return err
	}
	if err := e.Capabilities().Supported(spec.Limits); err != nil {
		return err
	}
	if l := spec.Limits; l.MemoryBytes > 0 && l.DiskBytes > l.MemoryBytes {
		return fault.New(fault.Unsupported, "environment docker keeps files in memory, and a disk limit of %d bytes is above the memory limit of %d; lower one or raise the other", l.DiskBytes, l.MemoryBytes)
	}
	return nil
}

// claim returns the box with that ID, and whether the caller has to make it.
func (e *Environment) claim(spec execenv.Spec) (b *box, created bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if b, ok := e.boxes[spec.ID]; ok {
		return b, false
	}
	b = newBox(e, spec)
	e.boxes[spec.ID] = b
	return b, true
}

// boot makes the sandbox, or leaves nothing.
func (e *Environment) boot(ctx context.Context, b *box) (execenv.Sandbox, error) {
	err := b.boot(ctx)
	if err != nil {
		if freeErr := b.free(); freeErr != nil {
			e.log.Error("cannot free a sandbox that failed to start", "sandbox", b.spec.ID, "error", freeErr)
		} else {
			e.forget(b)
		}
	}
	b.makeErr = err
	close(b.made)
	if err != nil {
		return nil, err
	}
	return b, nil
}

func (e *Environment) forget(b *box) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.boxes[b.spec.ID] == b {
		delete(e.boxes, b.spec.ID)
	}
}

func (e *Environment) find(id string) (*box, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b, ok := e.boxes[id]
	return b, ok
}

func (e *Environment) all() []*box {
	e.mu.Lock()
	defer e.mu.Unlock()
	boxes := make([]*box, 0, len(e.boxes))
	for _, b := range e.boxes {
		boxes = append(boxes, b)
	}
	return boxes
}

// Attach implements execenv.Environment.
func (e *Environment) Attach(ctx context.Context, id string) (execenv.Sandbox, error) {
	if err := execenv.ValidateID(id); err != nil {
		return nil, err
	}
	b, ok := e.find(id)
	if ok {
		select {
		case <-ctx.Done():
			return nil, fault.Wrap(fault.Unavailable, ctx.Err(), "attaching to sandbox %s was given up", id)
		case <-b.made:
		}
		if b.makeErr == nil {
			return b, nil
		}
	}
	return nil, fault.New(fault.NotFound, "sandbox %s does not exist", id)
}

// List implements execenv.Environment.
func (e *Environment) List(context.Context) ([]execenv.Info, error) {
	boxes := e.all()
	infos := make([]execenv.Info, len(boxes))
	for i, b := range boxes {
		infos[i] = b.info()
	}
	sort.Slice(infos, func(i, j int) bool { return infos[i].ID < infos[j].ID })
	return infos, nil
}

// destroyGrace is how long Destroy waits past its context's end for the work
// that goes on anyway.
const destroyGrace = 5 * time.Second

// Destroy implements execenv.Environment.
func (e *Environment) Destroy(ctx context.Context, id string) error {
	if err := execenv.ValidateID(id); err != nil {
		return err
	}
	b, ok := e.find(id)
	if !ok {
		return nil
	}
	b.giveUp()
	// From here on the caller's context only bounds how long it waits.
	done := make(chan error, 1)
	go func() {
		<-b.made
		err := b.free()
		if err == nil {
			e.forget(b)
		}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	// It is freed all the same, and soon; but not yet.
	select {
	case err := <-done:
		return err
	case <-time.After(destroyGrace):
		return fault.Wrap(fault.Unavailable, ctx.Err(), "sandbox %s is still being destroyed", id)
	}
}
