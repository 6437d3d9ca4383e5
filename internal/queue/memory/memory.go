// Package memory wakes workers of its own process.
package memory

import (
	"context"
	"sync"
	"time"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/queue"
)

// Queue is a list of messages that ends with its process.
type Queue struct {
	mu       sync.Mutex
	messages []string
	closed   bool
	// some has a value while there may be messages, so that one who waits looks.
	some chan struct{}
	done chan struct{}
}

var _ queue.Queue = (*Queue)(nil)

// New returns an empty queue.
func New() *Queue {
	return &Queue{some: make(chan struct{}, 1), done: make(chan struct{})}
}

var errClosed = fault.New(fault.Unavailable, "the queue is closed")

// Wake adds a message, and drops the oldest when there are too many (Q6).
func (q *Queue) Wake(ctx context.Context, jobID string) error {
	if err := ctx.Err(); err != nil {
		return fault.Wrap(fault.Unavailable, err, "cannot wake a worker")
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return errClosed
	}
	q.messages = append(q.messages, jobID)
	if over := len(q.messages) - queue.MaxKept; over > 0 {
		q.messages = append(q.messages[:0], q.messages[over:]...)
	}
	q.look()
	return nil
}

// look makes one who waits look; the lock is held.
func (q *Queue) look() {
	select {
	case q.some <- struct{}{}:
	default:
	}
}

// Wait takes the oldest message.
func (q *Queue) Wait(ctx context.Context, timeout time.Duration) (string, bool, error) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		if id, ok, err := q.take(ctx); ok || err != nil {
			return id, ok, err
		}
		select {
		case <-q.some:
		case <-timer.C:
			return "", false, nil
		case <-ctx.Done():
			return "", false, fault.Wrap(fault.Unavailable, ctx.Err(), "stopped waiting for a job")
		case <-q.done:
			return "", false, errClosed
		}
	}
}

func (q *Queue) take(ctx context.Context) (string, bool, error) {
	if err := ctx.Err(); err != nil { // a message would be lost on it
		return "", false, fault.Wrap(fault.Unavailable, err, "stopped waiting for a job")
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return "", false, errClosed
	}
	if len(q.messages) == 0 {
		return "", false, nil
	}
	id := q.messages[0]
	q.messages = q.messages[1:]
	if len(q.messages) > 0 {
		q.look() // there is one for somebody else
	}
	return id, true, nil
}

// Close ends all that wait.
func (q *Queue) Close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.closed = true
		close(q.done)
	}
	return nil
}
