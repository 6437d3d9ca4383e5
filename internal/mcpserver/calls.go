package mcpserver

import (
	"context"
	"errors"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// calls are the calls of tools that are going on, so that they can be ended with
// their session, or with the server: a session that is closed waits for its calls,
// and does not end them.
type calls struct {
	mu      sync.Mutex
	stopped bool
	going   map[*going]struct{}
	wait    sync.WaitGroup
}

type going struct {
	session, user string
	cancel        context.CancelFunc
}

// track is a middleware that knows of every call.
func (all *calls) track(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if method != "tools/call" {
			return next(ctx, method, req)
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		one := &going{session: req.GetSession().ID(), cancel: cancel}
		if extra := req.GetExtra(); extra != nil && extra.TokenInfo != nil {
			one.user = extra.TokenInfo.UserID
		}
		if !all.begin(one) {
			return nil, errStopping
		}
		defer all.end(one)
		return next(ctx, method, req)
	}
}

var errStopping = errors.New("the server stops; nothing was done")

func (all *calls) begin(one *going) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.stopped {
		return false
	}
	all.wait.Add(1)
	if all.going == nil {
		all.going = map[*going]struct{}{}
	}
	all.going[one] = struct{}{}
	return true
}

func (all *calls) end(one *going) {
	all.mu.Lock()
	defer all.mu.Unlock()
	delete(all.going, one)
	all.wait.Done()
}

// cancel ends the calls of a session that a user has made.
func (all *calls) cancel(session, user string) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for one := range all.going {
		if one.session == session && one.user == user {
			one.cancel()
		}
	}
}

// stop ends all calls, refuses those that come later, and waits: each has killFor
// for what it has to clean up.
func (all *calls) stop() {
	all.mu.Lock()
	all.stopped = true
	for one := range all.going {
		one.cancel()
	}
	all.mu.Unlock()
	all.wait.Wait()
}
