// Package live holds the use cases of live sandboxes: ones that a caller drives
// command by command until they are killed or their time is over. Every way in
// (the API, the protocols of other clients, MCP) does the same through it. It
// knows the ports and no adapter, and nothing of HTTP.
//
// This comment is the protocol.
//
// # Who may do what
//
//   - The tenant comes from the caller and is part of every question to the
//     record. An id that does not exist and one that is another tenant's give the
//     same NotFound. What the scopes of a key allow is the business of the way in.
//   - Whoever holds only the access token of a sandbox becomes a caller with
//     CallerOf: of the sandbox's tenant, with its grants.
//   - A command that is a shell is Denied unless the tenant has the grant
//     (REQUIREMENTS B8), and a variable may not have a reserved name (B7).
//
// # Life
//
//   - A sandbox is on record before it exists (creating), then running, then
//     ending, and ended once nothing is left of it. It holds its part of the
//     tenant's quota from the first to the last.
//   - Its time is over when it was killed, at ExpiresAt, when the execution
//     service that has it ends, or when it ends by itself. From then on every
//     use fails with Gone, whose message says how it ended; Get still shows it,
//     with the outcome, for a day.
//   - Pause puts it away, at an execution service that can, until its deadline or
//     until Resume brings it back, its commands included (execenv P10). It holds
//     its part of the quota. What a service has is the truth: a sweep puts on record
//     whether it is paused. One that is paused ends with its execution service.
//   - Extend moves ExpiresAt, up to Deadline. It fails with Gone when the time
//     is over. The record is the truth, and the clock of the execution service is
//     set by it, again by a sweep if need be.
//   - The same request again, with the same idempotency key, gives the sandbox
//     that it has made, however that has fared since, and makes none. One whose
//     making failed, or whose caller went away meanwhile, was not made.
//   - Sandboxes and commands do not depend on this process. Another one, or a
//     later one, goes on with them by id, from the record and the execution
//     service.
//
// # Commands
//
//   - Open gives a Handle, which holds nothing; it is for the request at hand.
//     Handle.Start returns when the command has been started. Its output is read
//     from any offset, by anybody, again and again (execenv O1); a reader who
//     goes away ends nothing. Handle.Attach finds a command by its id, running or
//     ended, as long as the sandbox remembers it: the 64 that ended last.
//   - An id that the caller chose makes Start idempotent (execenv X3).
//
// # Loops
//
// Run looks, from time to time, at the record and at the execution services, and
// does what is due: it works from what there is. Any number of processes may do
// so at once.
package live

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/agentdock/agentdock/internal/control"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
)

// Config is what an operator decides. Its zero fields become those of
// DefaultConfig.
type Config struct {
	// Defaults fill in the limits that a caller does not ask for; limits above
	// Ceiling are lowered to it.
	Defaults, Ceiling run.Limits
	// Image is the root image of sandboxes that name none.
	Image string
	// TTL is how long a sandbox lives whose caller does not say, MaxLifetime how
	// long any does, extended or not.
	TTL, MaxLifetime time.Duration
	// Starting bounds the creation of one sandbox.
	Starting time.Duration
	// Retention is how long what has ended stays on record.
	Retention time.Duration
	// Sweep is how often everything is looked at.
	Sweep time.Duration
	// Open leaves limits of processor, memory and processes that a caller does not
	// ask for to the execution service, which may not be able to enforce them: in
	// development.
	Open bool
	// Development allows execution services that do not isolate by a kernel.
	Development bool
}

// Limits are those of a job as the defaults of a live sandbox: a command may go
// on as long as its sandbox, unless its caller says otherwise.
func Limits(l run.Limits) run.Limits {
	l.WallClock = run.Ceiling().WallClock
	return l
}

// DefaultConfig is what applies unless an operator sets something else.
func DefaultConfig() Config {
	return Config{
		Defaults: Limits(run.DefaultLimits()), Ceiling: run.Ceiling(), Image: "default",
		TTL: 5 * time.Minute, MaxLifetime: 24 * time.Hour, Starting: 2 * time.Minute,
		Retention: 24 * time.Hour, Sweep: time.Second,
	}
}

func (c Config) orDefaults() Config {
	d := DefaultConfig()
	c.Defaults, c.Ceiling = c.Defaults.Or(d.Defaults), c.Ceiling.Or(d.Ceiling)
	if c.Image == "" {
		c.Image = d.Image
	}
	or := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	or(&c.TTL, d.TTL)
	or(&c.MaxLifetime, d.MaxLifetime)
	or(&c.Starting, d.Starting)
	or(&c.Retention, d.Retention)
	or(&c.Sweep, d.Sweep)
	return c
}

// Record is the part of the store that the use cases need.
type Record interface{ store.Sandboxes }

// Audit notes what a caller did, or was refused (control.Control.Audit).
type Audit func(ctx context.Context, caller control.Caller, action, object string, err error)

// Sandboxes runs the use cases. Its methods may be called concurrently.
type Sandboxes struct {
	cfg    Config
	record Record
	nodes  *nodes
	audit  Audit
	log    *slog.Logger

	handles handles
	usage   usage
	// wake asks for a sweep now.
	wake chan struct{}
}

// New makes the use cases over a record and execution services.
func New(cfg Config, record Record, services []Node, audit Audit, log *slog.Logger) (*Sandboxes, error) {
	cfg = cfg.orDefaults()
	if err := cfg.Defaults.Clamp(cfg.Ceiling).Validate(); err != nil {
		return nil, fmt.Errorf("cannot use the default limits: %w", err)
	}
	if min(cfg.TTL, cfg.MaxLifetime, cfg.Starting, cfg.Retention, cfg.Sweep) < 0 {
		return nil, errors.New("cannot use the settings of live sandboxes: a time is negative")
	}
	n, err := newNodes(services, cfg.Development)
	if err != nil {
		return nil, err
	}
	return &Sandboxes{cfg: cfg, record: record, nodes: n, audit: audit, log: log, wake: make(chan struct{}, 1)}, nil
}

// poke asks for a sweep now. It never blocks.
func (s *Sandboxes) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
