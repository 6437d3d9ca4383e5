// Package gvisor runs sandboxes in gVisor, which is linked into the program:
// no runtime is installed. A sandbox is one process, the sentry, which is a
// kernel of its own for the programs in it. It runs as a user of the host that
// nobody else is, in its own user, mount, network, PID, IPC and UTS namespaces,
// in an empty root, without capabilities outside its user namespace, behind
// gVisor's seccomp allow-list, in a cgroup with the limits.
//
// Its root file system is an EROFS image, which it gets as an open file, and
// everything that can be written is its own memory, or for a large workspace a
// file without a name: it has no path to a file of the host, and no file server
// runs beside it.
package gvisor

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"gvisor.dev/gvisor/runsc/config"

	"github.com/agentdock/agentdock/internal/cgroup"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/gvisor/backing"
	"github.com/agentdock/agentdock/internal/execenv/lifecycle"
	"github.com/agentdock/agentdock/internal/fault"
)

// Images finds root images.
type Images interface {
	// Resolve returns the path of an EROFS image and its digest.
	Resolve(name string) (path, digest string, err error)
}

// Config is what an Environment needs.
type Config struct {
	// StateDir belongs to this Environment alone. What a predecessor left in
	// it, and in the cgroup that goes with it, is removed by New.
	StateDir string
	// Guest is the path of the agentdock-guest program.
	Guest string
	// Images finds root images.
	Images Images
	// CgroupParent is the group in which this Environment makes its own;
	// "agentdock" if empty.
	CgroupParent string
	// Disk says where and how much of a disk paused sandboxes, and workspaces that
	// are larger than memory, may take. Its Dir may be shared; StateDir if empty.
	Disk backing.Config
	// Gateway is the way out of sandboxes that may have one; without it none has.
	Gateway execenv.Gateway
	Logger  *slog.Logger
}

// Environment implements execenv.Environment.
type Environment struct {
	cfg       Config
	conf      *config.Config
	hierarchy *cgroup.Hierarchy
	group     string // below which each sandbox has its own
	lock      *os.File
	log       *slog.Logger
	// freeTimeout bounds one attempt to free a sandbox.
	freeTimeout time.Duration
	// disk keeps large workspaces; nil where noDisk says why it cannot.
	disk   *backing.Store
	noDisk error

	users *hostUsers // taken and given back under the lock of boxes
	boxes *lifecycle.Registry[*box]
}

var _ execenv.Environment = (*Environment)(nil)

// New makes an Environment and removes everything a predecessor with the same
// StateDir left. It fails if another process uses that directory.
func New(cfg Config) (*Environment, error) {
	if os.Geteuid() != 0 {
		return nil, fault.New(fault.Unsupported, "cannot run gVisor: not root; start the execution service as root")
	}
	if err := checkStdio(); err != nil {
		return nil, err
	}
	hierarchy, err := cgroup.Detect()
	if err != nil {
		return nil, fault.Wrap(fault.Unsupported, err, "cannot run gVisor: limits cannot be enforced on this host")
	}
	if err := checkGroup(cfg); err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.StateDir, err = filepath.Abs(cfg.StateDir); err != nil {
		return nil, err
	}
	lock, err := lifecycle.LockStateDir(cfg.StateDir)
	if err != nil {
		return nil, err
	}
	e := &Environment{
		cfg:       cfg,
		hierarchy: hierarchy,
		group:     groupName(cfg),
		lock:      lock,
		log:       cfg.Logger,

		freeTimeout: 30 * time.Second,
	}
	e.boxes = lifecycle.NewRegistry(cfg.Logger, func(b *box) { e.users.release(b.user) })
	if err := e.start(); err != nil {
		lock.Close()
		return nil, err
	}
	return e, nil
}

func (e *Environment) start() (err error) {
	logTo(e.log)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := e.sweep(ctx); err != nil {
		return fmt.Errorf("cannot remove what an earlier run left: %w", err)
	}
	if err := e.hierarchy.Group(e.group).Prepare(); err != nil {
		return fault.Wrap(fault.Unsupported, err, "cannot run gVisor: limits cannot be enforced in this control group")
	}
	for _, d := range []string{e.sandboxesDir(), e.emptyRoot()} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return err
		}
	}
	// A sweep that is told nothing but the directory finds the group here.
	if err := os.WriteFile(e.groupFile(), []byte(e.group), 0o600); err != nil {
		return err
	}
	e.openBacking()
	if err := packGuest(e.cfg.Guest, e.guestImage()); err != nil {
		return err
	}
	if e.conf, err = newRuntimeConfig(filepath.Join(e.cfg.StateDir, "runsc")); err != nil {
		return err
	}
	e.users, err = claimHostUsers()
	return err
}

