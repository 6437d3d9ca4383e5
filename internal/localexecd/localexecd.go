// Package localexecd runs an execution service of the caller's own, for as long
// as the caller lives: what the command line uses on a machine where none is
// running. It is a process of its own with an environment of its own, so the
// trust line is where it always is.
//
// An instance is a directory with a random name that holds everything the
// service makes: its lock, its socket, its state. Whoever started it keeps a
// lock on it. A directory whose lock is free belongs to nobody any more; what
// it and the control group that goes with it hold is removed by the next start.
package localexecd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/fault"
)

const (
	// DefaultDir is where instances are.
	DefaultDir = "/run/agentdock"
	// DirEnv is the environment variable that names another directory.
	DirEnv = "AGENTDOCK_RUNTIME_DIR"
	// DefaultDiskDir is on a disk, which DefaultDir is usually not.
	DefaultDiskDir = "/var/lib/agentdock"
	// DiskDirEnv is the environment variable that names another one.
	DiskDirEnv = "AGENTDOCK_DISK_DIR"
	// BinaryEnv names the agentdock-execd program.
	BinaryEnv = "AGENTDOCK_EXECD_BINARY"

	program        = "agentdock-execd"
	instancePrefix = "run-"
	ownerLock      = "owner.lock"
	stateDir       = "state"
	socketFile     = "execd.sock"
)

// FindBinary finds the service's program: the one that env names, the one
// beside this program, or the one in PATH.
func FindBinary() (string, error) {
	if path := os.Getenv(BinaryEnv); path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", fault.Wrap(fault.Invalid, err, "cannot start the execution service: %s names no program", BinaryEnv)
		}
		return filepath.Abs(path)
	}
	if self, err := os.Executable(); err == nil {
		path := filepath.Join(filepath.Dir(self), program)
		if runnable(path) {
			return path, nil
		}
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		// A relative entry would run whatever lies in the current directory.
		if path := filepath.Join(dir, program); filepath.IsAbs(path) && runnable(path) {
			return path, nil
		}
	}
	return "", fault.New(fault.Unsupported,
		"cannot start the execution service: there is no %s beside this program or in PATH; install it there or set %s", program, BinaryEnv)
}

func runnable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// instance is a directory and the lock on it.
type instance struct {
	dir  string
	lock *os.File
}

func (i *instance) state() string  { return filepath.Join(i.dir, stateDir) }
func (i *instance) socket() string { return filepath.Join(i.dir, socketFile) }

// gateway is the socket of the way out, if there is one.
func (i *instance) gateway() string { return filepath.Join(i.dir, gatewaySocket) }

// remove gives the instance up, once nothing needs it.
func (i *instance) remove() error {
	err := os.RemoveAll(i.dir)
	return errors.Join(err, i.lock.Close())
}

// newInstance makes a directory of its own below dir and locks it.
func newInstance(dir string) (*instance, error) {
	unlock, err := lockBase(dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	i := &instance{dir: filepath.Join(dir, instancePrefix+strings.ToLower(rand.Text()[:16]))}
	if err := os.Mkdir(i.dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make a directory for the execution service: %w", err)
	}
	if i.lock, err = lockFile(filepath.Join(i.dir, ownerLock), os.O_CREATE|os.O_EXCL); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot lock the directory of the execution service: %w", err), os.RemoveAll(i.dir))
	}
	return i, nil
}

// lockBase makes the directory of instances and holds it while one is made or
// they are looked through: between the two steps of making one it looks dead.
func lockBase(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return nil, fault.Wrap(fault.Denied, err, "cannot start the execution service: it needs root; run this as root")
		}
		return nil, fault.Wrap(fault.Invalid, err, "cannot start the execution service: cannot make the directory %s; set %s to another", dir, DirEnv)
	}
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "cannot start the execution service in %s", dir)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		f.Close()
		return nil, fault.Wrap(fault.Invalid, err, "cannot start the execution service in %s", dir)
	}
	// Whoever can write here could put a directory of theirs in place of ours.
	if st.Uid != uint32(os.Geteuid()) || st.Mode&0o022 != 0 {
		f.Close()
		if os.Geteuid() != 0 && st.Uid == 0 {
			return nil, fault.New(fault.Denied, "cannot start the execution service: it needs root; run this as root")
		}
		return nil, fault.New(fault.Denied, "cannot start the execution service: %s belongs to somebody else or others can write to it; set %s to another directory", dir, DirEnv)
	}
	if err := flock(f, unix.LOCK_EX); err != nil {
		f.Close()
		return nil, fault.Wrap(fault.Internal, err, "cannot lock %s", dir)
	}
	return func() { f.Close() }, nil
}

// lockFile opens a file and locks it, or fails at once.
func lockFile(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|flags, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(f, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func flock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// dead locks and returns the instances that belong to nobody, and says whether
// there are more whose service has not ended yet.
func dead(dir string) (found []*instance, more bool, err error) {
	unlock, err := lockBase(dir)
	if err != nil {
		return nil, false, err
	}
	defer unlock()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, false, err
	}
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), instancePrefix) {
			continue
		}
		i := &instance{dir: filepath.Join(dir, e.Name())}
		// Created if it is missing: its owner died before it made one.
		i.lock, err = lockFile(filepath.Join(i.dir, ownerLock), os.O_CREATE)
		if err != nil {
			continue
		}
		service, err := lockFile(filepath.Join(i.state(), "lock"), 0)
		switch {
		case err == nil:
			service.Close()
		case !errors.Is(err, fs.ErrNotExist):
			i.lock.Close()
			more = true
			continue
		}
		found = append(found, i)
	}
	return found, more, nil
}

// dyingTimeout is how long a sweep waits for services that have lost their owner.
// They clean up by themselves, or have been killed and still hold their lock,
// which a process gives back last.
const dyingTimeout = 2 * time.Second

// Sweep removes what instances left whose owner was killed. What cannot be
// removed stays, for the next sweep, and is an error; what a service that lives
// on still needs stays too.
func Sweep(ctx context.Context, cfg Config) error {
	cfg, err := cfg.complete()
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(dyingTimeout); ; {
		more, err := cfg.sweepDead(ctx)
		if err != nil || !more || time.Now().After(deadline) {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c Config) sweepDead(ctx context.Context) (more bool, err error) {
	found, more, err := dead(c.Dir)
	if err != nil {
		return false, err
	}
	var errs []error
	for _, i := range found {
		if err := c.sweep(ctx, i); err != nil {
			errs = append(errs, fmt.Errorf("cannot remove what a run that was killed left in %s: %w", i.dir, err), i.lock.Close())
			continue
		}
		errs = append(errs, i.remove())
	}
	return more, errors.Join(errs...)
}
