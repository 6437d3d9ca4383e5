package lifecycle

import (
	"sync"
	"time"
)

// stopwatch is a timer that can be held.
type stopwatch struct {
	mu    sync.Mutex
	timer *time.Timer
	until time.Time
	left  time.Duration // while it is held
	held  bool
	over  bool
	f     func()
}

func (s *stopwatch) begin(d time.Duration, f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.f, s.left = f, d
	if !s.held {
		s.run()
	}
}

func (s *stopwatch) run() {
	s.until = time.Now().Add(s.left)
	s.timer = time.AfterFunc(s.left, s.f)
}

// hold stops it until goOn. What has struck has struck.
func (s *stopwatch) hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held {
		return
	}
	s.held = true
	if s.timer != nil && s.timer.Stop() {
		s.left, s.timer = time.Until(s.until), nil
	}
}

func (s *stopwatch) goOn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.held {
		return
	}
	s.held = false
	if s.f != nil && s.timer == nil && !s.over {
		s.run()
	}
}

func (s *stopwatch) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	if s.timer != nil {
		s.timer.Stop()
	}
}
