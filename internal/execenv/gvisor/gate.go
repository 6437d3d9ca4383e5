package gvisor

import (
	"errors"
	"sync"
)

// gate stands before a sandbox's kernel and its init. While it is closed the
// sandbox is paused, or on its way there or back, and there may be neither: who
// has something to ask waits. So what has begun when a sandbox is paused, such as
// the clearing of a command that has just ended, goes on when it is resumed.
type gate struct {
	// busy is held by what cannot wait in the middle, and tried by Pause.
	busy sync.RWMutex

	inside sync.RWMutex // held by calls, and to open and close
	closed chan struct{}
	era    int // how often it was closed
}

var errEnded = errors.New("the sandbox has ended")

// pass waits until the gate is open, or the sandbox has ended.
func (g *gate) pass(ended <-chan struct{}) (leave func(), err error) {
	for {
		g.inside.RLock()
		closed := g.closed
		if closed == nil {
			return g.inside.RUnlock, nil
		}
		g.inside.RUnlock()
		select {
		case <-closed:
		case <-ended:
			return nil, errEnded
		}
	}
}

// tryPass is pass for who does not wait.
func (g *gate) tryPass() (leave func(), ok bool) {
	g.inside.RLock()
	if g.closed == nil {
		return g.inside.RUnlock, true
	}
	g.inside.RUnlock()
	return nil, false
}

// close returns when nobody is inside and nobody will be.
func (g *gate) close() {
	g.inside.Lock()
	defer g.inside.Unlock()
	g.closed = make(chan struct{})
	g.era++
}

func (g *gate) open() {
	g.inside.Lock()
	defer g.inside.Unlock()
	close(g.closed)
	g.closed = nil
}

func (g *gate) isClosed() bool {
	g.inside.RLock()
	defer g.inside.RUnlock()
	return g.closed != nil
}

// whereabouts is how a sandbox's kernel is reached, and which one it is.
type whereabouts struct {
	socket string
	era    int
}

func (b *box) whereabouts() (whereabouts, error) {
	leave, err := b.gate.pass(b.Ended())
	if err != nil {
		return whereabouts{}, err
	}
	defer leave()
	path := b.sentry.GetControlSocketPath()
	if path == "" {
		return whereabouts{}, errNoSocket
	}
	return whereabouts{socket: path, era: b.gate.era}, nil
}
