package live

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

const (
	// grace lets the execution service's own clock strike first: commands then
	// end with the truth, that their time was over, and not as cancelled.
	grace = time.Second
	// givenUp is how long after its time a sandbox may hold its place when its
	// service cannot be asked any more. That service's own clock has ended it.
	givenUp = 5 * time.Minute
	// batch is how much of the record is looked at in one call.
	batch = 500
	// clockSlack is how far a service's clock may be from the record's before it
	// is set.
	clockSlack = 2 * time.Second
	// atOnce is how many sandboxes of a service are worked on at the same time.
	atOnce = 8
	// deleteEvery is how often old records are removed.
	deleteEvery = 10 * time.Minute
)

// Run looks at everything from time to time until ctx ends.
func (s *Sandboxes) Run(ctx context.Context) error {
	defer s.nodes.close()
	var deleted time.Time
	for ctx.Err() == nil {
		if err := s.Sweep(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("cannot look after all live sandboxes; trying again", "error", err)
		}
		if time.Since(deleted) > deleteEvery {
			deleted = time.Now()
			if _, err := s.record.DeleteSandboxes(ctx, deleted.Add(-s.cfg.Retention)); err != nil && ctx.Err() == nil {
				s.log.Warn("cannot remove records of sandboxes that ended long ago; trying again later", "error", err)
			}
		}
		timer := time.NewTimer(s.cfg.Sweep)
		select {
		case <-timer.C:
		case <-s.wake:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return nil
}

// Sweep does once what is due. It reads the record first and asks the services
// second, so what it finds running and not there is lost; and it asks the record
// again for what the services have, so what is there and not on record then is
// nobody's: a sandbox is on record before it exists, and one that has ended
// never comes back.
func (s *Sandboxes) Sweep(ctx context.Context) error {
	if _, err := s.record.EndDueSandboxes(ctx, grace, s.cfg.Starting); err != nil {
		return err
	}
	open, err := s.openByNode(ctx)
	if err != nil {
		return err
	}
	swept := make([]error, len(s.nodes.all))
	var looked sync.WaitGroup
	for i, service := range s.nodes.all { // one that is slow holds up no other
		boxes := open[service.Name]
		delete(open, service.Name)
		looked.Go(func() { swept[i] = s.sweepNode(ctx, service, boxes) })
	}
	var unplaced error
	for name, boxes := range open { // of services nobody knows, or of none
		if name == "" {
			unplaced = s.removeUnplaced(ctx, boxes)
			continue
		}
		s.giveUp(ctx, boxes)
	}
	looked.Wait()
	return errors.Join(append(swept, unplaced)...)
}

func (s *Sandboxes) sweepNode(ctx context.Context, service *node, boxes []run.Sandbox) error {
	conn, infos, err := s.nodes.list(ctx, service)
	if err != nil {
		s.giveUp(ctx, boxes)
		return err
	}
	return errors.Join(s.reconcile(ctx, conn, infos, boxes), s.removeOrphans(ctx, conn, infos))
}

// each does something with many sandboxes, some at once.
func each[T any](all []T, do func(T) error) error {
	slots := make(chan struct{}, atOnce)
	errs := make([]error, len(all))
	var done sync.WaitGroup
	for i, one := range all {
		slots <- struct{}{}
		done.Go(func() {
			defer func() { <-slots }()
			errs[i] = do(one)
		})
	}
	done.Wait()
	return errors.Join(errs...)
}

func (s *Sandboxes) openByNode(ctx context.Context) (map[string][]run.Sandbox, error) {
	open := map[string][]run.Sandbox{}
	for after := ""; ; {
		page, err := s.record.OpenSandboxes(ctx, after, batch)
		if err != nil {
			return nil, err
		}
		for _, box := range page {
			open[box.Node] = append(open[box.Node], box)
			after = box.ID
		}
		if len(page) < batch {
			return open, nil
		}
	}
}

// reconcile makes what a service has and what the record says of it the same.
func (s *Sandboxes) reconcile(ctx context.Context, conn Connection, infos []execenv.Info, boxes []run.Sandbox) error {
	there := map[string]execenv.Info{}
	for _, info := range infos {
		there[info.ID] = info
	}
	var running []run.Sandbox
	wrong, turned := map[string]bool{}, map[string]bool{}
	lost := map[string]run.Outcome{}
	for _, box := range boxes {
		info, listed := there[box.ID]
		if box.State != run.SandboxRunning && box.State != run.SandboxPaused {
			continue
		}
		if outcome := lostAs(box, info, listed); outcome != nil {
			lost[box.ID] = *outcome
			continue
		}
		if paused := info.State == execenv.StatePaused; paused != (box.State == run.SandboxPaused) {
			turned[box.ID] = true
			continue
		}
		if box.State == run.SandboxPaused {
			continue // its clock was set when it was paused
		}
		running = append(running, box)
		wrong[box.ID] = apart(info.ExpiresAt, box.ExpiresAt) > clockSlack
	}
	err := each(boxes, func(box run.Sandbox) error {
		if box.State == run.SandboxEnding {
			return s.remove(ctx, box)
		}
		if outcome, ok := lost[box.ID]; ok {
			_, err := s.end(ctx, box.ID, outcome)
			return err
		}
		if turned[box.ID] {
			return s.settle(ctx, conn, box)
		}
		if wrong[box.ID] {
			return s.setClock(ctx, conn, box)
		}
		return nil
	})
	s.sample(ctx, conn, running)
	return err
}

func apart(a, b time.Time) time.Duration { return a.Sub(b).Abs() }

// setClock gives a service's clock the time on record: it was told nothing of an
// extension, or something of one that another has overtaken. What the service's
// own policy does not allow stays as it is.
func (s *Sandboxes) setClock(ctx context.Context, conn Connection, box run.Sandbox) error {
	left := time.Until(box.ExpiresAt)
	if left <= 0 {
		return nil // it is due
	}
	live, err := conn.Attach(ctx, box.ID)
	if err == nil {
		err = live.Extend(ctx, left)
	}
	if fault.Is(err, fault.Gone) || fault.Is(err, fault.NotFound) {
		return nil // the next sweep sees that
	}
	return err
}

// lostAs is how a sandbox ended that is running on record, or nil if it runs.
func lostAs(box run.Sandbox, info execenv.Info, listed bool) *run.Outcome {
	switch {
	case !listed:
		return &run.Outcome{Kind: run.InfrastructureLost, Evidence: fmt.Sprintf("execution service %s has no such sandbox any more", box.Node)}
	case info.State == execenv.StateEnded && info.Outcome != nil:
		return info.Outcome
	case info.State == execenv.StateEnded, info.State == execenv.StateDestroying:
		return &run.Outcome{Kind: run.InfrastructureLost, Evidence: fmt.Sprintf("execution service %s has ended the sandbox", box.Node)}
	}
	return nil
}

// lookAt is for one sandbox what a sweep is for all: it returns how the sandbox
// ended, or nil if it has not.
func (s *Sandboxes) lookAt(ctx context.Context, box run.Sandbox, conn Connection) error {
	s.handles.forget(box.ID)
	var info execenv.Info
	live, err := conn.Attach(ctx, box.ID)
	if err == nil {
		info, err = live.Info(ctx)
	}
	if err != nil && !fault.Is(err, fault.NotFound) {
		return nil // nothing is known
	}
	lost := lostAs(box, info, err == nil)
	if lost == nil {
		return nil
	}
	// What the record says is truer: somebody may have killed it.
	ended, err := s.record.EndSandbox(ctx, box.ID, *lost)
	if err != nil || ended.Outcome == nil {
		return nil
	}
	s.poke()
	return fault.New(fault.Gone, "sandbox %s has ended: %s", box.ID, ended.Outcome.Kind)
}

// removeUnplaced ends what no service was ever asked for.
func (s *Sandboxes) removeUnplaced(ctx context.Context, boxes []run.Sandbox) error {
	return each(boxes, func(box run.Sandbox) error {
		if box.State != run.SandboxEnding {
			return nil
		}
		return s.remove(ctx, box)
	})
}

// giveUp frees the places of sandboxes whose service cannot be asked, long after
// that service's own clock has ended them. Should the service come back and
// still have one, it is an orphan.
func (s *Sandboxes) giveUp(ctx context.Context, boxes []run.Sandbox) {
	for _, box := range boxes {
		if box.State != run.SandboxEnding || time.Since(box.ExpiresAt) < givenUp {
			continue
		}
		if err := s.record.RemovedSandbox(ctx, box.ID); err != nil {
			s.log.Warn("cannot note the end of a sandbox whose service is away; trying again", "sandbox", box.ID, "error", err)
			continue
		}
		s.handles.forget(box.ID)
		s.log.Warn("gave up a sandbox whose time was over and whose service is away", "sandbox", box.ID, "node", box.Node)
	}
}

// removeOrphans removes live sandboxes that the record does not know as such.
func (s *Sandboxes) removeOrphans(ctx context.Context, conn Connection, infos []execenv.Info) error {
	var ids []string
	for _, info := range infos {
		if isLive(info) {
			ids = append(ids, info.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	needed, err := s.record.SandboxesIn(ctx, ids)
	if err != nil {
		return err
	}
	return each(ids, func(id string) error {
		if needed[id] {
			return nil
		}
		if err := conn.Destroy(ctx, id); err != nil {
			return err
		}
		s.log.InfoContext(ctx, "removed a live sandbox that was not on record any more", slog.String("sandbox", id))
		return nil
	})
}

// isLive says whether a sandbox was made here. Those that do not say so in every
// way are not, a job's above all, and are left alone.
func isLive(info execenv.Info) bool {
	_, attempt := info.Labels[labelAttempt]
	return info.Labels[labelSandbox] == "true" && info.Labels[labelID] == info.ID && isID(info.ID) && !attempt
}
