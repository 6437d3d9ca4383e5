package execd

import (
	"context"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
)

// guarded is a handle to a sandbox that counts its running commands.
type guarded struct {
	execenv.Sandbox
	g *Guard
}

func (s *guarded) Info(ctx context.Context) (execenv.Info, error) {
	info, err := s.Sandbox.Info(ctx)
	if err == nil {
		info.ExpiresAt = s.g.expiry(info)
	}
	return info, err
}

// Extend is the port's. Nothing extends MaxLifetime.
func (s *guarded) Extend(ctx context.Context, lifetime time.Duration) error {
	return s.live(ctx, lifetime, s.Sandbox.Extend)
}

// Pause is the port's. A paused sandbox is kept no longer than MaxLifetime.
func (s *guarded) Pause(ctx context.Context, keep time.Duration) error {
	return s.live(ctx, keep, s.Sandbox.Pause)
}

// Resume is the port's.
func (s *guarded) Resume(ctx context.Context, lifetime time.Duration) error {
	return s.live(ctx, lifetime, s.Sandbox.Resume)
}

// live has the sandbox's clock set, and then sets the guard's.
func (s *guarded) live(ctx context.Context, lifetime time.Duration, set func(context.Context, time.Duration) error) error {
	if err := execenv.ValidateLifetime(lifetime); err != nil {
		return err
	}
	g := s.g
	g.mu.Lock()
	b := g.boxes[s.ID()]
	if b != nil {
		lifetime = min(lifetime, time.Until(b.hard))
	}
	g.mu.Unlock()
	if lifetime <= 0 {
		return fault.New(fault.Gone, "the lifetime of sandbox %s has passed", s.ID())
	}
	// The inner clock first: if it has struck, nothing is extended.
	if err := set(ctx, lifetime); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if b != nil {
		// Asked with the lock held: of several who set it at once, the one that is last
		// here may not have been last there, and what counts is there.
		b.expires = time.Now().Add(lifetime)
		if info, err := s.Sandbox.Info(ctx); err == nil && !info.ExpiresAt.IsZero() {
			b.expires = info.ExpiresAt
		}
		b.expires = sooner(b.expires, b.hard)
	}
	g.poke()
	return nil
}

// Exec is the port's. A command that exists already needs no place (X3).
func (s *guarded) Exec(ctx context.Context, spec execenv.ExecSpec) (execenv.Exec, error) {
	b, err := s.g.admit(s.ID(), spec.ID)
	if fault.Is(err, fault.Exhausted) && spec.ID != "" {
		if _, known := s.Sandbox.AttachExec(ctx, spec.ID); known == nil {
			return s.Sandbox.Exec(ctx, spec)
		}
	}
	if err != nil {
		return nil, err
	}
	e, err := s.Sandbox.Exec(ctx, spec)

	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	b.starting--
	if err != nil {
		return nil, err
	}
	if _, watched := b.running[e.ID()]; !watched && s.g.dying.Err() == nil {
		b.running[e.ID()] = struct{}{}
		s.g.background.Go(func() { s.g.watch(b, e) })
	}
	return e, nil
}

// admit takes a place for a command that is about to start.
func (g *Guard) admit(sandbox, exec string) (*record, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, shuttingDown()
	}
	b := g.boxes[sandbox]
	if b == nil {
		// Nobody's any more, or found by the next sweep: the environment
		// decides, and what it starts is not counted.
		b = &record{running: map[string]struct{}{}}
	}
	if !b.expires.IsZero() && !time.Now().Before(b.expires) {
		return nil, fault.New(fault.Gone, "the lifetime of sandbox %s has passed", sandbox)
	}
	_, runs := b.running[exec]
	if most := g.policy.MaxExecs; most > 0 && !runs && b.starting+len(b.running) >= most {
		return nil, fault.New(fault.Exhausted, "%d commands run in sandbox %s, as many as this service allows; wait for one or kill it", most, sandbox)
	}
	b.starting++
	return b, nil
}

// found makes a record of a sandbox that the guard did not create. Called with
// the lock held.
func (g *Guard) found(id string) *record {
	end := time.Now().Add(g.policy.MaxLifetime)
	b := &record{made: true, expires: end, hard: end, running: map[string]struct{}{}}
	g.boxes[id] = b
	return b
}

// watch frees a command's place when it has ended. An error of Wait says
// nothing about the program (X4), so only NotFound and Gone end the watch.
func (g *Guard) watch(b *record, e execenv.Exec) {
	for {
		_, err := e.Wait(g.dying)
		if err == nil || g.dying.Err() != nil || fault.Is(err, fault.NotFound) || fault.Is(err, fault.Gone) {
			break
		}
		select {
		case <-g.dying.Done():
		case <-time.After(time.Second):
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(b.running, e.ID())
}
