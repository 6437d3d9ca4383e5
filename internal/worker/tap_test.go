package worker

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/agentdock/agentdock/internal/blob"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
)

// tap is on all calls of one worker to what is outside it. It counts those that
// work on jobs, does something at one of them, and lets nothing through once the
// worker is dead: a process that was killed says nothing more, to nobody.
type tap struct {
	mu   sync.Mutex
	n    int
	dead bool
	// at is the call at which do is called, before it or after it. What do
	// returns is the call's answer, unless it is nil.
	at    int
	after bool
	do    func() error
	// lease is the one that was claimed last.
	lease store.Lease
}

// expire makes the lease run out, as if its time had passed.
func (t *tap) expire(s Record) error {
	t.mu.Lock()
	l := t.lease
	t.mu.Unlock()
	_, err := s.Renew(context.Background(), l, time.Nanosecond)
	if fault.Is(err, fault.Gone) {
		return nil // it has ended, or is another's
	}
	return err
}

var errDead = fault.New(fault.Unavailable, "the worker is dead")

func (t *tap) isDead() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.dead
}

func (t *tap) die() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dead = true
}

func (t *tap) calls() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n
}

// call makes one of the calls that count.
func (t *tap) call(do func() error) error {
	t.mu.Lock()
	t.n++
	now, dead := t.n == t.at && t.do != nil, t.dead
	t.mu.Unlock()
	if dead {
		return errDead
	}
	if now && !t.after {
		if err := t.do(); err != nil {
			return err
		}
	}
	err := do()
	if now && t.after {
		if answer := t.do(); answer != nil {
			return answer
		}
	}
	if t.isDead() {
		return errDead
	}
	return err
}

// quiet makes a call that does not count: how many there are depends on time.
func (t *tap) quiet(do func() error) error {
	if t.isDead() {
		return errDead
	}
	return do()
}

// tappedRecord is the store of a tapped worker.
type tappedRecord struct {
	Record
	t *tap
}

func (r tappedRecord) Claim(ctx context.Context, worker string, ttl time.Duration) (c store.Claimed, ok bool, err error) {
	err = r.t.quiet(func() (err error) {
		c, ok, err = r.Record.Claim(ctx, worker, ttl)
		return err
	})
	if err != nil || !ok {
		return c, ok, err // those that found nothing do not count
	}
	r.t.mu.Lock()
	r.t.lease = c.Lease
	r.t.mu.Unlock()
	if err := r.t.call(func() error { return nil }); err != nil {
		// Nobody knows of the lease, so it runs out.
		return c, false, errors.Join(err, r.t.expire(r.Record))
	}
	return c, true, nil
}

func (r tappedRecord) Renew(ctx context.Context, l store.Lease, ttl time.Duration) (cancel bool, err error) {
	err = r.t.quiet(func() (err error) {
		cancel, err = r.Record.Renew(ctx, l, ttl)
		return err
	})
	return cancel, err
}

func (r tappedRecord) Place(ctx context.Context, l store.Lease, node string) error {
	return r.t.call(func() error { return r.Record.Place(ctx, l, node) })
}

func (r tappedRecord) Resolve(ctx context.Context, l store.Lease, res run.Resolved) error {
	return r.t.call(func() error { return r.Record.Resolve(ctx, l, res) })
}

func (r tappedRecord) StartStep(ctx context.Context, l store.Lease, s run.Step) error {
	return r.t.call(func() error { return r.Record.StartStep(ctx, l, s) })
}

func (r tappedRecord) EndStep(ctx context.Context, l store.Lease, s run.Step) error {
	return r.t.call(func() error { return r.Record.EndStep(ctx, l, s) })
}

func (r tappedRecord) AppendLog(ctx context.Context, l store.Lease, e []run.LogEntry) (end int64, err error) {
	err = r.t.call(func() (err error) {
		end, err = r.Record.AppendLog(ctx, l, e)
		return err
	})
	return end, err
}

func (r tappedRecord) LogEnd(ctx context.Context, l store.Lease, step int) (end int64, err error) {
	err = r.t.call(func() (err error) {
		end, err = r.Record.LogEnd(ctx, l, step)
		return err
	})
	return end, err
}

