// Package redis wakes workers of many processes through a list in Redis
// (LPUSH and BRPOP on queue.Key).
package redis

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/queue"
)

const (
	// callTimeout bounds what is not meant to wait (Q5).
	callTimeout = 3 * time.Second
	// longestWait is how long the broker is asked to wait at once. A broker that
	// has gone silent is found out after it.
	longestWait = 5 * time.Second
	// shortestWait is the least the broker can be asked for: the library counts
	// in seconds. It would make one of less, and say so on standard error, where
	// there are JSON lines only. 0 would be for ever.
	shortestWait = time.Second
)

// Queue is a list in Redis.
type Queue struct{ client *redis.Client }

var _ queue.Queue = (*Queue)(nil)

// silence keeps the library, which has one logger for the whole process, from
// writing lines of its own into a log of JSON. What it cannot do it returns too.
var silence = sync.OnceFunc(func() { redis.SetLogger(nobody{}) })

type nobody struct{}

func (nobody) Printf(context.Context, string, ...any) {}

// Open reads the address ("redis://…", "rediss://…", "unix://…"). It connects
// when it is used: workers do without a broker that is away.
func Open(url string) (*Queue, error) {
	silence()
	opt, err := redis.ParseURL(url)
	if err != nil {
		// The cause quotes the address, which may have a password in it.
		return nil, fault.New(fault.Invalid, "cannot read the address of Redis; it is like redis://:password@host:6379/0 or unix:///path")
	}
	opt.DialTimeout, opt.ReadTimeout, opt.WriteTimeout, opt.PoolTimeout = callTimeout, callTimeout, callTimeout, callTimeout
	opt.ContextTimeoutEnabled = true
	// A message that may have been sent is not sent again by the library; the
	// caller decides, and nothing depends on it.
	opt.MaxRetries = -1
	opt.ClientName = "agentdock"
	return &Queue{client: redis.NewClient(opt)}, nil
}

// Wake adds a message and cuts the list to its bound, in one transaction.
func (q *Queue) Wake(ctx context.Context, jobID string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := q.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.LPush(ctx, queue.Key, jobID)
		p.LTrim(ctx, queue.Key, 0, queue.MaxKept-1)
		return nil
	})
	if err != nil {
		return fault.Wrap(fault.Unavailable, err, "cannot wake a worker through Redis")
	}
	return nil
}

// Wait takes the oldest message. It asks the broker again and again for a short
// wait, so that neither a context nor a silent broker holds it up.
func (q *Queue) Wait(ctx context.Context, timeout time.Duration) (string, bool, error) {
	deadline := time.Now().Add(timeout)
	for {
		if err := ctx.Err(); err != nil {
			return "", false, fault.Wrap(fault.Unavailable, err, "stopped waiting for a job")
		}
		left := max(time.Until(deadline), shortestWait)
		reply, err := q.pop(ctx, min(left, longestWait))
		switch {
		case err == nil:
			return reply, true, nil
		case !errors.Is(err, redis.Nil):
			if ended := ended(ctx); ended != nil {
				err = ended
			}
			return "", false, fault.Wrap(fault.Unavailable, err, "cannot wait for a job through Redis")
		case time.Until(deadline) <= 0:
			return "", false, nil
		}
	}
}

// ended is the context's error, also while only the connection, which was given
// the same deadline, has seen that it is over.
func ended(ctx context.Context) error {
	if at, ok := ctx.Deadline(); ok && ctx.Err() == nil && !time.Now().Before(at) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

func (q *Queue) pop(ctx context.Context, wait time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, wait+callTimeout)
	defer cancel()
	reply, err := q.client.BRPop(ctx, wait, queue.Key).Result()
	if err != nil {
		return "", err
	}
	return reply[1], nil // behind the name of the list
}

// Close ends all that wait.
func (q *Queue) Close() error { return q.client.Close() }
