package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/events"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
)

// daemon is what a daemon says of itself, as far as guarantees depend on it.
type daemon struct {
	version, cgroupDriver string
	rootless              bool
	memory, cpu, pids     bool
	memTotal              int64
}

// lookAt asks a daemon what it is, and refuses one that must not be used.
func lookAt(ctx context.Context, engine *client.Client, allowRootful bool) (daemon, error) {
	result, err := engine.Info(ctx, client.InfoOptions{})
	if err != nil {
		// Its client's own words end in the same advice.
		if errno := unix.Errno(0); errors.As(err, &errno) {
			err = errno
		}
		return daemon{}, fault.Wrap(fault.Unavailable, err, "cannot ask the Docker daemon at %s what it is; see that it runs, and that this process may open its socket", engine.DaemonHost())
	}
	info := result.Info
	d := daemon{
		version: info.ServerVersion, cgroupDriver: info.CgroupDriver, memTotal: info.MemTotal,
		rootless: hasOption(info.SecurityOptions, "rootless"),
	}
	if !d.rootless && !allowRootful {
		return d, fault.New(fault.Denied, "the Docker daemon runs as root: whoever gets out of a container would be root on this host; use a rootless one (docs/docker.md)")
	}
	if !seccompOn(info.SecurityOptions) {
		return d, fault.New(fault.Denied, "the Docker daemon does not use its own seccomp allow-list (it says %q): start it without --seccomp-profile, on a kernel with seccomp", info.SecurityOptions)
	}
	// With no driver the daemon takes these limits and drops them.
	if info.CgroupDriver != "none" && info.CgroupDriver != "" {
		d.memory = info.MemoryLimit && (info.SwapLimit || !hostHasSwap())
		d.cpu = info.CPUCfsPeriod && info.CPUCfsQuota
		d.pids = info.PidsLimit
	}
	return d, nil
}

func hasOption(options []string, name string) bool {
	return slices.ContainsFunc(options, func(o string) bool {
		return o == "name="+name || strings.HasPrefix(o, "name="+name+",")
	})
}

// seccompOn wants the allow-list that the daemon comes with. One of the
// operator's own may allow anything.
func seccompOn(options []string) bool {
	return slices.ContainsFunc(options, func(o string) bool {
		return o == "name=seccomp,profile=default" || o == "name=seccomp,profile=builtin"
	})
}

func hostHasSwap() bool {
	data, err := os.ReadFile("/proc/swaps")
	return err != nil || strings.Count(string(data), "\n") > 1
}

func (d daemon) enforces() execenv.Enforces {
	return execenv.Enforces{
		CPU: d.cpu, Memory: d.memory, PIDs: d.pids,
		// tmpfs has both quotas; output and clock are kept here.
		Disk: true, Inodes: true, Output: true, WallClock: true,
	}
}

// sameAs says whether a daemon gives what was declared (G4).
func (d daemon) sameAs(declared daemon) bool { return d == declared }

// watch follows what the daemon tells of its containers, until ctx ends. When it
// has gone away, sandboxes that it does not look after any more are ended.
func (e *Environment) watch(ctx context.Context) {
	for ctx.Err() == nil {
		told := e.engine.Events(ctx, client.EventsListOptions{
			Filters: make(client.Filters).Add("type", string(events.ContainerEventType)).Add("label", labelInstance+"="+e.instance),
		})
		err := e.follow(ctx, told)
		if ctx.Err() != nil {
			return
		}
		e.log.Error("the Docker daemon has gone away; its sandboxes are ended", "error", err)
		for _, b := range e.boxes.All() {
			b.mu.Lock()
			b.orphaned = true
			b.mu.Unlock()
			b.lose(fmt.Sprintf("the Docker daemon went away: %v", err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func (e *Environment) follow(ctx context.Context, told client.EventsResult) error {
	for {
		select {
		case m := <-told.Messages:
			if m.Action != events.ActionOOM {
				continue
			}
			if b, ok := e.boxes.Find(m.Actor.Attributes[labelID]); ok {
				b.outOfMemory()
			}
		case err := <-told.Err:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// sweep removes all that earlier processes made for this state directory.
func (e *Environment) sweep(ctx context.Context) error {
	list, err := e.engine.ContainerList(ctx, client.ContainerListOptions{
		All:     true,
		Filters: make(client.Filters).Add("label", labelInstance+"="+e.instance),
	})
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "cannot ask the Docker daemon for its containers")
	}
	var errs []error
	for _, c := range list.Items {
		errs = append(errs, e.remove(ctx, c.ID))
		endShims(c.ID)
	}
	return errors.Join(append(errs, os.RemoveAll(e.sandboxesDir()))...)
}

// Sweep removes what an Environment with that configuration left when it was
// killed.
func Sweep(ctx context.Context, cfg Config) error {
	e, err := open(cfg)
	if err != nil {
		return err
	}
	defer e.engine.Close()
	err = errors.Join(e.sweep(ctx), os.RemoveAll(e.guestDir()))
	if err == nil {
		err = os.Remove(e.lock.Name())
	}
	return errors.Join(err, e.lock.Close())
}

// remove kills a container and waits until the daemon has none of that name.
func (e *Environment) remove(ctx context.Context, name string) error {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		_, err := e.engine.ContainerRemove(ctx, name, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		if errdefs.IsNotFound(err) {
			return nil
		}
		// It is being removed already, or has just been: look again.
		if err != nil && !errdefs.IsConflict(err) {
			return fmt.Errorf("cannot remove container %s: %w", name, err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("cannot remove container %s in time: %w", name, errors.Join(err, ctx.Err()))
		}
	}
}
