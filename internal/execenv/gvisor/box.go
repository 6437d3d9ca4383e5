package gvisor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"gvisor.dev/gvisor/runsc/container"
	"gvisor.dev/gvisor/runsc/sandbox"

	"github.com/agentdock/agentdock/internal/cgroup"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/gvisor/answer"
	"github.com/agentdock/agentdock/internal/execenv/gvisor/backing"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// box is one sandbox. It implements execenv.Sandbox.
type box struct {
	env     *Environment
	spec    execenv.Spec
	digest  string
	user    uint32 // of the host
	created time.Time
	group   *cgroup.Group

	made    chan struct{} // closed once creation has succeeded or failed
	makeErr error         // set before made is closed

	gaveUp     chan struct{} // closed once Destroy was called
	giveUpOnce sync.Once

	ended chan struct{} // closed once the sentry is gone; outcome is set then

	freeMu    sync.Mutex // one attempt to free at a time
	container *container.Container
	// process is the sentry's descriptor, which no other process can take over
	// as it can a pid; once it is set, ended will be closed.
	process  syscall.RawConn
	sentry   *sandbox.Sandbox // of container; its methods may be called concurrently
	control  *answer.Init
	onDisk   bool          // where the files are; set before made is closed
	disk     *backing.File // nil if they are in memory
	watching sync.WaitGroup

	startMu sync.Mutex // see startText

	mu sync.Mutex
	// lifetime is nil without one, and strikes at expires. It is stopped when
	// the sandbox is freed.
	lifetime  *time.Timer
	expires   time.Time
	state     execenv.State
	freed     bool
	expired   bool
	abandoned string // why the sandbox was given up here, if it was
	outcome   *run.Outcome
	slots     slots
	execs     map[string]*command
	finished  []string // IDs of ended execs, oldest first
	// counted is what was refused in each slot before it was last free.
	counted map[int]answer.Refusals
	// peakMemory is the highest use that was seen, see usageOf.
	peakMemory int64
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
		counted: map[int]answer.Refusals{},
	}
}

func (b *box) dir() string { return filepath.Join(b.env.sandboxesDir(), b.spec.ID) }

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
			Evidence:  b.lived(),
			LimitsHit: []run.Limit{run.LimitWallClock},
		}
	case b.abandoned != "":
		outcome.Evidence = "the sandbox was ended here: " + b.abandoned
	}
	b.outcome = &outcome
	if b.state == execenv.StateRunning {
		b.state = execenv.StateEnded
	}
	b.mu.Unlock()
	close(b.ended)
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
	b.stopLife()
	ctx, cancel := context.WithTimeout(context.Background(), b.env.freeTimeout)
	defer cancel()
	var errs []error
	if b.container != nil {
		if err := b.container.Destroy(); err != nil {
			errs = append(errs, err)
		} else {
			if b.process != nil {
				<-b.ended
			}
			b.container = nil
		}
	}
	if b.control != nil {
		b.control.Close()
	}
	errs = append(errs, b.group.Destroy(ctx))
	if err := errors.Join(errs...); err != nil {
		return fault.Wrap(fault.Internal, err, "cannot free sandbox %s", b.spec.ID)
	}
	for _, c := range b.commands() {
		<-c.done
	}
	if err := b.giveDisk(); err != nil {
		return fault.Wrap(fault.Internal, err, "cannot remove the files of sandbox %s", b.spec.ID)
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
	switch {
	case !b.expires.IsZero():
		info.ExpiresAt = b.expires
	case b.spec.Lifetime > 0: // it is being created
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
	return b.usage()
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
