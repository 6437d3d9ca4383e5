package worker

import (
	"context"
	"time"
)

// slots are the places of jobs that are run at once. Jobs that wait for room at
// an execution service have none, so that others go on meanwhile.
type slots struct {
	taken chan struct{}
	// aside has a value for each job that waits without a slot. Each costs the
	// record a sign of life, so more than mostAside wait in theirs.
	aside chan struct{}
}

// mostAside is many times what a tenant may have running, so that no one tenant
// fills it.
const mostAside = 256

func newSlots(n int) *slots {
	return &slots{taken: make(chan struct{}, n), aside: make(chan struct{}, mostAside)}
}

// slot is one job's. It is used by one goroutine at a time.
type slot struct {
	of   *slots
	held bool
}

// take waits for a slot. It returns nil when ctx ends first.
func (s *slots) take(ctx context.Context) *slot {
	one := &slot{of: s}
	if one.take(ctx); !one.held {
		return nil
	}
	return one
}

func (s *slot) take(ctx context.Context) {
	select {
	case s.of.taken <- struct{}{}:
		s.held = true
	case <-ctx.Done():
	}
}

func (s *slot) leave() {
	if s.held {
		<-s.of.taken
		s.held = false
	}
}

// stepAside leaves the slot to another job for about d, and returns when it has
// one again. When ctx ends first it returns without one: a job has no need of it
// to be ended.
func (s *slot) stepAside(ctx context.Context, d time.Duration) {
	select {
	case s.of.aside <- struct{}{}:
		defer func() { <-s.of.aside }()
	default:
		pause(ctx, d)
		return
	}
	s.leave()
	pause(ctx, d)
	s.take(ctx)
}