func (r tappedRecord) AddArtifact(ctx context.Context, l store.Lease, a run.Artifact) error {
	return r.t.call(func() error { return r.Record.AddArtifact(ctx, l, a) })
}

func (r tappedRecord) Finish(ctx context.Context, l store.Lease, end store.End) error {
	return r.t.call(func() error { return r.Record.Finish(ctx, l, end) })
}

func (r tappedRecord) Requeue(ctx context.Context, l store.Lease, lost bool) error {
	return r.t.call(func() error { return r.Record.Requeue(ctx, l, lost) })
}

func (r tappedRecord) SignJob(ctx context.Context, id string, receipt []byte) error {
	return r.t.call(func() error { return r.Record.SignJob(ctx, id, receipt) })
}

func (r tappedRecord) ActiveAttempts(ctx context.Context, of []store.Attempt) (active map[store.Attempt]bool, err error) {
	err = r.t.quiet(func() (err error) {
		active, err = r.Record.ActiveAttempts(ctx, of)
		return err
	})
	return active, err
}

// tappedBlobs is the object store of a tapped worker.
type tappedBlobs struct {
	blob.Store
	t *tap
}

func (b tappedBlobs) Put(ctx context.Context, key string, r io.Reader, size int64) (info blob.Info, err error) {
	err = b.t.call(func() (err error) {
		info, err = b.Store.Put(ctx, key, r, size)
		return err
	})
	return info, err
}

// tappedNode is an execution service as a tapped worker sees it.
func tappedNode(n Node, t *tap) Node {
	return Node{Name: n.Name, Dial: func(ctx context.Context) (conn Connection, err error) {
		err = t.quiet(func() (err error) {
			conn, err = n.Dial(ctx)
			return err
		})
		if err != nil {
			return nil, err
		}
		return tappedConnection{conn, t}, nil
	}}
}

type tappedConnection struct {
	Connection
	t *tap
}

func (c tappedConnection) Create(ctx context.Context, spec execenv.Spec) (sb execenv.Sandbox, err error) {
	err = c.t.call(func() (err error) {
		sb, err = c.Connection.Create(ctx, spec)
		return err
	})
	return tappedSandbox{sb, c.t}, err
}

func (c tappedConnection) Attach(ctx context.Context, id string) (sb execenv.Sandbox, err error) {
	err = c.t.call(func() (err error) {
		sb, err = c.Connection.Attach(ctx, id)
		return err
	})
	return tappedSandbox{sb, c.t}, err
}

func (c tappedConnection) Destroy(ctx context.Context, id string) error {
	return c.t.call(func() error { return c.Connection.Destroy(ctx, id) })
}

type tappedSandbox struct {
	execenv.Sandbox
	t *tap
}

func (s tappedSandbox) Exec(ctx context.Context, spec execenv.ExecSpec) (x execenv.Exec, err error) {
	err = s.t.call(func() (err error) {
		x, err = s.Sandbox.Exec(ctx, spec)
		return err
	})
	return tappedExec{x, s.t}, err
}

func (s tappedSandbox) AttachExec(ctx context.Context, id string) (x execenv.Exec, err error) {
	err = s.t.call(func() (err error) {
		x, err = s.Sandbox.AttachExec(ctx, id)
		return err
	})
	return tappedExec{x, s.t}, err
}

func (s tappedSandbox) PutArchive(ctx context.Context, dir string, r io.Reader) error {
	return s.t.call(func() error { return s.Sandbox.PutArchive(ctx, dir, r) })
}

func (s tappedSandbox) GetArchive(ctx context.Context, req execenv.ArchiveRequest, w io.Writer) error {
	return s.t.call(func() error { return s.Sandbox.GetArchive(ctx, req, w) })
}

type tappedExec struct {
	execenv.Exec
	t *tap
}

func (x tappedExec) Output(ctx context.Context, from int64, yield func(execenv.Chunk) error) error {
	return x.t.quiet(func() error { return x.Exec.Output(ctx, from, yield) })
}

func (x tappedExec) Wait(ctx context.Context) (res execenv.Result, err error) {
	err = x.t.call(func() (err error) {
		res, err = x.Exec.Wait(ctx)
		return err
	})
	return res, err
}

func (x tappedExec) Kill(ctx context.Context) error {
	return x.t.quiet(func() error { return x.Exec.Kill(ctx) })
}
