package execenvtest

import (
	"cmp"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

var destroyCases = []testCase{
	{clause: "P5", name: "failed_destroy_stays_listed_and_is_retried", needs: needsFailDestroy, run: destroyFails},
	{clause: "P6", name: "destroy_unknown_is_no_error", run: destroyUnknown},
	{clause: "P6", name: "destroy_twice", run: destroyTwice},
	{clause: "P6", name: "destroy_concurrently", run: destroyConcurrently},
	{clause: "P6", name: "destroy_while_creating", run: destroyWhileCreating},
	{clause: "P6", name: "destroy_while_running_cancels", run: destroyWhileRunning},
	{clause: "P6", name: "destroy_while_output_is_followed", run: destroyWhileFollowed},
	{clause: "P6", name: "destroy_during_archives", run: destroyDuringArchives},
	{clause: "P6", name: "destroy_with_ended_context_still_frees", run: destroyEnded},
	{clause: "P6", name: "handles_of_a_destroyed_sandbox_are_gone", run: destroyedHandles},
	{clause: "P6", name: "many_creates_and_destroys", run: destroyMany, alone: true},
}

func destroyFails(c *C) {
	b := c.bare()
	heal := c.h.FailDestroy(c.T, c.env, b.ID())
	for range 2 {
		if err := c.env.Destroy(c.ctx(), b.ID()); err == nil {
			c.Errorf("Destroy that could not free the sandbox returned nil")
		}
		if _, ok := c.listed(b.ID()); !ok {
			c.Errorf("a sandbox that could not be freed is not listed")
		}
		if _, err := b.Exec(c.ctx(), probe("exit", "0")); err == nil {
			c.Errorf("Exec in a half destroyed sandbox succeeded")
		}
	}
	heal()
	c.ok("Destroy after the cause is gone", c.env.Destroy(c.ctx(), b.ID()))
	if _, ok := c.listed(b.ID()); ok {
		c.Errorf("still listed after Destroy")
	}
}

func destroyUnknown(c *C) {
	c.ok("Destroy of an unknown ID", c.env.Destroy(c.ctx(), c.id()))
	// A malformed ID names nothing; refusing it is as good.
	for _, id := range []string{"", "..", "a/b"} {
		if err := c.env.Destroy(c.ctx(), id); err != nil {
			c.code("Destroy of "+id, err, fault.Invalid)
		}
	}
}

func destroyTwice(c *C) {
	b := c.bare()
	for range 3 {
		c.ok("Destroy", c.env.Destroy(c.ctx(), b.ID()))
		if info, ok := c.listed(b.ID()); ok {
			c.Errorf("after Destroy List has %+v", info)
		}
	}
	_, err := c.env.Create(c.ctx(), b.spec)
	c.ok("Create with the same ID", err)
}

func destroyConcurrently(c *C) {
	b := c.create()
	p := b.start("hold")
	p.await("ready")
	together(6, func(int) {
		if err := c.env.Destroy(c.ctx(), b.ID()); err != nil {
			c.Errorf("concurrent Destroy: %v", err)
		}
		if _, ok := c.listed(b.ID()); ok {
			c.Errorf("listed after a Destroy that returned nil")
		}
	})
}

func destroyWhileCreating(c *C) {
	for _, after := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond, 15 * time.Millisecond, 30 * time.Millisecond, 50 * time.Millisecond} {
		spec := c.spec()
		var wg sync.WaitGroup
		var s execenv.Sandbox
		var created, destroyed error
		wg.Go(func() { s, created = c.env.Create(c.ctx(), spec) })
		wg.Go(func() {
			time.Sleep(after)
			destroyed = c.env.Destroy(c.ctx(), spec.ID)
		})
		c.soon("Create and Destroy at once", wg.Wait)
		c.ok("Destroy while Create runs", destroyed)
		_, found := c.listed(spec.ID)
		if created != nil && found {
			c.Errorf("Create failed (%v), and the sandbox is listed", created)
		}
		if created == nil {
			_, err := s.Exec(c.ctx(), execenv.ExecSpec{Argv: []string{"/no-such-program"}})
			if found {
				c.ok("Exec in the sandbox that is listed", err)
			} else {
				c.code("Exec in the sandbox that is not listed", err, fault.Gone, fault.NotFound)
			}
		}
		c.ok("Destroy", c.env.Destroy(c.ctx(), spec.ID))
		if _, found = c.listed(spec.ID); found {
			c.Errorf("listed after Destroy")
		}
	}
}

