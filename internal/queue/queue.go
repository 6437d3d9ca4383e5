// Package queue is the port that wakes workers. It carries hints and no truth:
// jobs are in the store (package store), and a worker that hears nothing looks
// there from time to time. Every numbered sentence has a case in queuetest.
//
//   - Q1. Wake says that a job may be waiting. Each Wake ends the Wait of one
//     waiter, one that waits now or one that comes later.
//   - Q2. Messages may be lost, doubled and reordered; nobody may rely on one.
//   - Q3. Wait returns false without error when the time has passed, and soon
//     after its context has ended, with the context's error.
//   - Q4. Wake and Wait may be called concurrently, by many processes.
//   - Q5. When the broker is away, both fail with Unavailable, within a bounded
//     time, and work again when it is back, without anybody's help.
//   - Q6. The number of messages kept is bounded; the oldest go first.
package queue

import (
	"context"
	"time"
)

// Key is the Redis list that carries job ids (REQUIREMENTS B9).
const Key = "agentdock:executions"

// MaxKept bounds the messages kept (Q6).
const MaxKept = 10_000

// Queue wakes workers.
type Queue interface {
	Wake(ctx context.Context, jobID string) error
	// Wait returns the id that came with a Wake, or false when none came in
	// time.
	Wait(ctx context.Context, timeout time.Duration) (jobID string, ok bool, err error)
	Close() error
}
