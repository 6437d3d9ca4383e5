package sqlite

import (
	"sync/atomic"
	"time"
)

// clock is the time of the record: it begins with the wall's, and goes on with
// the process's own, which nobody can set (L5).
type clock struct{ from atomic.Pointer[origin] }

// origin says what time it was, in microseconds, at an instant.
type origin struct {
	micros int64
	at     time.Time
}

// start begins, not before a time in microseconds, so that the order of the
// list outlives a wall clock that was set back.
func (c *clock) start(notBefore int64) {
	now := time.Now()
	c.from.Store(&origin{max(now.UnixMicro(), notBefore), now})
}

func (c *clock) now() int64 {
	o := c.from.Load()
	return o.micros + time.Since(o.at).Microseconds()
}