// groupName ties the cgroup to the state directory, so that a restarted
// service finds what it left.
func groupName(cfg Config) string {
	sum := sha256.Sum256([]byte(cfg.StateDir))
	return filepath.Join(cmp.Or(cfg.CgroupParent, "agentdock"), hex.EncodeToString(sum[:6]))
}

// checkGroup refuses a parent group that is not the one it seems to be. All that
// is in the group made there is removed.
func checkGroup(cfg Config) error {
	if cfg.CgroupParent == "" {
		return nil
	}
	if err := cgroup.CheckName(cfg.CgroupParent); err != nil {
		return fault.New(fault.Invalid, "cannot use the control group for sandboxes: %v", err)
	}
	return nil
}

func (e *Environment) sandboxesDir() string { return filepath.Join(e.cfg.StateDir, "sandboxes") }
func (e *Environment) emptyRoot() string    { return filepath.Join(e.cfg.StateDir, "empty") }
func (e *Environment) groupFile() string    { return filepath.Join(e.cfg.StateDir, "cgroup") }
func (e *Environment) guestImage() string   { return filepath.Join(e.cfg.StateDir, "guest.erofs") }

// sweep kills and removes all that earlier processes made for this state
// directory. Sandboxes end with the process that made them (the kernel sees to
// that), so what is left is groups and files; but nothing is taken for granted.
func (e *Environment) sweep(ctx context.Context) error {
	groups := []string{e.group}
	// A predecessor may have had another place for its groups.
	if other, err := os.ReadFile(e.groupFile()); err == nil && len(other) > 0 {
		groups = append(groups, string(other))
	}
	var errs []error
	for _, name := range groups {
		parent := e.hierarchy.Group(name)
		children, err := parent.Children()
		if err != nil {
			return err
		}
		for _, child := range children {
			errs = append(errs, e.hierarchy.Group(filepath.Join(name, child)).Destroy(ctx))
		}
		errs = append(errs, parent.Destroy(ctx))
		if len(children) > 0 || name != e.group {
			parent.RemoveEmptyParents()
		}
	}
	for _, d := range []string{e.sandboxesDir(), filepath.Join(e.cfg.StateDir, "runsc")} {
		errs = append(errs, os.RemoveAll(d))
	}
	return errors.Join(errs...)
}

// Close destroys every sandbox and removes what the Environment made.
func (e *Environment) Close(ctx context.Context) error {
	if err := e.boxes.DestroyAll(ctx); err != nil {
		return err
	}
	if err := e.sweep(ctx); err != nil {
		return err
	}
	e.hierarchy.Group(e.group).RemoveEmptyParents()
	e.users.close()
	for _, f := range []string{e.guestImage(), e.emptyRoot(), e.sandboxesDir(), e.groupFile()} {
		if err := os.RemoveAll(f); err != nil {
			return err
		}
	}
	// The lock goes last; whoever waits for the directory may have it now.
	if err := os.Remove(e.lock.Name()); err != nil {
		return err
	}
	return e.lock.Close()
}

// Capabilities implements execenv.Environment.
func (e *Environment) Capabilities() execenv.Capabilities {
	return execenv.Capabilities{
		Name:      "gvisor",
		Version:   Version(),
		Isolation: execenv.IsolationKernel,
		Enforces: execenv.Enforces{
			CPU: true, Memory: true, PIDs: true, Disk: true, Inodes: true, Output: true, WallClock: true,
		},
		Reports: execenv.Reports{PIDs: true, Disk: true, Inodes: true, Output: true},
		TTY:     true, NetworkNone: true, Unprivileged: true, ReadOnlyRoot: true,
		DiskBeyondMemory: e.disk != nil, Pause: e.disk != nil, NetworkAllow: e.cfg.Gateway != nil,
	}
}

// Create implements execenv.Environment.
func (e *Environment) Create(ctx context.Context, spec execenv.Spec) (execenv.Sandbox, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if err := e.Capabilities().Supported(spec.Limits); err != nil {
		return nil, err
	}
	if err := e.Capabilities().CanReach(spec.Network); err != nil {
		return nil, err
	}
	if _, err := e.onDisk(spec.Limits); err != nil {
		return nil, err
	}
	image, digest, err := e.cfg.Images.Resolve(spec.Image)
	if err != nil {
		return nil, err
	}
	return e.boxes.Create(ctx, spec, func() *box { return newBox(e, spec, image, digest) })
}

// Attach implements execenv.Environment.
func (e *Environment) Attach(ctx context.Context, id string) (execenv.Sandbox, error) {
	return e.boxes.Attach(ctx, id)
}

// List implements execenv.Environment.
func (e *Environment) List(ctx context.Context) ([]execenv.Info, error) { return e.boxes.List(ctx) }

// Destroy implements execenv.Environment.
func (e *Environment) Destroy(ctx context.Context, id string) error { return e.boxes.Destroy(ctx, id) }
