package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/gvisor"
	"github.com/agentdock/agentdock/internal/execenv/gvisor/backing"
	"github.com/agentdock/agentdock/internal/image"
)

// runtimeEntry is where this binary becomes a part of a sandbox: gVisor starts
// it again under names of its own (argv[0]). Then it does not return.
func runtimeEntry() { gvisor.Entry() }

// closeTimeout bounds how long the last sandboxes may take to go.
const closeTimeout = time.Minute

// newEnvironment opens the environment that this binary was built with, and
// returns what closes it.
func newEnvironment(c config, log *slog.Logger) (execenv.Environment, func() error, error) {
	// The log holds the original standard error; sandboxes get none of it.
	if _, _, _, err := gvisor.DetachStdio(); err != nil {
		return nil, nil, fmt.Errorf("cannot start: %w", err)
	}
	store, err := image.Open(c.ImageDir)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot start: %w", err)
	}
	guest := c.Guest
	if guest == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, nil, fmt.Errorf("cannot start: cannot find the guest helper: %w", err)
		}
		guest = filepath.Join(filepath.Dir(self), "agentdock-guest")
	}
	env, err := gvisor.New(gvisor.Config{
		StateDir: c.StateDir, Guest: guest, Images: images{store}, CgroupParent: c.CgroupParent, Logger: log,
		Disk: backing.Config{Dir: c.DiskDir, Total: int64(c.TotalDisk), KeepFree: int64(c.KeepFree)},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("cannot start: %w", err)
	}
	closeEnv := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		return env.Close(ctx)
	}
	if err := verify(c, guest, log, env.Verify); err != nil {
		return nil, nil, errors.Join(err, closeEnv())
	}
	return env, closeEnv, nil
}

// sweep removes what a service that was killed left.
func sweep(c config) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return gvisor.Sweep(ctx, gvisor.Config{StateDir: c.StateDir, CgroupParent: c.CgroupParent})
}

// images lets the environment find images in the store.
type images struct{ store *image.Store }

func (i images) Resolve(name string) (path, digest string, err error) {
	img, err := i.store.Resolve(name)
	return img.Path, img.Digest, err
}
