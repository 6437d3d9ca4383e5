package execrpc

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
)

const (
	// rememberFor is how long an answered Create can still be abandoned.
	rememberFor = time.Minute
	// destroyFor bounds a destroy nobody waits for any more.
	destroyFor = time.Minute
)

// creations keeps P2 true over a wire. An Environment knows only that its own
// Create succeeded; whether the answer reached anyone is known here. A sandbox
// that exists only because of calls whose callers have gone is destroyed; one
// that was there before, or that any caller was given, is not touched.
type creations struct {
	env execenv.Environment
	log *slog.Logger

	mu        sync.Mutex
	byID      map[string]*creation
	abandoned map[string]time.Time // by attempt
}

// creation is what is known of one sandbox ID.
type creation struct {
	running map[*call]struct{}
	// checked is closed when existed is known.
	checked chan struct{}
	existed bool
	// made: a call succeeded. answered: callers that were told so.
	made     bool
	answered map[string]time.Time // by attempt
	// destroying is closed when the clean-up has ended; nil while none runs.
	destroying chan struct{}
	destroyErr error
}

type call struct {
	attempt string
	cancel  context.CancelFunc
	ended   chan struct{}
}

func newCreations(env execenv.Environment, log *slog.Logger) *creations {
	return &creations{env: env, log: log, byID: map[string]*creation{}, abandoned: map[string]time.Time{}}
}

func (s *creations) create(ctx context.Context, spec execenv.Spec, attempt string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	this := &call{attempt: attempt, cancel: cancel, ended: make(chan struct{})}
	defer close(this.ended)

	c, err := s.begin(ctx, spec.ID, this)
	if err != nil {
		return err
	}
	_, err = s.env.Create(ctx, spec)

	s.mu.Lock()
	delete(c.running, this)
	c.made = c.made || err == nil
	_, left := s.abandoned[attempt]
	if err == nil && (ctx.Err() != nil || left) {
		err = fault.Wrap(fault.Unavailable, context.Canceled, "cannot create sandbox %s: its caller has gone", spec.ID)
	}
	if err == nil {
		c.answered[attempt] = time.Now()
	}
	s.mu.Unlock()
	if cleanErr := s.clean(spec.ID, c); cleanErr != nil {
		s.log.Warn("cannot destroy a sandbox whose caller has gone; it stays listed", "sandbox", spec.ID, "error", cleanErr)
	}
	return err
}

// begin enters a call and finds out whether the sandbox is there already.
func (s *creations) begin(ctx context.Context, id string, this *call) (*creation, error) {
	for {
		s.mu.Lock()
		s.forget()
		if _, left := s.abandoned[this.attempt]; left {
			s.mu.Unlock()
			return nil, fault.New(fault.Unavailable, "cannot create sandbox %s: its caller has gone", id)
		}
		c := s.byID[id]
		if c != nil && c.destroying != nil {
			wait := c.destroying
			s.mu.Unlock()
			select {
			case <-wait:
				continue
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		first := c == nil || len(c.running) == 0
		if c == nil {
			c = &creation{running: map[*call]struct{}{}, answered: map[string]time.Time{}}
			s.byID[id] = c
		}
		if first {
			c.checked = make(chan struct{})
		}
		checked := c.checked
		c.running[this] = struct{}{}
		s.mu.Unlock()

		if !first {
			<-checked
			return c, nil
		}
		_, err := s.env.Attach(ctx, id)
		s.mu.Lock()
		if fault.Is(err, fault.NotFound) {
			// What was known is of an earlier sandbox with this ID.
			c.existed, c.made = false, false
			clear(c.answered)
		} else if !c.made {
			// It is there and not by us; or nobody knows, which must not end
			// in destroying it.
			c.existed = true
		}
		close(checked)
		s.mu.Unlock()
		return c, nil
	}
}

// abandon ends the call named attempt and undoes what it did.
func (s *creations) abandon(ctx context.Context, id, attempt string) error {
	s.mu.Lock()
	s.abandoned[attempt] = time.Now()
	c := s.byID[id]
	if c == nil {
		s.mu.Unlock()
		return nil
	}
	delete(c.answered, attempt)
	var running *call
	for r := range c.running {
		if r.attempt == attempt {
			running = r
		}
	}
	s.mu.Unlock()
	if running != nil {
		running.cancel()
		select {
		case <-running.ended:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return s.clean(id, c)
}

// clean destroys the sandbox if it was made here and nobody has it, and
// forgets a creation of which nothing is left.
func (s *creations) clean(id string, c *creation) error {
	s.mu.Lock()
	if wait := c.destroying; wait != nil {
		s.mu.Unlock()
		<-wait
		return c.destroyErr
	}
	if len(c.running) > 0 || len(c.answered) > 0 || s.byID[id] != c {
		s.mu.Unlock()
		return nil
	}
	if c.existed || !c.made {
		delete(s.byID, id)
		s.mu.Unlock()
		return nil
	}
	done := make(chan struct{})
	c.destroying = done
	s.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), destroyFor)
	defer cancel()
	err := s.env.Destroy(ctx, id)

	s.mu.Lock()
	delete(s.byID, id)
	c.destroying, c.destroyErr = nil, err
	s.mu.Unlock()
	close(done)
	return err
}

// forget drops what is too old to be abandoned. Called with the lock held.
func (s *creations) forget() {
	old := time.Now().Add(-rememberFor)
	for attempt, at := range s.abandoned {
		if at.Before(old) {
			delete(s.abandoned, attempt)
		}
	}
	for id, c := range s.byID {
		if len(c.running) > 0 || c.destroying != nil || len(c.answered) == 0 {
			continue // the last of its calls cleans up
		}
		recent := false
		for _, at := range c.answered {
			recent = recent || at.After(old)
		}
		if !recent {
			delete(s.byID, id)
		}
	}
}
