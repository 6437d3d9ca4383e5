package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/agentdock/agentdock/internal/egress/link"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/docker"
	"github.com/agentdock/agentdock/internal/execenv/gvisor"
	"github.com/agentdock/agentdock/internal/execenv/gvisor/backing"
	"github.com/agentdock/agentdock/internal/image"
	"github.com/agentdock/agentdock/internal/settings"
)

// runtimeEntry is where this binary becomes a part of a sandbox: gVisor starts
// it again under names of its own (argv[0]). Then it does not return.
func runtimeEntry() { gvisor.Entry() }

// closeTimeout bounds how long the last sandboxes may take to go.
const closeTimeout = time.Minute

// newEnvironment opens the environment that the settings name, and returns what
// closes it.
func newEnvironment(c config, log *slog.Logger) (execenv.Environment, func() error, error) {
	guest := c.Guest
	if guest == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, nil, fmt.Errorf("cannot start: cannot find the guest helper: %w", err)
		}
		guest = filepath.Join(filepath.Dir(self), "agentdock-guest")
	}
	if c.Runtime.Runtime == settings.RuntimeDocker {
		return newDocker(c, guest, log)
	}
	return newGVisor(c, guest, log)
}

// newDocker opens the development fallback. Each of its sandboxes is looked at
// from outside before anything runs in it, so none is tried here.
func newDocker(c config, guest string, log *slog.Logger) (execenv.Environment, func() error, error) {
	env, err := docker.New(context.Background(), c.docker(guest, log))
	if err != nil {
		return nil, nil, fmt.Errorf("cannot start: %w", reason(err))
	}
	log.Warn("sandboxes share this host's kernel: for development only", "runtime", c.Runtime.Runtime)
	return env, func() error { return closing(env.Close) }, nil
}

func (c config) docker(guest string, log *slog.Logger) docker.Config {
	return docker.Config{
		Socket:   c.dockerSocket(),
		StateDir: c.StateDir, Guest: guest, AllowRootful: c.DockerAllowRootful, Logger: log,
	}
}

// dockerSocket is the path of the daemon's socket: this user's own if none is named.
func (c config) dockerSocket() string {
	path, _ := strings.CutPrefix(c.DockerSocket, "unix://")
	dir := cmp.Or(os.Getenv("XDG_RUNTIME_DIR"), fmt.Sprintf("/run/user/%d", os.Getuid()))
	return cmp.Or(path, filepath.Join(dir, "docker.sock"))
}

// gateway is the way out of sandboxes, if there is one. Its name for this service
// is of this process alone.
func (c config) gateway() execenv.Gateway {
	if c.EgressSocket == "" {
		return nil
	}
	return &link.Client{Socket: c.EgressSocket, Service: rand.Text()}
}

func closing(end func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return end(ctx)
}

func newGVisor(c config, guest string, log *slog.Logger) (execenv.Environment, func() error, error) {
	// The log holds the original standard error; sandboxes get none of it.
	if _, _, _, err := gvisor.DetachStdio(); err != nil {
		return nil, nil, fmt.Errorf("cannot start: %w", err)
	}
	store, err := image.Open(c.ImageDir)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot start: %w", err)
	}
	env, err := gvisor.New(gvisor.Config{
		StateDir: c.StateDir, Guest: guest, Images: images{store}, CgroupParent: c.CgroupParent, Logger: log,
		Disk:    backing.Config{Dir: c.DiskDir, Total: int64(c.TotalDisk), KeepFree: int64(c.KeepFree)},
		Gateway: c.gateway(),
	})
	if err != nil {
		return nil, nil, fmt.Errorf("cannot start: %w", err)
	}
	closeEnv := func() error { return closing(env.Close) }
	if err := verify(c, guest, log, env.Verify); err != nil {
		return nil, nil, errors.Join(err, closeEnv())
	}
	return env, closeEnv, nil
}

// sweep removes what a service that was killed left.
func sweep(c config) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if c.Runtime.Runtime == settings.RuntimeDocker {
		return docker.Sweep(ctx, c.docker("", nil))
	}
	return gvisor.Sweep(ctx, gvisor.Config{StateDir: c.StateDir, CgroupParent: c.CgroupParent})
}

// images lets the environment find images in the store.
type images struct{ store *image.Store }

func (i images) Resolve(name string) (path, digest string, err error) {
	img, err := i.store.Resolve(name)
	return img.Path, img.Digest, err
}
