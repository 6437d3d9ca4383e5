package gvisor

import (
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/transfer"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

const (
	// networkTimeout bounds how long the helper may take to listen.
	networkTimeout = 10 * time.Second
	// A helper or a gateway that was lost is replaced after a pause, which grows
	// until a helper has lived for so long.
	firstPause, longestPause = 50 * time.Millisecond, 5 * time.Second
	steady                   = 10 * time.Second
)

// network is a sandbox's way out: a run of the helper, which listens on the
// sandbox's loopback, and holds the one descriptor that leads to the gateway. The
// bytes on it do not pass through this process.
type network struct {
	// asked is whether the gateway may know the sandbox.
	asked atomic.Bool
	alive context.Context // until the way out is closed
	stop  context.CancelFunc

	// telling is for one Attach or Set at a time: each tells the gateway what is
	// allowed, and the last one counts there.
	telling sync.Mutex
	allowed run.Network // guarded by telling

	mu      sync.Mutex
	helper  transfer.Tool // the newest one
	serving sync.WaitGroup
}

func (n *network) init(allowed run.Network) {
	n.allowed = allowed
	n.alive, n.stop = context.WithCancel(context.Background())
}

// openNetwork makes the way out, if the sandbox is to have one. Without a gateway
// the sandbox is not made.
func (b *box) openNetwork(ctx context.Context) error {
	if !b.Spec.Network.Open() {
		return nil
	}
	b.network.asked.Store(true) // from now on, however this ends
	helper, err := b.startNetwork(ctx)
	if err != nil {
		return fault.Wrap(fault.CodeOf(err), err, "cannot create sandbox %s: %s", b.Spec.ID, fault.Public(err))
	}
	b.network.serving.Go(func() { b.keepNetwork(b.network.alive, helper) })
	return nil
}

// startNetwork attaches to the gateway and returns once the helper listens.
func (b *box) startNetwork(ctx context.Context) (transfer.Tool, error) {
	ctx, cancel := context.WithTimeout(ctx, networkTimeout)
	defer cancel()
	out, err := b.attach(ctx)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	said, ready, err := os.Pipe()
	if err != nil {
		return nil, fault.Wrap(fault.Internal, err, "cannot open its network")
	}
	defer said.Close()
	empty, end, err := os.Pipe()
	if err != nil {
		ready.Close()
		return nil, fault.Wrap(fault.Internal, err, "cannot open its network")
	}
	end.Close()
	defer empty.Close()
	// What it says on its error output is not looked at.
	helper, err := b.helper([]string{"network", strconv.Itoa(execenv.ProxyPort)}, []*os.File{empty, ready, ready, out})
	ready.Close()
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	_ = said.SetReadDeadline(deadline)
	line := make([]byte, len("ready\n"))
	if _, err := io.ReadFull(said, line); err != nil || string(line) != "ready\n" {
		killed, cancel := context.WithCancel(context.Background())
		cancel()
		_, waitErr := helper.Wait(killed)
		return nil, fault.Wrap(fault.Unavailable, errors.Join(err, waitErr), "the helper that opens its network did not start")
	}
	b.network.mu.Lock()
	b.network.helper = helper
	b.network.mu.Unlock()
	return helper, nil
}

// attach opens a stream. What is allowed cannot change between its being read and
// the gateway's knowing it.
func (b *box) attach(ctx context.Context) (*os.File, error) {
	b.network.telling.Lock()
	defer b.network.telling.Unlock()
	return b.env.cfg.Gateway.Attach(ctx, b.Spec.ID, b.network.allowed)
}

// keepNetwork replaces the helper when it has ended: a program may have killed it,
// or the gateway is gone. Meanwhile nothing gets out.
func (b *box) keepNetwork(ctx context.Context, helper transfer.Tool) {
	var pause time.Duration
	for {
		begun := time.Now()
		_, _ = helper.Wait(ctx)
		lived := time.Since(begun)
		for helper = nil; helper == nil; lived = 0 {
			pause = nextPause(pause, lived)
			select {
			case <-ctx.Done():
				return
			case <-b.Ended():
				return
			case <-b.GivenUp():
				return
			case <-time.After(pause):
			}
			var err error
			if helper, err = b.startNetwork(ctx); err != nil {
				helper = nil
				b.env.log.Warn("a sandbox has no way out", "sandbox", b.Spec.ID, "error", err)
			}
		}
	}
}

// nextPause is how long to wait after a pause and a helper that lived for so long. A
// program that kills each one gets no more of the host than that.
func nextPause(pause, lived time.Duration) time.Duration {
	if lived >= steady {
		return firstPause
	}
	return min(max(2*pause, firstPause), longestPause)
}

// cutNetwork ends all connections, whatever becomes of the sandbox.
func (b *box) cutNetwork(ctx context.Context) {
	if !b.network.asked.Load() {
		return
	}
	b.network.stop()
	if err := b.env.cfg.Gateway.Forget(ctx, b.Spec.ID); err != nil {
		b.env.log.Warn("the gateway was not told that a sandbox is gone", "sandbox", b.Spec.ID, "error", err)
	}
}

// closeNetwork does the same once the sandbox has ended, and leaves nothing: a
// stream may have been opened since.
func (b *box) closeNetwork(ctx context.Context) {
	b.network.serving.Wait()
	b.cutNetwork(ctx)
}

// SetNetwork implements execenv.Sandbox.
func (b *box) SetNetwork(ctx context.Context, n run.Network) error {
	if err := execenv.ValidateNetwork(n); err != nil {
		return err
	}
	if err := b.Alive(); err != nil {
		return err
	}
	if !b.Spec.Network.Open() {
		if n.Open() {
			return fault.New(fault.Unsupported, "sandbox %s was made without a network, and cannot be given one", b.Spec.ID)
		}
		return nil
	}
	b.network.telling.Lock()
	defer b.network.telling.Unlock()
	// Also if the gateway does not answer: it may have understood, and a stream that
	// is opened later must not bring back what was taken away.
	b.network.allowed = n
	return b.env.cfg.Gateway.Set(ctx, b.Spec.ID, n)
}

// NetworkUse implements execenv.Sandbox.
func (b *box) NetworkUse(ctx context.Context) (run.NetworkUse, error) {
	if _, err := b.Info(ctx); err != nil {
		return run.NetworkUse{}, err
	}
	if !b.Spec.Network.Open() {
		return run.NetworkUse{}, nil
	}
	return b.env.cfg.Gateway.Use(ctx, b.Spec.ID)
}
