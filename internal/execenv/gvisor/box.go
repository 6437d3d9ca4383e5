package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/container"
	"gvisor.dev/gvisor/runsc/sandbox"

	"github.com/agentdock/agentdock/internal/cgroup"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// bootTimeout bounds the set-up inside a sandbox; it takes milliseconds on a
// quiet machine.
const bootTimeout = 30 * time.Second

// box is one sandbox. It implements execenv.Sandbox.
type box struct {
	env     *Environment
	spec    execenv.Spec
	digest  string
	user    int // of the host, counted from firstHostID
	created time.Time
	group   *cgroup.Group

	made    chan struct{} // closed once creation has succeeded or failed
	makeErr error         // set before made is closed

	gaveUp     chan struct{} // closed once Destroy was called
	giveUpOnce sync.Once

	ended chan struct{} // closed once the sentry is gone; outcome is set then

	freeMu    sync.Mutex // one attempt to free at a time
	container *container.Container
	sentry    *sandbox.Sandbox // of container; its methods may be called concurrently
	control   *initControl

	startMu sync.Mutex // see startText
	// lifetime is nil without one. It is stopped when the sandbox is freed.
	lifetime *time.Timer

	mu       sync.Mutex
	state    execenv.State
	freed    bool
	expired  bool
	outcome  *run.Outcome
	slots    slots
	execs    map[string]*command
	finished []string // IDs of ended execs, oldest first
	pidsHits int64    // as last read
}

func newBox(e *Environment, spec execenv.Spec, digest string) *box {
	return &box{
		env:     e,
		spec:    spec,
		digest:  digest,
		created: time.Now(),
		group:   e.hierarchy.Group(filepath.Join(e.group, spec.ID)),
		made:    make(chan struct{}),
		gaveUp:  make(chan struct{}),
		ended:   make(chan struct{}),
		state:   execenv.StateCreating,
		execs:   map[string]*command{},
	}
}

func (b *box) dir() string { return filepath.Join(b.env.sandboxesDir(), b.spec.ID) }

// boot makes everything the sandbox consists of. What it made when it fails is
// for free to remove.
func (b *box) boot(ctx context.Context, image string) error {
	failed := func(err error) error {
		return fault.Wrap(fault.Internal, err, "cannot create sandbox %s", b.spec.ID)
	}
	// The directory comes first: what exists is on record before it does.
	if err := os.MkdirAll(b.dir(), 0o700); err != nil {
		return failed(err)
	}
	if err := b.group.Create(hostLimits(b.spec.Limits)); err != nil {
		return failed(err)
	}
	spec, err := containerSpec(b.spec, firstHostID+uint32(b.user), image, b.env.guestImage(), b.env.emptyRoot())
	if err != nil {
		return failed(err)
	}
	if err := writeBundle(b.dir(), spec); err != nil {
		return failed(err)
	}
	ours, theirs, err := socketpair()
	if err != nil {
		return failed(err)
	}
	defer theirs.Close()
	b.control = newInitControl(ours)
	if err := b.given(ctx); err != nil {
		return err
	}
	// Attached: the kernel kills the sentry when this process dies, however it
	// dies.
	c, err := container.New(b.env.conf, container.Args{
		ID: b.spec.ID, Spec: spec, BundleDir: b.dir(), Attached: true,
		PassFiles: map[int]*os.File{3: theirs},
	})
	if err != nil {
		return failed(err)
	}
	b.container, b.sentry = c, c.Sandbox
	// No byte of the image has run yet. What does is in the group from now on.
	if err := addTree(b.group, c.Sandbox.Getpid()); err != nil {
		return failed(err)
	}
	if err := b.watch(); err != nil {
		return failed(err)
	}
	if err := b.given(ctx); err != nil {
		return err
	}
	if err := c.Start(b.env.conf); err != nil {
		return failed(err)
	}
	if err := b.control.ready(time.Now().Add(bootTimeout)); err != nil {
		return failed(err)
	}
	if err := b.given(ctx); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.outcome != nil {
		return failed(fmt.Errorf("it ended at once: %s", b.outcome.Evidence))
	}
	b.state = execenv.StateRunning
	if b.spec.Lifetime > 0 {
		b.lifetime = time.AfterFunc(time.Until(b.created.Add(b.spec.Lifetime)), b.expire)
	}
	return nil
}

// expire ends the sandbox at the end of its lifetime.
func (b *box) expire() {
	b.mu.Lock()
	b.expired = true
	b.mu.Unlock()
	b.abandon("its lifetime has passed")
}

