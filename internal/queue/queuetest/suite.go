// Package queuetest is the contract suite of the port queue: a case or more for
// every numbered clause, run against every adapter.
package queuetest

import (
	"context"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/clauses"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/queue"
)

// Harness makes brokers.
type Harness struct {
	// Broker makes one with no messages. The test's clean-up removes it.
	Broker func(t *testing.T) Broker
	// Patience is how long a case waits for what must happen; 0 is a minute.
	Patience time.Duration
}

// Broker is where messages are. Open is required.
type Broker struct {
	// Open opens a queue on the broker, as a process of its own would.
	Open func() (queue.Queue, error)
	// Away takes the broker away, in ways that have names, until back is called.
	Away map[string]func() (back func())
	// Flush loses every message.
	Flush func()
	// Kept counts messages.
	Kept func() int64
}

type testCase struct {
	clause, name string
	needs        func(Broker) (missing string)
	run          func(*C)
}

// Cases lists the suite, in the protocol's order.
func Cases() []clauses.Case {
	var infos []clauses.Case
	for _, c := range cases {
		infos = append(infos, clauses.Case{Clause: c.clause, Name: c.name})
	}
	return infos
}

// NotEnforceable begins the message of every case that is skipped because the
// harness cannot bring about what the case is about.
const NotEnforceable = "not enforceable here: "

// Run runs the suite. Each case is a subtest, named by its clause.
func Run(t *testing.T, h Harness) {
	if h.Patience == 0 {
		h.Patience = time.Minute
	}
	for _, tc := range cases {
		t.Run(tc.clause+"_"+tc.name, func(t *testing.T) {
			t.Parallel()
			b := h.Broker(t)
			if tc.needs != nil {
				if missing := tc.needs(b); missing != "" {
					t.Skip(NotEnforceable + missing)
				}
			}
			ctx, cancel := context.WithTimeout(context.Background(), 3*h.Patience)
			defer cancel()
			c := &C{T: t, Broker: b, ctx: ctx, patience: h.Patience}
			c.Queue = c.open()
			tc.run(c)
		})
	}
}

// C is one case, with a queue on a broker of its own.
type C struct {
	*testing.T
	Broker
	queue.Queue
	ctx      context.Context
	patience time.Duration
}

func (c *C) open() queue.Queue {
	c.Helper()
	q, err := c.Open()
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() {
		if err := q.Close(); err != nil {
			c.Errorf("Close: %v", err)
		}
	})
	return q
}

func (c *C) wake(id string) {
	c.Helper()
	if err := c.Wake(c.ctx, id); err != nil {
		c.Fatalf("wake: %v", err)
	}
}

// wait takes a message, which must come.
func (c *C) wait() string {
	c.Helper()
	id, ok, err := c.Wait(c.ctx, c.patience)
	if err != nil || !ok {
		c.Fatalf("wait: %q, %v, %v", id, ok, err)
	}
	return id
}

// none checks that no message comes.
func (c *C) none() {
	c.Helper()
	if id, ok, err := c.Wait(c.ctx, 20*time.Millisecond); ok || err != nil {
		c.Errorf("wait: %q, %v, %v; want nothing", id, ok, err)
	}
}

func (c *C) unavailable(what string, err error) {
	c.Helper()
	if !fault.Is(err, fault.Unavailable) {
		c.Errorf("%s: want Unavailable, got %v", what, err)
	}
}

func unless(ok bool, missing string) string {
	if ok {
		return ""
	}
	return missing
}

func needsAway(b Broker) string { return unless(b.Away != nil, "a broker that goes away") }

func needsFlush(b Broker) string { return unless(b.Flush != nil, "a broker that loses messages") }
