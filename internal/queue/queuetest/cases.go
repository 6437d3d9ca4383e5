package queuetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/agentdock/agentdock/internal/queue"
)

var cases = []testCase{
	{clause: "Q1", name: "wake_ends_a_later_wait", run: laterWait},
	{clause: "Q1", name: "wake_ends_a_wait_that_is_on", run: waitIsOn},
	{clause: "Q1", name: "each_wake_ends_one_wait", run: oneWait},
	{clause: "Q2", name: "messages_are_lost", needs: needsFlush, run: flushed},
	{clause: "Q2", name: "messages_are_doubled", run: doubled},
	{clause: "Q3", name: "time_passes", run: timePasses},
	{clause: "Q3", name: "context_ends", run: contextEnds},
	{clause: "Q4", name: "many_at_once", run: manyAtOnce},
	{clause: "Q5", name: "broker_is_away", needs: needsAway, run: brokerAway},
	{clause: "Q5", name: "broker_goes_during_a_wait", needs: needsAway, run: goesDuringWait},
	{clause: "Q6", name: "oldest_go_first", run: bounded},
}

func laterWait(c *C) {
	c.wake("a")
	c.wake("b")
	got := map[string]bool{c.wait(): true, c.wait(): true}
	if !got["a"] || !got["b"] {
		c.Errorf("got %v", got)
	}
	c.none()
}

func waitIsOn(c *C) {
	waiter := c.open()
	got := make(chan string, 1)
	go func() {
		id, _, err := waiter.Wait(c.ctx, c.patience)
		if err != nil {
			c.Errorf("wait: %v", err)
		}
		got <- id
	}()
	time.Sleep(30 * time.Millisecond) // whether it waits by now or later, it is woken
	began := time.Now()
	c.wake("a")
	if id := <-got; id != "a" {
		c.Errorf("got %q", id)
	}
	if took := time.Since(began); took > c.patience/2 {
		c.Errorf("it was woken after %v", took)
	}
}

// oneWait: with one message, one of many is woken.
func oneWait(c *C) {
	var woken []string
	var mu sync.Mutex
	var all sync.WaitGroup
	for range 5 {
		q := c.open()
		all.Go(func() {
			id, ok, err := q.Wait(c.ctx, 300*time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				c.Errorf("wait: %v", err)
			}
			if ok {
				woken = append(woken, id)
			}
		})
	}
	c.wake("a")
	all.Wait()
	if len(woken) == 0 { // all had gone before it came
		woken = append(woken, c.wait())
	}
	if len(woken) != 1 || woken[0] != "a" {
		c.Errorf("woken: %q", woken)
	}
}

func flushed(c *C) {
	c.wake("lost")
	c.Flush()
	c.none()
	c.wake("a")
	if id := c.wait(); id != "a" {
		c.Errorf("got %q", id)
	}
}

// doubled: who wakes for the same job twice is taken at their word.
func doubled(c *C) {
	c.wake("a")
	c.wake("a")
	c.wait()
	c.wait()
	c.none()
}

func timePasses(c *C) {
	for _, timeout := range []time.Duration{-time.Second, 0, time.Millisecond, 50 * time.Millisecond} {
		began := time.Now()
		id, ok, err := c.Wait(c.ctx, timeout)
		if ok || err != nil {
			c.Errorf("after %v: %q, %v, %v", timeout, id, ok, err)
		}
		if took := time.Since(began); took < timeout || took > c.patience/2 {
			c.Errorf("it waited %v, want %v", took, timeout)
		}
	}
	c.wake("a") // a message that is there needs no time
	if id, ok, err := c.Wait(c.ctx, 0); !ok || err != nil || id != "a" {
		c.Errorf("got %q, %v, %v", id, ok, err)
	}
}

