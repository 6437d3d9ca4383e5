// Package worker takes jobs from the record, runs them in sandboxes of an
// execution service, and puts on record how they ended.
//
// A worker holds nothing that the record does not: names of sandboxes and
// commands follow from it, and what may exist is on it before it exists. So any
// worker can go on where another one stopped (docs/adr/0012). The steps of a job
// are those of job.run; what a worker does beside jobs is in reconcile.go.
package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/agentdock/agentdock/internal/artifact"
	"github.com/agentdock/agentdock/internal/blob"
	"github.com/agentdock/agentdock/internal/checkout"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/queue"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
)

// Config says how a worker works. A field that is zero has the default that its
// comment names.
type Config struct {
	// Name is on leases, for people.
	Name string
	// Concurrency is how many jobs are run at once; 4.
	Concurrency int
	// Lease is how long a job stays this worker's without a sign of life; 30s.
	Lease time.Duration
	// Poll is how often work is looked for when no hint comes; 2s.
	Poll time.Duration
	// Drain is how long jobs may go on after Run was told to end; 30s. Those
	// that run still are let go (see Sole).
	Drain time.Duration
	// Patience is how long an execution service may be out of reach before what
	// it ran counts as lost; 2m.
	Patience time.Duration
	// RoomFor is how long a job waits for an execution service that has room;
	// 20m. Other jobs go on meanwhile.
	RoomFor time.Duration
	// Sweep is the pause between two looks at everything; 30s.
	Sweep time.Duration
	// Retention is how long jobs that ended are kept; 0 is for ever.
	// UploadRetention is the same for uploads that no job refers to.
	Retention, UploadRetention time.Duration
	// MaxStarts bounds the attempts of a job that never came to run a command,
	// MaxClaims the workers it may outlive; 10 and 100. One that kills whoever
	// runs it must not go round for ever.
	MaxStarts int
	MaxClaims int64
	// CollectFor bounds the collection of artifacts; 10m.
	CollectFor time.Duration
	// Artifacts bound what is kept of one job.
	Artifacts artifact.Limits
	// Development admits execution services that do not isolate by a kernel.
	Development bool
	// Sole says that the execution services end with this worker. Jobs that
	// still run after Drain cannot go on elsewhere, so their end is put on
	// record instead of left to a successor.
	Sole bool
}

// Record is the part of the store that a worker needs.
type Record interface {
	store.Leases
	store.Housekeeping
	Watch(ctx context.Context, id string) (changed <-chan struct{}, stop func(), _ error)
	Upload(ctx context.Context, tenantID, id string) (store.Upload, error)
	StaleUploads(ctx context.Context, before time.Time, limit int) ([]store.Upload, error)
	DeleteUpload(ctx context.Context, id string) error
}

// Signer makes the receipt of a job that has ended.
type Signer interface {
	Sign(job run.Job, artifacts []run.Artifact) ([]byte, error)
}

// Deps are what a worker works with.
type Deps struct {
	Store Record
	// Queue may be nil: then only Poll finds work.
	Queue queue.Queue
	Blobs blob.Store
	Nodes []Node
	// Repositories may be nil: then no repository can be had.
	Repositories checkout.Repositories
	// Signer may be nil: then receipts are left to other workers.
	Signer Signer
	Log    *slog.Logger
}

// Worker runs jobs. Make it with New.
type Worker struct {
	cfg   Config
	deps  Deps
	log   *slog.Logger
	nodes *nodes
	// ended gets a value when a job has: there is room, and something to sign.
	ended, unsigned chan struct{}
}

// New checks that the parts fit together. It starts nothing.
func New(cfg Config, deps Deps) (*Worker, error) {
	if deps.Store == nil || deps.Blobs == nil || deps.Log == nil {
		return nil, errors.New("cannot make a worker: it needs a store, blobs and a log")
	}
	cfg = cfg.withDefaults()
	nodes, err := newNodes(deps.Nodes, cfg.Development, deps.Log)
	if err != nil {
		return nil, err
	}
	return &Worker{
		cfg: cfg, deps: deps, log: deps.Log, nodes: nodes,
		ended: make(chan struct{}, 1), unsigned: make(chan struct{}, 1),
	}, nil
}