func destroyWhileRunning(c *C) {
	b := c.create()
	type waited struct {
		res execenv.Result
		err error
	}
	var waits []chan waited
	for _, verb := range []string{"hold", "ignore-term"} {
		p := b.start(verb)
		p.await("ready")
		ch := make(chan waited, 1)
		waits = append(waits, ch)
		go func() {
			res, err := p.Wait(c.ctx())
			ch <- waited{res, err}
		}()
	}
	time.Sleep(100 * time.Millisecond) // nothing tells that a Wait has begun
	c.ok("Destroy", c.env.Destroy(c.ctx(), b.ID()))
	for _, ch := range waits {
		c.soon("Wait during Destroy", func() {
			w := <-ch
			if w.err != nil {
				c.Errorf("Wait during Destroy: %v", w.err)
				return
			}
			c.kind("command of a destroyed sandbox", w.res.Outcome, run.Cancelled)
		})
	}
}

func destroyWhileFollowed(c *C) {
	b := c.create()
	p := b.start("hold")
	p.await("ready")
	followed := make(chan error, 1)
	following := make(chan struct{})
	go func() {
		var once sync.Once
		followed <- p.Output(c.ctx(), 0, func(execenv.Chunk) error {
			once.Do(func() { close(following) })
			return nil
		})
	}()
	<-following
	c.ok("Destroy", c.env.Destroy(c.ctx(), b.ID()))
	c.soon("Output during Destroy", func() {
		if err := <-followed; err != nil {
			c.code("Output during Destroy", err, fault.Gone, fault.NotFound)
		}
	})
}

func destroyDuringArchives(c *C) {
	b := c.bare()
	r, w := newStuckReader(), newStuckWriter()
	defer r.release()
	defer w.release()
	var wg sync.WaitGroup
	var put, get error
	c.ok("PutArchive", b.PutArchive(c.ctx(), "", bytesReader(tarOf(c.T, file("a", 0o644, "content")))))
	wg.Go(func() { put = b.PutArchive(c.ctx(), "x", r) })
	wg.Go(func() { get = b.GetArchive(c.ctx(), execenv.ArchiveRequest{}, w) })
	<-r.reached
	<-w.reached
	c.soon("Destroy while archives are stuck", func() {
		if err := c.env.Destroy(c.ctx(), b.ID()); err != nil {
			c.Errorf("Destroy while archives are stuck: %v", err)
		}
	})
	r.release()
	w.release()
	c.soon("archives of a destroyed sandbox", wg.Wait)
	if put == nil {
		c.Errorf("PutArchive into a destroyed sandbox succeeded")
	}
	_ = get // the archive may have been complete
}

func destroyEnded(c *C) {
	b := c.create()
	p := b.start("ignore-term")
	p.await("ready")
	// What it returns is its own affair; that it frees is not.
	_ = c.env.Destroy(ended(), b.ID())
	c.eventually("freeing what Destroy with an ended context started", func() bool {
		_, ok := c.listed(b.ID())
		return !ok
	})

	b = c.bare()
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_ = c.env.Destroy(ctx, b.ID())
	c.eventually("freeing what Destroy with a short context started", func() bool {
		_, ok := c.listed(b.ID())
		return !ok
	})
}

func destroyedHandles(c *C) {
	b := c.create()
	p := b.start("hold")
	p.await("ready")
	c.ok("Destroy", c.env.Destroy(c.ctx(), b.ID()))
	gone := []fault.Code{fault.Gone, fault.NotFound}
	_, err := b.Exec(c.ctx(), probe("exit", "0"))
	c.code("Exec", err, gone...)
	_, err = b.AttachExec(c.ctx(), p.ID())
	c.code("AttachExec", err, gone...)
	_, err = b.Info(c.ctx())
	c.code("Info", err, gone...)
	c.code("PutArchive", b.PutArchive(c.ctx(), "", bytesReader(tarOf(c.T, file("a", 0o644, "")))), gone...)
	c.code("GetArchive", b.GetArchive(c.ctx(), execenv.ArchiveRequest{}, discard{}), gone...)
	// Wait may have lost the result with the sandbox, but may not make one up.
	if res, err := p.Wait(c.ctx()); err == nil {
		c.kind("Wait after Destroy", res.Outcome, run.Cancelled)
	}
}

func destroyMany(c *C) {
	n, at := cmp.Or(c.h.Many, 200), 8
	if testing.Short() {
		n = 20
	}
	slots := make(chan struct{}, at)
	var wg sync.WaitGroup
	for range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			spec := c.spec()
			s, err := c.env.Create(c.ctx(), spec)
			if err != nil {
				c.Errorf("Create: %v", err)
				return
			}
			x, err := s.Exec(c.ctx(), execenv.ExecSpec{Argv: []string{"/no-such-program"}})
			if err == nil {
				var res execenv.Result
				if res, err = x.Wait(c.ctx()); err == nil {
					c.kind("missing program", res.Outcome, run.NotStarted)
				}
			}
			if err != nil {
				c.Errorf("Exec: %v", err)
			}
			if err := c.env.Destroy(c.ctx(), spec.ID); err != nil {
				c.Errorf("Destroy: %v", err)
			}
		})
	}
	wg.Wait()
	if infos, _ := c.env.List(c.ctx()); len(infos) > 0 {
		c.Errorf("List names %d sandboxes, want none", len(infos))
	}
}