func contextEnds(c *C) {
	for name, end := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"cancelled": func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(30*time.Millisecond, cancel)
			return ctx, cancel
		},
		"before": func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return ctx, cancel
		},
		"deadline": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 30*time.Millisecond)
		},
	} {
		ctx, cancel := end(c.ctx)
		began := time.Now()
		_, ok, err := c.Wait(ctx, c.patience)
		took := time.Since(began)
		<-ctx.Done() // a connection with the same deadline may see it before the context does
		if ok || !errors.Is(err, ctx.Err()) || err == nil {
			c.Errorf("%s: %v, %v; want %v", name, ok, err, ctx.Err())
		}
		if took > c.patience/2 {
			c.Errorf("%s: it waited %v", name, took)
		}
		cancel()
	}
	c.wake("a") // nobody who has given up takes it
	if id := c.wait(); id != "a" {
		c.Errorf("got %q", id)
	}
}

func manyAtOnce(c *C) {
	const wakers, waiters, each = 6, 6, 50
	var mu sync.Mutex
	got := map[string]int{}
	var all sync.WaitGroup
	for i := range wakers {
		q := c.open()
		all.Go(func() {
			for k := range each {
				if err := q.Wake(c.ctx, fmt.Sprintf("%d-%d", i, k)); err != nil {
					c.Errorf("wake: %v", err)
				}
			}
		})
	}
	for range waiters {
		q := c.open()
		all.Go(func() {
			for range wakers * each / waiters {
				id, ok, err := q.Wait(c.ctx, c.patience)
				if err != nil || !ok {
					c.Errorf("wait: %v, %v", ok, err)
					return
				}
				mu.Lock()
				got[id]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if len(got) != wakers*each {
		c.Errorf("%d messages came, want %d", len(got), wakers*each)
	}
	c.none()
}

// within is how long a call may take while the broker is away.
const within = 20 * time.Second

func brokerAway(c *C) {
	for name, away := range c.Away {
		c.wake("connected")
		c.wait()
		back := away()
		for what, call := range map[string]func() error{
			"wake": func() error { return c.Wake(c.ctx, "x") },
			"wait": func() error { _, _, err := c.Wait(c.ctx, time.Second); return err },
		} {
			began := time.Now()
			c.unavailable(name+", "+what, call())
			if took := time.Since(began); took > within {
				c.Errorf("%s: %s took %v", name, what, took)
			}
		}
		back()
		c.works(name)
	}
}

// works waits until the same queue works, without anybody's help.
func (c *C) works(after string) {
	c.Helper()
	deadline := time.Now().Add(c.patience)
	for {
		if time.Now().After(deadline) {
			c.Fatalf("%s: it does not work again", after)
		}
		// What a paused broker was sent may arrive after all.
		if err := c.Wake(c.ctx, "again"); err != nil {
			continue
		}
		if _, ok, err := c.Wait(c.ctx, time.Second); err == nil && ok {
			break
		}
	}
	for {
		if _, ok, err := c.Wait(c.ctx, 20*time.Millisecond); err != nil || !ok {
			return
		}
	}
}

func goesDuringWait(c *C) {
	for name, away := range c.Away {
		ended := make(chan error, 1)
		go func() {
			_, _, err := c.Wait(c.ctx, c.patience)
			ended <- err
		}()
		time.Sleep(30 * time.Millisecond) // whether it waits by now or not
		back := away()
		select {
		case err := <-ended:
			c.unavailable(name+", wait", err)
		case <-time.After(within):
			c.Errorf("%s: the wait goes on", name)
		}
		back()
		c.works(name)
	}
}

func bounded(c *C) {
	const more = 5
	for i := range queue.MaxKept + more {
		c.wake(fmt.Sprint(i))
	}
	if c.Kept != nil {
		if n := c.Kept(); n != queue.MaxKept {
			c.Errorf("%d messages are kept, want %d", n, queue.MaxKept)
		}
	}
	n := 0
	for ; ; n++ {
		id, ok, err := c.Wait(c.ctx, 0)
		if err != nil {
			c.Fatal(err)
		}
		if !ok {
			break
		}
		if n == 0 && id != fmt.Sprint(more) {
			c.Errorf("the oldest that is kept is %s, want %d", id, more)
		}
	}
	if n != queue.MaxKept {
		c.Errorf("%d messages came, want %d", n, queue.MaxKept)
	}
}
