package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/store"
)

// errLost ends what a worker does with a job that is another's now, or over.
var errLost = errors.New("the lease on the job was lost")

// hold keeps the lease on a job alive for as long as it is worked on.
type hold struct {
	store Record
	lease store.Lease
	ttl   time.Duration

	// ctx ends when the job is to be let go; its cause says why.
	ctx context.Context
	end context.CancelCauseFunc

	cancelOnce sync.Once
	cancelled  chan struct{} // closed when a caller wants the job to end
	beats      sync.WaitGroup
}

func (w *Worker) hold(ctx context.Context, c store.Claimed) *hold {
	h := &hold{store: w.deps.Store, lease: c.Lease, ttl: w.cfg.Lease, cancelled: make(chan struct{})}
	h.ctx, h.end = context.WithCancelCause(ctx)
	if c.Job.CancelRequested {
		h.wantCancel()
	}
	h.beats.Go(h.beat)
	return h
}

// stop ends the heartbeat and waits for it.
func (h *hold) stop() {
	h.end(nil)
	h.beats.Wait()
}

func (h *hold) wantCancel() { h.cancelOnce.Do(func() { close(h.cancelled) }) }

func (h *hold) isCancelled() bool {
	select {
	case <-h.cancelled:
		return true
	default:
		return false
	}
}

// beat renews the lease three times in its life, and when the job may have
// changed: that is how a cancellation is heard of soon. Hints may be lost, so
// nothing depends on them.
func (h *hold) beat() {
	var changed <-chan struct{}
	if c, stop, err := h.store.Watch(h.ctx, h.lease.JobID); err == nil {
		changed = c
		defer stop()
	}
	tick := time.NewTicker(h.ttl / 3)
	defer tick.Stop()
	for {
		h.renew(h.ctx)
		select {
		case <-tick.C:
		case _, open := <-changed:
			if !open {
				changed = nil
			}
		case <-h.ctx.Done():
			return
		}
		// Many changes are our own; they need no answer each.
		select {
		case <-time.After(min(20*time.Millisecond, h.ttl/10)):
		case <-h.ctx.Done():
			return
		}
	}
}

// renew goes on when the store is away: a lease that has run out still works
// until somebody takes it, and the store says so when it is back.
func (h *hold) renew(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, max(h.ttl, time.Second))
	defer cancel()
	cancelRequested, err := h.store.Renew(ctx, h.lease, h.ttl)
	switch {
	case fault.Is(err, fault.Gone), fault.Is(err, fault.NotFound):
		h.end(errLost)
	case err == nil && cancelRequested:
		h.wantCancel()
	}
}

// release gives the lease to whoever asks next.
func (h *hold) release() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.ctx), 5*time.Second)
	defer cancel()
	_, err := h.store.Renew(ctx, h.lease, time.Millisecond)
	return err
}
