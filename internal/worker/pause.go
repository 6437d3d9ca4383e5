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

// backoff grows with each pause, up to most, or two seconds if that is zero.
type backoff struct{ d, most time.Duration }

func (b *backoff) pause(ctx context.Context) { pause(ctx, b.next()) }

func (b *backoff) next() time.Duration {
	most := b.most
	if most == 0 {
		most = 2 * time.Second
	}
	b.d = min(max(2*b.d, 25*time.Millisecond), most)
	return b.d
}
