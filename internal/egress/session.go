package egress

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/agentdock/agentdock/internal/egress/policy"
)

// session is one sandbox's network.
type session struct {
	gateway *Gateway
	record  record
	limiter *rate.Limiter
	ctx     context.Context // ends with the session
	cancel  context.CancelFunc

	mu      sync.Mutex
	policy  policy.Policy
	used    int64 // bytes either way
	open    map[*upstream]struct{}
	dialing int64
	streams int
	stream  io.Closer // the newest
	unused  time.Time // since when there is no stream
}

func newSession(g *Gateway, p policy.Policy) *session {
	s := &session{gateway: g, open: map[*upstream]struct{}{}, limiter: rate.NewLimiter(rate.Inf, burst)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.set(p)
	return s
}

// burst is how many bytes may pass at once, and the most that one read takes.
const burst = 64 << 10

// set changes the policy. Connections that it does not allow are cut.
func (s *session) set(p policy.Policy) {
	s.mu.Lock()
	s.policy = p
	limit := rate.Inf
	if p.BytesPerSecond > 0 {
		limit = rate.Limit(p.BytesPerSecond)
	}
	s.limiter.SetLimit(limit)
	var cut []*upstream
	for u := range s.open {
		if _, ok := p.Allows(u.target.host, u.target.port); !ok {
			cut = append(cut, u)
		}
	}
	s.mu.Unlock()
	s.cut(cut, "cut: the policy was changed and does not allow it any more")
}

// cut ends connections to servers at once. Programs are told later: a helper that
// does not read must hold up neither that nor the caller.
func (s *session) cut(all []*upstream, reason string) {
	if len(all) == 0 {
		return
	}
	for _, u := range all {
		u.cutServer(reason)
	}
	s.gateway.wg.Go(func() {
		for _, u := range all {
			u.cutClient()
		}
	})
}

// end cuts everything.
func (s *session) end(reason string) {
	s.cancel()
	s.mu.Lock()
	s.policy = policy.Policy{}
	open := slices.Collect(maps.Keys(s.open))
	s.mu.Unlock()
	s.cut(open, "cut: "+reason)
}

func (s *session) closeOnEnd(c io.Closer) func() bool {
	return context.AfterFunc(s.ctx, func() { _ = c.Close() })
}

// attached counts a stream. There is one for each sandbox: an earlier one ends,
// whose helper is gone or was left behind.
func (s *session) attached(stream io.Closer) {
	s.mu.Lock()
	earlier := s.stream
	s.stream = stream
	s.streams++
	s.mu.Unlock()
	if earlier != nil {
		_ = earlier.Close()
	}
}

func (s *session) detached(stream io.Closer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream == stream {
		s.stream = nil
	}
	s.streams--
	s.unused = time.Now()
}

func (s *session) unusedSince(t time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streams == 0 && s.unused.Before(t)
}

// admit decides about a server that was asked for, and takes a place for the
// connection. The caller gives it back with opened or failed.
func (s *session) admit(t target) (policy.Rule, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rule, ok := s.policy.Allows(t.host, t.port)
	switch {
	case !ok:
		return rule, &denied{"it is not allowed"}
	case s.used >= s.policy.MaxBytes:
		return rule, &denied{fmt.Sprintf("the network's %d bytes are used up", s.policy.MaxBytes)}
	case int64(len(s.open))+s.dialing >= s.policy.MaxConnections:
		return rule, &denied{fmt.Sprintf("%d connections are open, and no more may be", s.policy.MaxConnections)}
	case !s.gateway.takePlace():
		return rule, &denied{"all sandboxes together have as many connections as there can be; try again later"}
	}
	s.dialing++
	return rule, nil
}

func (s *session) failed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dialing--
	s.gateway.givePlace()
}

// opened keeps a connection so that it can be cut; it says no if the policy has
// changed meanwhile.
func (s *session) opened(u *upstream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dialing--
	if _, ok := s.policy.Allows(u.target.host, u.target.port); !ok {
		return false
	}
	s.open[u] = struct{}{}
	return true
}

func (s *session) closed(u *upstream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, u)
	s.gateway.givePlace()
}

// count takes bytes that moved from what may be used, and reports whether that is
// over.
func (s *session) count(n int) (over bool, most int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used += int64(n)
	return s.used > s.policy.MaxBytes, s.policy.MaxBytes
}
