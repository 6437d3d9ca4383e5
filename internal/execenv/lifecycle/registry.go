package lifecycle

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
)

// Box is a sandbox as its environment has it. It embeds a Sandbox.
type Box interface {
	execenv.Sandbox
	base() *Sandbox
	// Boot makes the sandbox, up to Sandbox.Start. What it made before it failed is
	// for Free to remove.
	Boot(ctx context.Context) error
	// Free ends the sandbox and removes all of it. It can be called again after
	// it failed.
	Free() error
}

// Registry is the sandboxes of an environment, by ID: all of which anything is
// left. Its methods are those of execenv.Environment.
type Registry[B Box] struct {
	log *slog.Logger
	// forgotten is called for a sandbox of which nothing is left.
	forgotten func(B)

	mu    sync.Mutex
	boxes map[string]B
}

// NewRegistry makes one. Forgotten is called for each sandbox of which nothing is
// left any more, with no other call of it or of make at that time.
func NewRegistry[B Box](log *slog.Logger, forgotten func(B)) *Registry[B] {
	return &Registry[B]{log: log, forgotten: forgotten, boxes: map[string]B{}}
}

// Create returns the sandbox with that ID, and makes it if there is none.
func (r *Registry[B]) Create(ctx context.Context, spec execenv.Spec, make func() B) (execenv.Sandbox, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, fault.Wrap(fault.Unavailable, err, "creation of sandbox %s was given up", spec.ID)
		}
		b, created := r.claim(spec.ID, make)
		if created {
			return r.boot(ctx, b)
		}
		s := b.base()
		if !s.Spec.Equal(spec) {
			return nil, fault.New(fault.Conflict, "sandbox %s exists with a different specification", spec.ID)
		}
		select {
		case <-ctx.Done():
			return nil, fault.Wrap(fault.Unavailable, ctx.Err(), "creation of sandbox %s was given up", spec.ID)
		case <-s.made:
		}
		if s.makeErr == nil {
			return b, nil
		}
		if now, ok := r.Find(spec.ID); ok && now.base() == s {
			return nil, fault.New(fault.Unavailable, "sandbox %s could not be created before and is still being freed", spec.ID)
		}
		// Whoever made it failed and took it off the list; try ourselves.
	}
}

// claim returns the sandbox with that ID, and whether the caller has to boot it.
func (r *Registry[B]) claim(id string, make func() B) (b B, created bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b, ok := r.boxes[id]; ok {
		return b, false
	}
	b = make()
	r.boxes[id] = b
	return b, true
}

// boot makes the sandbox, or leaves nothing.
func (r *Registry[B]) boot(ctx context.Context, b B) (execenv.Sandbox, error) {
	s := b.base()
	err := b.Boot(ctx)
	if err != nil {
		if freeErr := b.Free(); freeErr != nil {
			r.log.Error("cannot free a sandbox that failed to start", "sandbox", s.Spec.ID, "error", freeErr)
		} else {
			r.forget(b)
		}
	}
	s.makeErr = err
	close(s.made)
	if err != nil {
		return nil, err
	}
	return b, nil
}

func (r *Registry[B]) forget(b B) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := b.base()
	if now, ok := r.boxes[s.Spec.ID]; ok && now.base() == s {
		delete(r.boxes, s.Spec.ID)
		r.forgotten(b)
	}
}

// Find returns the sandbox with that ID, made or not.
func (r *Registry[B]) Find(id string) (B, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b, ok := r.boxes[id]
	return b, ok
}

// All lists the sandboxes.
func (r *Registry[B]) All() []B {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]B, 0, len(r.boxes))
	for _, b := range r.boxes {
		all = append(all, b)
	}
	return all
}

// Attach returns the sandbox with that ID, once it is made.
func (r *Registry[B]) Attach(ctx context.Context, id string) (execenv.Sandbox, error) {
	if err := execenv.ValidateID(id); err != nil {
		return nil, err
	}
	if b, ok := r.Find(id); ok {
		s := b.base()
		select {
		case <-ctx.Done():
			return nil, fault.Wrap(fault.Unavailable, ctx.Err(), "attaching to sandbox %s was given up", id)
		case <-s.made:
		}
		if s.makeErr == nil {
			return b, nil
		}
	}
	return nil, fault.New(fault.NotFound, "sandbox %s does not exist", id)
}

// List describes the sandboxes, by ID.
func (r *Registry[B]) List(context.Context) ([]execenv.Info, error) {
	all := r.All()
	infos := make([]execenv.Info, len(all))
	for i, b := range all {
		infos[i] = b.base().info()
	}
	slices.SortFunc(infos, func(a, b execenv.Info) int { return strings.Compare(a.ID, b.ID) })
	return infos, nil
}

// destroyGrace is how long Destroy waits past its context's end for the work
// that goes on anyway.
const destroyGrace = 5 * time.Second

// Destroy frees a sandbox.
func (r *Registry[B]) Destroy(ctx context.Context, id string) error {
	if err := execenv.ValidateID(id); err != nil {
		return err
	}
	b, ok := r.Find(id)
	if !ok {
		return nil
	}
	s := b.base()
	s.GiveUp()
	// From here on the caller's context only bounds how long it waits.
	done := make(chan error, 1)
	go func() {
		<-s.made
		err := b.Free()
		if err == nil {
			r.forget(b)
		}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	// It is freed all the same, and soon; but not yet.
	select {
	case err := <-done:
		return err
	case <-time.After(destroyGrace):
		return fault.Wrap(fault.Unavailable, ctx.Err(), "sandbox %s is still being destroyed", id)
	}
}

// DestroyAll frees every sandbox.
func (r *Registry[B]) DestroyAll(ctx context.Context) error {
	all := r.All()
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, b := range all {
		wg.Go(func() { errs[i] = r.Destroy(ctx, b.ID()) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
