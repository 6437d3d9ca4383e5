package gvisor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/container"

	"github.com/agentdock/agentdock/internal/cgroup"
	"github.com/agentdock/agentdock/internal/execenv/gvisor/answer"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// bootTimeout bounds the set-up inside a sandbox; it takes milliseconds on a
// quiet machine.
const bootTimeout = 30 * time.Second

// Boot implements lifecycle.Box. It makes the sandbox, or says what became of it.
func (b *box) Boot(ctx context.Context) error {
	err := b.make(ctx)
	if err == nil {
		return nil
	}
	if given := b.given(ctx); given != nil {
		return given
	}
	return b.endedAtStart(err)
}

// endedAtStart tells a sandbox that was ended while it started from one that could
// not be made.
func (b *box) endedAtStart(cause error) error {
	gone := errors.Is(cause, unix.ESRCH)
	if b.process != nil {
		select {
		case <-b.Ended():
			gone = true
		case <-time.After(endedAtStartTimeout):
		}
	}
	if !gone {
		return cause
	}
	if outcome, _ := b.Outcome(); outcome.Kind == run.OutOfMemory {
		return fault.Wrap(fault.Exhausted, cause, "cannot create sandbox %s: its memory limit of %d bytes was not enough to start it", b.Spec.ID, b.Spec.Limits.MemoryBytes)
	}
	return fault.Wrap(fault.Unavailable, cause, "cannot create sandbox %s: it was ended from outside while it started; try again", b.Spec.ID)
}

// endedAtStartTimeout is how much later the end of a sandbox may be known than
// that it does not answer.
const endedAtStartTimeout = 500 * time.Millisecond

// make makes everything the sandbox consists of.
func (b *box) make(ctx context.Context) error {
	failed := func(err error) error {
		return fault.Wrap(fault.Internal, err, "cannot create sandbox %s", b.Spec.ID)
	}
	// The directory comes first: what exists is on record before it does.
	if err := os.MkdirAll(b.dir(), 0o700); err != nil {
		return failed(err)
	}
	if err := b.group.Create(hostLimits(b.Spec.Limits)); err != nil {
		return failed(err)
	}
	// P3: never adjusted in silence, not by the kernel either.
	if err := b.group.Confirm(hostLimits(b.Spec.Limits)); err != nil {
		return failed(err)
	}
	files, err := b.takeDisk()
	if err != nil {
		return err
	}
	spec, err := containerSpec(b.Spec, b.user, files, b.image, b.env.guestImage(), b.env.emptyRoot())
	if err != nil {
		return failed(err)
	}
	if err := writeBundle(b.dir(), spec); err != nil {
		return failed(err)
	}
	ours, theirs, err := newInitPipes()
	if err != nil {
		return failed(err)
	}
	defer closeFiles(theirs)
	b.control, b.described = answer.NewInit(ours), spec
	if err := b.given(ctx); err != nil {
		return err
	}
	if err := b.startSentry(theirs); err != nil {
		return failed(err)
	}
	if err := b.watch(); err != nil {
		return failed(err)
	}
	if err := b.given(ctx); err != nil {
		return err
	}
	// The sentry reads the image now, and gVisor waits for its answer for ever.
	late := time.AfterFunc(bootTimeout, func() { b.abandon("it does not start") })
	err = b.container.Start(b.env.conf)
	late.Stop()
	if err != nil {
		return failed(err)
	}
	if err := b.control.Ready(time.Now().Add(bootTimeout)); err != nil {
		return failed(err)
	}
	if err := b.holdDisk(); err != nil {
		return err
	}
	if err := b.given(ctx); err != nil {
		return err
	}
	if err := b.Start(); err != nil {
		return failed(err)
	}
	return b.openNetwork(ctx)
}

// startSentry starts the sentry, which waits for a command to start the sandbox,
// and puts it into the group.
//
// passed are the files it gets, by init's descriptors; they are closed.
func (b *box) startSentry(passed map[int]*os.File) error {
	// The kernel gets ready for the move while the sentry starts.
	defer b.env.hierarchy.KeepReady()()
	defer closeFiles(passed)
	given := maps.Clone(passed)
	if b.disk != nil {
		given[diskFD] = b.disk.File
	}
	// Attached: the kernel kills the sentry when this process dies, however it
	// dies.
	c, err := container.New(b.env.conf, container.Args{
		ID: b.Spec.ID, Spec: b.described, BundleDir: b.dir(), Attached: true,
		PassFiles: given,
	})
	// Theirs alone now, so that ours ends with the sandbox.
	closeFiles(passed)
	if err != nil {
		return err
	}
	b.container, b.sentry = c, c.Sandbox
	// No byte of the image has run yet. What does is in the group from now on.
	return addTree(b.group, c.Sandbox.Getpid())
}

// given fails if the creator or a Destroy has given the sandbox up.
func (b *box) given(ctx context.Context) error {
	select {
	case <-b.GivenUp():
		return fault.New(fault.Gone, "sandbox %s was destroyed while it was created", b.Spec.ID)
	default:
	}
	if err := ctx.Err(); err != nil {
		return fault.Wrap(fault.Unavailable, err, "creation of sandbox %s was given up", b.Spec.ID)
	}
	return nil
}

// hostLimits are the limits of the cgroup around the sentry. Guest processes
// are limited inside, where a program sees an honest EAGAIN; the host's count
// of threads is the outer wall and leaves room for the sentry's own and for
// the several threads that serve one guest process.
func hostLimits(l run.Limits) cgroup.Limits {
	return cgroup.Limits{MilliCPU: l.MilliCPU, MemoryBytes: l.MemoryBytes, PIDs: 512 + 4*l.PIDs}
}

// addTree puts a process and all its descendants into the group. The sentry is
// idle when it is called, but its helpers may still be on their way: repeat
// until a pass finds nobody new.
func addTree(g *cgroup.Group, root int) error {
	inside := map[int]bool{}
	for {
		added := false
		todo := []int{root}
		for len(todo) > 0 {
			pid := todo[0]
			todo = append(todo[1:], children(pid)...)
			if inside[pid] {
				continue
			}
			if err := g.Add(pid); err != nil {
				if errors.Is(err, unix.ESRCH) && pid != root {
					continue
				}
				return err
			}
			inside[pid], added = true, true
		}
		if !added {
			return nil
		}
	}
}

func children(pid int) []int {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	var pids []int
	for _, l := range lists {
		data, _ := os.ReadFile(l)
		for _, f := range strings.Fields(string(data)) {
			if pid, err := strconv.Atoi(f); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// watch starts to wait for the end of the sentry, which may come at any time.
func (b *box) watch() error {
	fd, err := unix.PidfdOpen(b.sentry.Getpid(), unix.PIDFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("cannot watch the sandbox: %w", err)
	}
	f := os.NewFile(uintptr(fd), "sentry")
	conn, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return err
	}
	gone := make(chan struct{})
	b.mu.Lock()
	b.process, b.gone, b.away = conn, gone, false
	b.mu.Unlock()
	go func() {
		defer f.Close()
		err := conn.Read(func(fd uintptr) bool {
			poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(poll, 0)
			return n > 0 || (err != nil && !errors.Is(err, unix.EINTR))
		})
		if err != nil {
			b.env.log.Error("cannot watch a sandbox", "sandbox", b.Spec.ID, "error", err)
		}
		close(gone)
		b.mu.Lock()
		away := b.away
		b.mu.Unlock()
		if !away {
			b.endOnce.Do(b.end)
		}
	}()
	return nil
}
