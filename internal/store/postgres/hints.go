package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/agentdock/agentdock/internal/store/sqlstore"
)

const (
	// channel is what processes notify each other on.
	channel = "agentdock_jobs"
	// longestPayload is less than what PostgreSQL takes.
	longestPayload = 7000
	// mostUntold bounds the changes that wait to be told. More than that are
	// not: hints may be lost (H1).
	mostUntold = 10_000
	// lookEvery is how often a connection that says nothing is asked whether it
	// is alive.
	lookEvery = 20 * time.Second
)

// hints tells all processes which jobs have changed. Sending is apart from the
// transactions: a commit that notifies waits for every other one that does,
// and one statement can tell of many changes.
type hints struct {
	sqlstore.Hints
	pool *pgxpool.Pool

	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup
	listen sync.Once

	mu     sync.Mutex
	untold map[string]struct{}
	wake   chan struct{}
}

func newHints(pool *pgxpool.Pool) *hints {
	h := &hints{pool: pool, untold: map[string]struct{}{}, wake: make(chan struct{}, 1)}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.done.Go(h.tellOthers)
	return h
}

// close ends what runs here, after a last try to tell others.
func (h *hints) close() {
	h.cancel()
	h.done.Wait()
}

// watch listens from the first watcher on: most workers never do.
func (h *hints) watch(id string) (<-chan struct{}, func()) {
	h.listen.Do(func() { h.done.Go(h.listenAlways) })
	return h.Watch(id)
}

// changed tells those in this process at once, and others soon.
func (h *hints) changed(id string) {
	h.Tell(id)
	if len(id) > longestPayload {
		return
	}
	h.mu.Lock()
	if len(h.untold) < mostUntold {
		h.untold[id] = struct{}{}
	}
	h.mu.Unlock()
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

func (h *hints) tellOthers() {
	for h.ctx.Err() == nil {
		select {
		case <-h.wake:
			h.send(h.ctx)
		case <-h.ctx.Done():
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(h.ctx), time.Second)
	defer cancel()
	h.send(last)
}

// send tells what has changed. What cannot be told is lost (H1).
func (h *hints) send(ctx context.Context) {
	h.mu.Lock()
	ids := make([]string, 0, len(h.untold))
	for id := range h.untold {
		ids = append(ids, id)
	}
	clear(h.untold)
	h.mu.Unlock()
	if len(ids) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, _ = h.pool.Exec(ctx, `SELECT pg_notify($1, id) FROM unnest($2::TEXT[]) AS id`, channel, ids)
}

// listenAlways keeps one connection for all watchers of this process, and makes
// another when it breaks.
func (h *hints) listenAlways() {
	const shortest, longest = 50 * time.Millisecond, 5 * time.Second
	pause := shortest
	for h.ctx.Err() == nil {
		if h.listenOnce() {
			pause = shortest
		}
		select {
		case <-time.After(pause):
		case <-h.ctx.Done():
		}
		pause = min(2*pause, longest)
	}
}

// listenOnce hands on what is heard until the connection breaks.
func (h *hints) listenOnce() (connected bool) {
	ctx, cancel := context.WithTimeout(h.ctx, callTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, h.pool.Config().ConnConfig)
	if err != nil {
		return false
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(h.ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return false
	}
	h.TellAll() // what changed while nobody listened
	for {
		if err := h.hear(conn); err != nil {
			return true
		}
	}
}

func (h *hints) hear(conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(h.ctx, lookEvery)
	defer cancel()
	n, err := conn.WaitForNotification(ctx)
	switch {
	case err == nil:
		h.Tell(n.Payload)
		return nil
	case h.ctx.Err() == nil && ctx.Err() != nil && !conn.IsClosed():
		alive, cancel := context.WithTimeout(h.ctx, connectTimeout)
		defer cancel()
		return conn.Ping(alive)
	}
	return err
}
