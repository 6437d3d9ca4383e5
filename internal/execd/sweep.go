package execd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
)

const (
	// sweepEvery bounds how long anything that was missed stays unseen.
	sweepEvery = 30 * time.Second
	// A destroy that fails is tried again after firstRetry, then twice as
	// long each time, up to lastRetry.
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
	// lifetimeGrace is how long an environment may take to end a sandbox whose
	// lifetime has passed, before the guard destroys it.
	lifetimeGrace = 30 * time.Second
	// destroyTimeout ends the context of one destroy; the port lets the work
	// go on.
	destroyTimeout = 2 * time.Minute
)

// sentence is a sandbox that is to be destroyed, and when to try next.
type sentence struct {
	next    time.Time
	backoff time.Duration
	running bool
}

func (s *sentence) failed(now time.Time) {
	s.backoff = min(max(2*s.backoff, firstRetry), lastRetry)
	s.next = now.Add(s.backoff)
	s.running = false
}

// condemn marks a sandbox for destruction at a time. Called with the lock held.
func (g *Guard) condemn(id string, at time.Time) *sentence {
	s := g.condemned[id]
	if s == nil {
		s = &sentence{next: at}
		g.condemned[id] = s
	}
	return s
}

// Adopt takes over what an earlier life of the service left: it counts, and
// its lifetime goes on from when it was created.
func (g *Guard) Adopt(ctx context.Context) error {
	if _, err := g.sweep(ctx); err != nil {
		return fmt.Errorf("cannot see which sandboxes exist: %w", err)
	}
	return nil
}

// Run sweeps until ctx ends or the guard is closed. It returns when every
// destroy it began has ended or been given up by Close.
func (g *Guard) Run(ctx context.Context) {
	defer context.AfterFunc(ctx, g.poke)()
	for {
		next, err := g.sweep(ctx)
		if err != nil && ctx.Err() == nil && g.closing.Err() == nil {
			g.log.Error("cannot see which sandboxes exist; will look again", "error", err)
		}
		timer := time.NewTimer(time.Until(next))
		select {
		case <-timer.C:
		case <-g.wake:
		case <-g.closing.Done():
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil || g.closing.Err() != nil {
			return
		}
	}
}

// sweep looks at everything once, starts what is due, and says when to look
// again.
func (g *Guard) sweep(ctx context.Context) (next time.Time, err error) {
	next = time.Now().Add(sweepEvery)
	before := g.epochs()
	infos, err := g.inner.List(ctx)
	if err != nil {
		return time.Now().Add(firstRetry), err
	}
	now := time.Now()
	listed := map[string]bool{}
	for _, info := range infos {
		listed[info.ID] = true
		g.mu.Lock()
		if g.boxes[info.ID] == nil && info.State != execenv.StateDestroying {
			g.found(info.ID)
		}
		due := g.due(info)
		switch {
		case !due.IsZero() && !now.Before(due):
			g.condemn(info.ID, now)
		case info.State == execenv.StateDestroying:
			// Somebody's destroy is running, or failed without our seeing it.
			g.condemn(info.ID, now.Add(sweepEvery))
		default:
			next = sooner(next, due)
		}
		g.mu.Unlock()
	}

	g.mu.Lock()
	defer g.mu.Unlock()
	for id, epoch := range before {
		if b := g.boxes[id]; b != nil && !listed[id] && b.pending == 0 && b.epoch == epoch {
			delete(g.boxes, id) // gone without us
		}
	}
	for id, s := range g.condemned {
		switch {
		case s.running:
		case g.closed: // Close does it
		case now.Before(s.next):
			next = sooner(next, s.next)
		default:
			s.running = true
			epoch := g.epochOf(id)
			g.background.Go(func() { g.execute(id, epoch) })
		}
	}
	return next, nil
}

// epochs are the sandboxes no Create is working on.
func (g *Guard) epochs() map[string]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make(map[string]int, len(g.boxes))
	for id, b := range g.boxes {
		if b.pending == 0 {
			all[id] = b.epoch
		}
	}
	return all
}

// execute carries out a sentence.
func (g *Guard) execute(id string, epoch int) {
	ctx, cancel := context.WithTimeout(g.dying, destroyTimeout)
	defer cancel()
	err := g.inner.Destroy(ctx, id)
	if err != nil {
		g.log.Warn("cannot destroy a sandbox; will try again", "sandbox", id, "error", err)
	} else {
		g.log.Info("destroyed a sandbox that was due", "sandbox", id)
	}
	g.destroyed(id, epoch, err)
}

// Close lets nothing new begin, destroys every sandbox and returns nil when
// nothing is left. It tries until ctx ends. It can be called again, also at the
// same time; a later call tries again what an earlier one could not do.
func (g *Guard) Close(ctx context.Context) error {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.beginClose()
	g.closeOnce.Lock()
	defer g.closeOnce.Unlock()
	g.creating.Wait()

	err := g.destroyAll(ctx)
	g.die()
	g.background.Wait()
	return err
}

// release ends the guard without touching what exists: for a service that
// could not start, perhaps because another one owns it.
func (g *Guard) release() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.beginClose()
	g.die()
	g.background.Wait()
}

// awayFor is how long what has the sandboxes may be out of reach before stopping
// gives them up. What is left then is for the next start, which looks for it.
const awayFor = 3 * time.Second

func (g *Guard) destroyAll(ctx context.Context) error {
	reached := time.Now()
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		infos, err := g.inner.List(ctx)
		if err == nil {
			err = g.destroyEach(ctx, infos)
		}
		if err == nil {
			infos, err = g.inner.List(ctx) // the proof
		}
		switch {
		case err == nil && len(infos) == 0:
			return nil
		case err == nil:
			err = fmt.Errorf("%d sandboxes are still listed", len(infos))
		}
		switch {
		case !allUnavailable(err):
			reached = time.Now()
		case time.Since(reached) > awayFor:
			return fmt.Errorf("cannot destroy every sandbox; the next start will: %w", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("cannot destroy every sandbox before the end: %w", err)
		case <-time.After(wait):
		}
	}
}

// allUnavailable says whether each of these errors is of something out of reach.
func allUnavailable(err error) bool {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		return !slices.ContainsFunc(many.Unwrap(), func(err error) bool { return !allUnavailable(err) })
	}
	return fault.Is(err, fault.Unavailable)
}

func (g *Guard) destroyEach(ctx context.Context, infos []execenv.Info) error {
	const atOnce = 8
	slots := make(chan struct{}, atOnce)
	errs := make([]error, len(infos))
	var all sync.WaitGroup
	for i, info := range infos {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			if err := g.inner.Destroy(ctx, info.ID); err != nil {
				errs[i] = fmt.Errorf("sandbox %s: %w", info.ID, err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
