package docker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/agentdock/agentdock/internal/fault"
)

// Boot implements lifecycle.Box.
func (b *box) Boot(ctx context.Context) (err error) {
	if err := b.env.hasRoom(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-b.GivenUp():
			cancel()
		case <-ctx.Done():
		}
	}()
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = fault.Wrap(fault.Unavailable, err, "creation of sandbox %s was given up", b.Spec.ID)
		}
	}()
	if err := b.prepare(ctx); err != nil {
		return err
	}
	listener, err := b.listen()
	if err != nil {
		return fault.Wrap(fault.Internal, err, "cannot make sandbox %s", b.Spec.ID)
	}
	defer listener.Close()
	b.asked = true
	if err := b.startContainer(ctx); err != nil {
		return err
	}
	if err := b.meet(ctx, listener); err != nil {
		return err
	}
	if err := b.confined(ctx); err != nil {
		return err
	}
	if err := b.Start(); err != nil {
		return err
	}
	go b.end()
	return nil
}

// prepare looks at the daemon, which may have been restarted as another, and at
// the image.
func (b *box) prepare(ctx context.Context) error {
	now, err := lookAt(ctx, b.env.engine, b.env.cfg.AllowRootful)
	if err != nil {
		return err
	}
	if !now.sameAs(b.env.daemon) {
		return fault.New(fault.Unavailable, "the Docker daemon is not what it was when this service started (%+v, was %+v); restart the service", now, b.env.daemon)
	}
	found, err := b.env.engine.ImageInspect(ctx, imageRef(b.Spec.Image))
	switch {
	case errdefs.IsNotFound(err), errdefs.IsInvalidArgument(err):
		return fault.Wrap(fault.NotFound, err, "image %s is not in the Docker daemon; build or import it (docs/docker.md)", b.Spec.Image)
	case err != nil:
		return fault.Wrap(fault.Unavailable, err, "cannot look for image %s in the Docker daemon", b.Spec.Image)
	}
	if c := found.Config; c != nil && len(c.Volumes) > 0 {
		// Each would be a place on the daemon's disk that can be written without
		// a limit.
		return fault.New(fault.Unsupported, "image %s declares volumes, which cannot be bounded; build it without VOLUME", b.Spec.Image)
	}
	b.image = found.ID
	b.SetDigest(found.ID)
	return nil
}

// listen makes the socket on which the supervisor is met. Through the directory's
// descriptor, because the name of a socket has a limit.
func (b *box) listen() (*net.UnixListener, error) {
	if err := os.MkdirAll(b.controlDir(), 0o711); err != nil {
		return nil, err
	}
	dir, err := os.Open(b.controlDir())
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	name := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), socketName)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	// The sandbox's user is another one of the host. Who gets in is the first,
	// before the first program runs.
	return l, os.Chmod(filepath.Join(b.controlDir(), socketName), 0o666)
}

func (b *box) startContainer(ctx context.Context) error {
	// Not given up half-way: the daemon goes on with what it was asked for, and
	// what nobody waits for is there after it was looked for and removed.
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	defer cancel()
	made, err := b.env.engine.ContainerCreate(whole, b.create())
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "the Docker daemon cannot make sandbox %s", b.Spec.ID)
	}
	b.container = made.ID
	if len(made.Warnings) > 0 {
		// What it warns of is what it leaves out.
		return fault.New(fault.Unsupported, "the Docker daemon does not make sandbox %s as asked for: %s", b.Spec.ID, strings.Join(made.Warnings, "; "))
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if _, err := b.env.engine.ContainerStart(ctx, b.name(), client.ContainerStartOptions{}); err != nil {
		return fault.Wrap(fault.Unavailable, err, "the Docker daemon cannot start sandbox %s", b.Spec.ID)
	}
	return nil
}

// meetTimeout is how long the supervisor may take to call.
const meetTimeout = 30 * time.Second

// meet takes the one connection of the supervisor.
func (b *box) meet(ctx context.Context, listener *net.UnixListener) error {
	stop := context.AfterFunc(ctx, func() { _ = listener.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	_ = listener.SetDeadline(time.Now().Add(meetTimeout))
	if ctx.Err() != nil {
		_ = listener.SetDeadline(time.Unix(1, 0))
	}
	conn, err := listener.AcceptUnix()
	if err != nil {
		return fault.Wrap(fault.Unavailable, b.whyNot(err), "sandbox %s did not come up", b.Spec.ID)
	}
	_ = listener.Close()
	_ = os.Remove(filepath.Join(b.controlDir(), socketName))
	b.link = newLink(conn)
	go b.link.serve()
	select {
	case <-b.link.ready:
		return nil
	case <-b.link.closed:
		return fault.Wrap(fault.Unavailable, b.whyNot(errLinkClosed), "sandbox %s was lost while it started", b.Spec.ID)
	case <-ctx.Done():
		return fault.Wrap(fault.Unavailable, ctx.Err(), "creation of sandbox %s was given up", b.Spec.ID)
	}
}

// whyNot adds what the daemon says of the container.
func (b *box) whyNot(err error) error {
	ctx, cancel := context.WithTimeout(context.Background(), inspectTimeout)
	defer cancel()
	result, inspectErr := b.env.engine.ContainerInspect(ctx, b.name(), client.ContainerInspectOptions{})
	if inspectErr != nil {
		return errors.Join(err, inspectErr)
	}
	s := result.Container.State
	return fmt.Errorf("%w; the container is %s, exit status %d %s", err, s.Status, s.ExitCode, s.Error)
}

// Free implements lifecycle.Box.
func (b *box) Free() error {
	b.GiveUp()
	b.freeMu.Lock()
	defer b.freeMu.Unlock()
	b.StopClock()
	b.hangUp()
	ctx, cancel := context.WithTimeout(context.Background(), b.env.freeTimeout)
	defer cancel()
	if b.asked {
		switch err := b.env.remove(ctx, b.name()); {
		case client.IsErrConnectionFailed(err):
			return fault.Wrap(fault.Unavailable, err, "cannot free sandbox %s: the Docker daemon is away", b.Spec.ID)
		case err != nil:
			return fault.Wrap(fault.Internal, err, "cannot free sandbox %s", b.Spec.ID)
		}
		b.mu.Lock()
		orphaned := b.orphaned
		b.mu.Unlock()
		if orphaned {
			endShims(b.container)
		}
	}
	b.AwaitCommands()
	if err := os.RemoveAll(b.dir()); err != nil {
		return fault.Wrap(fault.Internal, err, "cannot remove the files of sandbox %s", b.Spec.ID)
	}
	b.Freed()
	return nil
}