func (c Config) withDefaults() Config {
	or := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	or(&c.Lease, 30*time.Second)
	or(&c.Poll, 2*time.Second)
	or(&c.Drain, 30*time.Second)
	or(&c.Patience, 2*time.Minute)
	or(&c.RoomFor, 20*time.Minute)
	or(&c.Sweep, 30*time.Second)
	or(&c.CollectFor, 10*time.Minute)
	if c.Concurrency == 0 {
		c.Concurrency = 4
	}
	if c.MaxStarts == 0 {
		c.MaxStarts = 10
	}
	if c.MaxClaims == 0 {
		c.MaxClaims = 100
	}
	if c.Artifacts == (artifact.Limits{}) {
		c.Artifacts = artifact.DefaultLimits()
	}
	if c.Name == "" {
		c.Name = "worker"
	}
	return c
}

// errReleased ends what a worker does with a job when the drain is over.
var errReleased = errors.New("the worker was told to stop")

// Run works until ctx ends. Then it takes no new job, lets those that run go on
// for as long as Drain says, and lets go of the rest. It returns when nothing of
// it is left.
func (w *Worker) Run(ctx context.Context) error {
	jobs, release := context.WithCancelCause(context.WithoutCancel(ctx))
	defer release(nil)
	house, closeHouse := context.WithCancel(context.WithoutCancel(ctx))
	var loops sync.WaitGroup
	loops.Go(func() { w.sweepLoop(house) })
	loops.Go(func() { w.signLoop(house) })

	var running sync.WaitGroup
	w.take(ctx, func(c store.Claimed, mine *slot) { w.execute(jobs, c, mine) }, &running)

	idle := make(chan struct{})
	go func() {
		running.Wait()
		close(idle)
	}()
	patience := time.NewTimer(w.cfg.Drain)
	defer patience.Stop()
	select {
	case <-idle:
	case <-patience.C:
		w.log.Info("letting go of jobs that still run", "after", w.cfg.Drain)
		release(errReleased)
		<-idle
	}
	closeHouse()
	loops.Wait()
	return nil
}

// take claims jobs, as many at once as Concurrency, until ctx ends.
func (w *Worker) take(ctx context.Context, execute func(store.Claimed, *slot), running *sync.WaitGroup) {
	slots := newSlots(w.cfg.Concurrency)
	for {
		mine := slots.take(ctx)
		if mine == nil {
			return
		}
		c, ok, err := w.claim(ctx)
		if ok {
			running.Go(func() {
				defer func() {
					mine.leave()
					nudge(w.ended)
					nudge(w.unsigned)
				}()
				execute(c, mine)
			})
			continue
		}
		// A job that stepped aside may need the slot while there is no other.
		mine.leave()
		if err != nil {
			w.log.Warn("cannot take a job", "error", err)
			pause(ctx, w.cfg.Poll)
			continue
		}
		w.await(ctx)
	}
}

// claim takes a job, if there is one.
func (w *Worker) claim(ctx context.Context) (store.Claimed, bool, error) {
	if ctx.Err() != nil {
		return store.Claimed{}, false, nil
	}
	if err := w.nodes.usable(ctx); err != nil {
		// A job that is claimed now would only go back.
		return store.Claimed{}, false, fmt.Errorf("no execution service can be used: %w", err)
	}
	// An answer that is not waited for is a job that nobody has until its
	// lease is over.
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return w.deps.Store.Claim(call, w.cfg.Name, w.cfg.Lease)
}

// Refused fails when no execution service can be used and one of them must not be.
// One that is only away comes back by itself.
func (w *Worker) Refused(ctx context.Context) error {
	if err := w.nodes.usable(ctx); fault.Is(err, fault.Denied) {
		return err
	}
	return nil
}

// await returns when there may be a job: a hint came, one has ended here and
// made room in its tenant's quota, or it is time to look.
func (w *Worker) await(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if w.deps.Queue == nil {
		select {
		case <-w.ended:
		case <-ctx.Done():
		case <-time.After(jitter(w.cfg.Poll)):
		}
		return
	}
	go func() {
		select {
		case <-w.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	if _, _, err := w.deps.Queue.Wait(ctx, jitter(w.cfg.Poll)); err != nil && ctx.Err() == nil {
		w.log.Warn("cannot hear of new jobs; looking from time to time", "error", err)
		pause(ctx, w.cfg.Poll)
	}
}

// String names the worker.
func (w *Worker) String() string { return fmt.Sprintf("worker %s", w.cfg.Name) }

func nudge(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
