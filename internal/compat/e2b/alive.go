package e2b

import (
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// alive sends messages on a stream, and a sign of life whenever none was sent for
// as long as the client asked for. A stream takes one sender at a time.
type alive[T any] struct {
	mu    sync.Mutex
	raw   func(*T) error
	quiet bool // nothing was sent since the last tick
	left  bool
	done  chan struct{}
	ended sync.WaitGroup
}

// pingHeader says after how many seconds a client wants a sign of life.
const pingHeader = "Keepalive-Ping-Interval"

func keepAlive[T any](header http.Header, send func(*T) error, sign *T) *alive[T] {
	interval := 50 * time.Second
	if n, err := strconv.Atoi(header.Get(pingHeader)); err == nil && n > 0 && n < 3600 {
		interval = time.Duration(n) * time.Second
	}
	a := &alive[T]{raw: send, done: make(chan struct{})}
	a.ended.Go(func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-a.done:
				return
			case <-tick.C:
			}
			if a.beat(sign) != nil {
				return // the client has gone; the request's context says so too
			}
		}
	})
	return a
}

func (a *alive[T]) beat(sign *T) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	quiet := a.quiet
	a.quiet = true
	if !quiet || a.left {
		return nil
	}
	return a.raw(sign)
}

func (a *alive[T]) send(msg *T) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.left {
		return errors.New("the stream has ended")
	}
	a.quiet = false
	return a.raw(msg)
}

// stop returns when nothing is sent any more.
func (a *alive[T]) stop() {
	a.mu.Lock()
	a.left = true
	a.mu.Unlock()
	close(a.done)
	a.ended.Wait()
}