// given fails if the creator or a Destroy has given the sandbox up.
func (b *box) given(ctx context.Context) error {
	select {
	case <-b.gaveUp:
		return fault.New(fault.Gone, "sandbox %s was destroyed while it was created", b.spec.ID)
	default:
	}
	if err := ctx.Err(); err != nil {
		return fault.Wrap(fault.Unavailable, err, "creation of sandbox %s was given up", b.spec.ID)
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
	go func() {
		defer f.Close()
		err := conn.Read(func(fd uintptr) bool {
			poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(poll, 0)
			return n > 0 || (err != nil && !errors.Is(err, unix.EINTR))
		})
		if err != nil {
			b.env.log.Error("cannot watch a sandbox", "sandbox", b.spec.ID, "error", err)
		}
		b.end()
	}()
	return nil
}

// end records why the sentry is gone, from what the host's kernel says.
func (b *box) end() {
	outcome := run.Outcome{Kind: run.InfrastructureLost, Evidence: "the sandbox's kernel process ended and nobody here ended it"}
	stats, err := b.group.Stats()
	b.mu.Lock()
	switch {
	case err == nil && stats.OOMKills > 0:
		outcome = outOfMemory(stats, b.spec.Limits)
	case b.state == execenv.StateDestroying:
		outcome = run.Outcome{Kind: run.Cancelled, Evidence: "the sandbox was destroyed"}
	case b.expired:
		outcome = run.Outcome{
			Kind:      run.WallClock,
			Evidence:  fmt.Sprintf("the sandbox's lifetime of %s had passed", b.spec.Lifetime),
			LimitsHit: []run.Limit{run.LimitWallClock},
		}
	}
	b.outcome = &outcome
	if b.state == execenv.StateRunning {
		b.state = execenv.StateEnded
	}
	b.mu.Unlock()
	close(b.ended)
}

func outOfMemory(stats cgroup.Stats, limits run.Limits) run.Outcome {
	return run.Outcome{
		Kind: run.OutOfMemory,
		Evidence: fmt.Sprintf("the host's kernel killed %d of the sandbox's processes for its memory limit of %d bytes (peak %d)",
			stats.OOMKills, limits.MemoryBytes, stats.PeakMemoryBytes),
		LimitsHit: []run.Limit{run.LimitMemory},
	}
}

// giveUp marks the sandbox as wanted by nobody.
func (b *box) giveUp() {
	b.giveUpOnce.Do(func() {
		b.mu.Lock()
		b.state = execenv.StateDestroying
		b.mu.Unlock()
		close(b.gaveUp)
	})
}

// free ends the sandbox and removes all of it. It can be called again after it
// failed.
func (b *box) free() error {
	b.giveUp()
	b.freeMu.Lock()
	defer b.freeMu.Unlock()
	if b.lifetime != nil {
		b.lifetime.Stop()
	}
	ctx, cancel := context.WithTimeout(context.Background(), b.env.freeTimeout)
	defer cancel()
	var errs []error
	if b.container != nil {
		if err := b.container.Destroy(); err != nil {
			errs = append(errs, err)
		} else {
			<-b.ended
			b.container = nil
		}
	}
	if b.control != nil {
		b.control.close()
	}
	errs = append(errs, b.group.Destroy(ctx))
	if err := errors.Join(errs...); err != nil {
		return fault.Wrap(fault.Internal, err, "cannot free sandbox %s", b.spec.ID)
	}
	for _, c := range b.commands() {
		<-c.done
	}
	if err := os.RemoveAll(b.dir()); err != nil {
		return fault.Wrap(fault.Internal, err, "cannot remove the files of sandbox %s", b.spec.ID)
	}
	b.mu.Lock()
	b.freed = true
	b.mu.Unlock()
	return nil
}

func (b *box) commands() []*command {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]*command, 0, len(b.execs))
	for _, c := range b.execs {
		all = append(all, c)
	}
	return all
}

// ID implements execenv.Sandbox.
func (b *box) ID() string { return b.spec.ID }

// Info implements execenv.Sandbox.
func (b *box) Info(context.Context) (execenv.Info, error) {
	if err := b.known(); err != nil {
		return execenv.Info{}, err
	}
	return b.info(), nil
}

// known fails with NotFound once nothing is left of the sandbox.
func (b *box) known() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.freed {
		return fault.New(fault.NotFound, "sandbox %s does not exist any more", b.spec.ID)
	}
	return nil
}

func (b *box) info() execenv.Info {
	b.mu.Lock()
	defer b.mu.Unlock()
	info := execenv.Info{
		ID: b.spec.ID, State: b.state, Image: b.spec.Image, ImageDigest: b.digest,
		Labels: b.spec.Labels, Limits: b.spec.Limits, CreatedAt: b.created,
	}
	if b.spec.Lifetime > 0 {
		info.ExpiresAt = b.created.Add(b.spec.Lifetime)
	}
	if b.state == execenv.StateEnded {
		info.Outcome = b.outcome
	}
	return info
}

// Usage implements execenv.Sandbox.
func (b *box) Usage(context.Context) (run.Usage, error) {
	if err := b.alive(); err != nil {
		return run.Usage{}, err
	}
	u, _, err := b.usage()
	return u, err
}

// alive fails with Gone unless commands can run.
func (b *box) alive() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch b.state {
	case execenv.StateRunning:
		return nil
	case execenv.StateEnded:
		return fault.New(fault.Gone, "sandbox %s has ended: %s", b.spec.ID, b.outcome.Kind)
	default:
		return fault.New(fault.Gone, "sandbox %s is being destroyed", b.spec.ID)
	}
}

// sawPIDsHits remembers the highest count of process limit hits read so far.
func (b *box) sawPIDsHits(n int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pidsHits = max(b.pidsHits, n)
	return b.pidsHits
}

func usageOf(s cgroup.Stats) run.Usage {
	return run.Usage{MemoryBytes: s.MemoryBytes, PeakMemoryBytes: s.PeakMemoryBytes, CPU: s.CPU}
}
