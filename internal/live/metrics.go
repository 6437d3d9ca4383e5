package live

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/agentdock/agentdock/internal/control"
	"github.com/agentdock/agentdock/internal/run"
)

const (
	// sampleEvery is how far apart samples are at least.
	sampleEvery = 5 * time.Second
	// mostSamples of a sandbox are kept: half an hour.
	mostSamples = 360
)

// Sample is what a sandbox used at a moment. CPU is the time used since
// creation.
type Sample struct {
	At    time.Time
	Usage run.Usage
}

// usage keeps samples in memory: each process has its own, from its start on.
type usage struct {
	mu  sync.Mutex
	all map[string]*series
}

type series struct {
	due     time.Time
	samples []Sample
}

// Metrics returns what a sandbox has used, oldest first, as far as this process
// has seen it. A sandbox that lives is measured now too.
func (s *Sandboxes) Metrics(ctx context.Context, caller control.Caller, id string) (run.Sandbox, []Sample, error) {
	box, err := s.Get(ctx, caller, id)
	if err != nil {
		return run.Sandbox{}, nil, err
	}
	if box.State == run.SandboxRunning {
		h, err := s.open(ctx, caller, box)
		if err != nil {
			return run.Sandbox{}, nil, err
		}
		u, err := h.Usage(ctx)
		if err != nil {
			return run.Sandbox{}, nil, err
		}
		s.usage.add(id, Sample{time.Now().UTC(), u})
	}
	return box, s.usage.of(id), nil
}

// sample measures sandboxes whose turn it is. One that cannot be measured now
// has a gap.
func (s *Sandboxes) sample(ctx context.Context, conn Connection, running []run.Sandbox) {
	_ = each(running, func(box run.Sandbox) error {
		if !s.usage.take(box.ID, time.Now()) {
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, dialFor)
		defer cancel()
		live := s.handles.get(box.ID, conn)
		if live == nil {
			var err error
			if live, err = conn.Attach(ctx, box.ID); err != nil {
				return err
			}
			s.handles.keep(box.ID, conn, live)
		}
		u, err := live.Usage(ctx)
		if err == nil {
			s.usage.add(box.ID, Sample{time.Now().UTC(), u})
		}
		return err
	})
	s.usage.forgetOld(time.Now())
}

// take says whether a sandbox is to be measured, and that it is being.
func (u *usage) take(id string, now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	one := u.all[id]
	if one == nil {
		one = &series{}
		if u.all == nil {
			u.all = map[string]*series{}
		}
		u.all[id] = one
	}
	if now.Before(one.due) {
		return false
	}
	one.due = now.Add(sampleEvery)
	return true
}

func (u *usage) add(id string, sample Sample) {
	u.mu.Lock()
	defer u.mu.Unlock()
	one := u.all[id]
	if one == nil {
		one = &series{}
		if u.all == nil {
			u.all = map[string]*series{}
		}
		u.all[id] = one
	}
	one.samples = append(one.samples, sample)
	if extra := len(one.samples) - mostSamples; extra > 0 {
		one.samples = slices.Delete(one.samples, 0, extra)
	}
}

func (u *usage) of(id string) []Sample {
	u.mu.Lock()
	defer u.mu.Unlock()
	if one := u.all[id]; one != nil {
		return slices.Clone(one.samples)
	}
	return nil
}

// forgetOld forgets sandboxes that have not been measured for as long as their
// samples last.
func (u *usage) forgetOld(now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for id, one := range u.all {
		if now.Sub(one.due) > mostSamples*sampleEvery {
			delete(u.all, id)
		}
	}
}
