package worker

import (
	"context"
	"math/rand/v2"
	"time"
)

// pause sleeps for about d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(jitter(d))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// jitter is d give or take a quarter: workers that were started together shall
// not ask together.
func jitter(d time.Duration) time.Duration {
	return d - d/4 + rand.N(d/2+1)
}

// backoff grows with each call of next, up to two seconds.
type backoff struct{ d time.Duration }

func (b *backoff) pause(ctx context.Context) {
	b.d = min(max(2*b.d, 25*time.Millisecond), 2*time.Second)
	pause(ctx, b.d)
}
