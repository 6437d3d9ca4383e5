// Package service is the contract for whatever runs until it is told to stop.
//
//   - S1. Start returns once the part takes work, or fails; then nothing of it is
//     left running. A part starts once.
//   - S2. Stop ends the part and returns nil only once it has ended. It may be
//     called before Start, twice, and by many at once; each call waits.
//   - S3. When Stop's context ends first, Stop says so and the part goes on
//     ending; nothing that was told to stop takes new work.
//   - S4. A part that ends without being told is noticed: Done is closed, and Err
//     says why.
//   - S5. Run starts parts in order, each after the one before it takes work, and
//     stops them in the opposite order, whatever happens in between. It returns
//     when all have ended or their time is over, and then names those that have
//     not.
package service

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Part is one thing that runs. Make it with New.
type Part struct {
	name string
	run  func(ctx context.Context, ready func()) error

	once   sync.Once // of the start, or of a Stop that comes before it
	cancel context.CancelFunc
	ctx    context.Context
	ready  chan struct{}
	done   chan struct{}
	err    error // valid once done is closed
}

// New makes a part of a function that works until its context ends. It calls
// ready when it takes work, and returns nil when it ended because it was told.
func New(name string, run func(ctx context.Context, ready func()) error) *Part {
	p := &Part{name: name, run: run, ready: make(chan struct{}), done: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// Loop makes a part that takes work as soon as it runs.
func Loop(name string, run func(ctx context.Context) error) *Part {
	return New(name, func(ctx context.Context, ready func()) error {
		ready()
		return run(ctx)
	})
}

// Name is for people.
func (p *Part) Name() string { return p.name }

// ErrStarted is returned by the second Start of a part, and by one after Stop.
var ErrStarted = errors.New("it was started or stopped before")

// Start runs the part and waits until it takes work. ctx bounds the start and
// nothing after it.
func (p *Part) Start(ctx context.Context) error {
	first := false
	p.once.Do(func() {
		first = true
		go p.work()
	})
	if !first {
		return fmt.Errorf("cannot start %s: %w", p.name, ErrStarted)
	}
	select {
	case <-p.ready:
		return nil
	case <-p.done:
		// One that was ready and ended at once has started all the same: Done
		// tells the rest.
		select {
		case <-p.ready:
			return nil
		default:
		}
		if p.err == nil {
			return fmt.Errorf("cannot start %s: it ended before it was ready", p.name)
		}
		return p.err // it says what it could not do
	case <-ctx.Done():
		p.cancel()
		<-p.done
		return fmt.Errorf("cannot start %s: %w", p.name, ctx.Err())
	}
}

func (p *Part) work() {
	defer close(p.done)
	defer p.cancel()
	var ready sync.Once
	err := p.run(p.ctx, func() { ready.Do(func() { close(p.ready) }) })
	if p.ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = nil // it ended because it was told
	}
	p.err = err
}

// Stop tells the part to end and waits until it has, or until ctx ends.
func (p *Part) Stop(ctx context.Context) error {
	p.once.Do(func() { close(p.done) }) // never started, and never will be
	p.cancel()
	select {
	case <-p.done:
		return p.err
	default:
	}
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return fmt.Errorf("cannot stop %s in time: %w; it is still ending", p.name, context.Cause(ctx))
	}
}

// Done is closed when the part has ended.
func (p *Part) Done() <-chan struct{} { return p.done }

// Err says why the part ended, once it is done: nil if it was told to.
func (p *Part) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}
