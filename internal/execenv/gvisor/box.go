package gvisor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"gvisor.dev/gvisor/runsc/container"
	"gvisor.dev/gvisor/runsc/sandbox"

	"github.com/agentdock/agentdock/internal/cgroup"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/gvisor/answer"
	"github.com/agentdock/agentdock/internal/execenv/gvisor/backing"
	"github.com/agentdock/agentdock/internal/execenv/lifecycle"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// box is one sandbox.
type box struct {
	*lifecycle.Sandbox
	env   *Environment
	image string // the path of its root image
	user  uint32 // of the host
	group *cgroup.Group

	// described is what gVisor was told of the sandbox; set before it is made.
	described *specs.Spec

	// turn is for one Pause, Resume or attempt to free at a time.
	turn      sync.Mutex
	container *container.Container
	// process is the sentry's descriptor, which no other process can take over
	// as it can a pid; once it is set, the sandbox's end will be known.
	process  syscall.RawConn
	sentry   *sandbox.Sandbox // of container; its methods may be called concurrently
	control  *answer.Init
	onDisk   bool          // where the files are; set before it is made
	disk     *backing.File // nil if they are in memory
	watching sync.WaitGroup
	network  network

	startMu sync.Mutex // see startText
	gate    gate       // before sentry and control
	// While it is paused: its state, and the programs' ends of its commands' files.
	saved   *stateImage
	held    map[int]*os.File
	endOnce sync.Once
	// named are the keys of all files that its kernel was ever told of: see peers.
	named map[int]bool

	mu sync.Mutex
	// gone is closed when the process is; away says that it was put away then, and
	// that the sandbox goes on.
	gone      chan struct{}
	away      bool
	abandoned string // why the sandbox was given up here, if it was
	slots     slots
	// counted is what was refused in each slot before it was last free.
	counted map[int]answer.Refusals
	// peakMemory is the highest use that was seen, see usageOf.
	peakMemory int64
}

var _ lifecycle.Box = (*box)(nil)

func newBox(e *Environment, spec execenv.Spec, image, digest string) *box {
	b := &box{
		env: e, image: image, user: e.users.take(),
		group:   e.hierarchy.Group(filepath.Join(e.group, spec.ID)),
		counted: map[int]answer.Refusals{}, named: map[int]bool{},
	}
	b.Sandbox = lifecycle.NewSandbox(spec, b.expire)
	b.network.init(spec.Network)
	b.SetDigest(digest)
	return b
}

// expire ends a sandbox whose lifetime has passed.
func (b *box) expire() {
	if b.Awake() != nil {
		b.endPaused()
		b.turn.Lock() // a Resume that has begun sees first that it is too late
		defer b.turn.Unlock()
		b.forgetState()
		return
	}
	b.abandon("its lifetime has passed")
}

func (b *box) dir() string { return filepath.Join(b.env.sandboxesDir(), b.Spec.ID) }

// end records why the sentry is gone, from what the host's kernel says.
func (b *box) end() {
	otherwise := run.Outcome{Kind: run.InfrastructureLost, Evidence: "the sandbox's kernel process ended and nobody here ended it"}
	b.mu.Lock()
	if b.abandoned != "" {
		otherwise.Evidence = "the sandbox was ended here: " + b.abandoned
	}
	b.mu.Unlock()
	var certain *run.Outcome
	if stats, err := b.group.Stats(); err == nil && stats.OOMKills > 0 {
		o := outOfMemory(stats, b.Spec.Limits)
		certain = &o
	}
	b.End(certain, otherwise)
}

// Free implements lifecycle.Box.
func (b *box) Free() error {
	b.GiveUp()
	b.turn.Lock()
	defer b.turn.Unlock()
	b.StopClock()
	if err := b.dropState(); err != nil {
		return fault.Wrap(fault.Internal, err, "cannot remove the state of sandbox %s", b.Spec.ID)
	}
	ctx, cancel := context.WithTimeout(context.Background(), b.env.freeTimeout)
	defer cancel()
	// The kernel does not outlive a gateway that is slow to answer.
	var cut sync.WaitGroup
	cut.Go(func() { b.cutNetwork(ctx) })
	defer cut.Wait()
	var errs []error
	if b.container != nil {
		if err := b.container.Destroy(); err != nil {
			errs = append(errs, err)
		} else {
			if b.process != nil {
				<-b.Ended()
			}
			b.container = nil
		}
	}
	if b.control != nil {
		b.control.Close()
	}
	errs = append(errs, b.group.Destroy(ctx))
	if err := errors.Join(errs...); err != nil {
		return fault.Wrap(fault.Internal, err, "cannot free sandbox %s", b.Spec.ID)
	}
	b.closeNetwork(ctx)
	b.AwaitCommands()
	if err := b.giveDisk(); err != nil {
		return fault.Wrap(fault.Internal, err, "cannot remove the files of sandbox %s", b.Spec.ID)
	}
	if err := os.RemoveAll(b.dir()); err != nil {
		return fault.Wrap(fault.Internal, err, "cannot remove the files of sandbox %s", b.Spec.ID)
	}
	b.Freed()
	return nil
}

// Usage implements execenv.Sandbox.
func (b *box) Usage(context.Context) (run.Usage, error) {
	if err := b.Alive(); err != nil {
		return run.Usage{}, err
	}
	leave, ok := b.gate.tryPass()
	if !ok {
		return run.Usage{}, fault.New(fault.Conflict, "sandbox %s is being paused or resumed", b.Spec.ID)
	}
	defer leave()
	return b.usage()
}
