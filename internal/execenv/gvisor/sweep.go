package gvisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/agentdock/agentdock/internal/cgroup"
	"github.com/agentdock/agentdock/internal/execenv/lifecycle"
	"github.com/agentdock/agentdock/internal/fault"
)

// Sweep removes everything that Environments with this StateDir left, and needs
// no more of cfg than StateDir and CgroupParent. It fails if one is using it.
func Sweep(ctx context.Context, cfg Config) error {
	hierarchy, err := cgroup.Detect()
	if err != nil {
		return fault.Wrap(fault.Unsupported, err, "cannot look for what was left")
	}
	if err := checkGroup(cfg); err != nil {
		return err
	}
	if cfg.StateDir, err = filepath.Abs(cfg.StateDir); err != nil {
		return err
	}
	if _, err := os.Lstat(cfg.StateDir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	lock, err := lifecycle.LockStateDir(cfg.StateDir)
	if err != nil {
		return err
	}
	defer lock.Close()
	e := &Environment{cfg: cfg, hierarchy: hierarchy, group: groupName(cfg), lock: lock, log: slog.New(slog.DiscardHandler)}
	if err := e.sweep(ctx); err != nil {
		return fmt.Errorf("cannot remove what was left: %w", err)
	}
	return errors.Join(os.RemoveAll(e.groupFile()), os.RemoveAll(e.guestImage()), os.RemoveAll(e.emptyRoot()), os.Remove(lock.Name()))
}
