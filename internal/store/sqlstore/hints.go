package sqlstore

import "sync"

// Hints hands on to those who watch a job that it has changed (H1). The zero
// value is ready.
type Hints struct {
	mu       sync.Mutex
	watchers map[string]map[chan struct{}]struct{}
}

// Watch returns a channel that gets a value after the job has changed. It holds
// one at most.
func (h *Hints) Watch(jobID string) (changed <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watchers == nil {
		h.watchers = map[string]map[chan struct{}]struct{}{}
	}
	if h.watchers[jobID] == nil {
		h.watchers[jobID] = map[chan struct{}]struct{}{}
	}
	h.watchers[jobID][c] = struct{}{}
	return c, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.watchers[jobID], c)
		if len(h.watchers[jobID]) == 0 {
			delete(h.watchers, jobID)
		}
	}
}

// Tell says that a job has changed.
func (h *Hints) Tell(jobID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	tell(h.watchers[jobID])
}

// TellAll says that any job may have changed.
func (h *Hints) TellAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, of := range h.watchers {
		tell(of)
	}
}

// Watched counts those who watch.
func (h *Hints) Watched() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, of := range h.watchers {
		n += len(of)
	}
	return n
}

func tell(watchers map[chan struct{}]struct{}) {
	for c := range watchers {
		select {
		case c <- struct{}{}:
		default: // it has one to look at already
		}
	}
}
