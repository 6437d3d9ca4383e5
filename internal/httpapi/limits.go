package httpapi

import (
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// keptLimiters bounds each set of limiters. When it is full it begins anew,
// which gives everybody a full allowance once and never less.
const keptLimiters = 20_000

// limiters is one limiter per tenant, or per address.
type limiters struct {
	mu  sync.Mutex
	all map[string]*rate.Limiter
}

func newLimiters() *limiters { return &limiters{all: map[string]*rate.Limiter{}} }

func (l *limiters) of(name string, perMinute int) *rate.Limiter {
	limit, burst := rate.Limit(float64(perMinute)/60), max(1, perMinute/6)
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.all[name]
	if one == nil {
		if len(l.all) >= keptLimiters {
			clear(l.all)
		}
		one = rate.NewLimiter(limit, burst)
		l.all[name] = one
	}
	if one.Limit() != limit { // the quota was changed
		one.SetLimit(limit)
		one.SetBurst(burst)
	}
	return one
}

// allowance is where a tenant stands.
type allowance struct {
	perMinute, left int
	// full is when all of it is there again, and wait when the next request is
	// allowed, if this one is not.
	full, wait time.Duration
}

func (l *limiters) count(name string, perMinute int) allowance {
	one := l.of(name, perMinute)
	now := time.Now()
	a := allowance{perMinute: perMinute}
	allowed := one.AllowN(now, 1)
	tokens := one.TokensAt(now)
	a.left = max(0, int(math.Floor(tokens)))
	a.full = time.Duration((float64(one.Burst()) - tokens) / float64(one.Limit()) * float64(time.Second))
	if !allowed {
		a.wait = max(time.Millisecond, time.Duration((1-tokens)/float64(one.Limit())*float64(time.Second)))
	}
	return a
}

// describe writes the header fields of the IETF's draft on rate limits.
func (a allowance) describe(h http.Header) {
	h.Set("RateLimit-Policy", fmt.Sprintf(`"requests";q=%d;w=60`, a.perMinute))
	h.Set("RateLimit", fmt.Sprintf(`"requests";r=%d;t=%s`, a.left, seconds(a.full)))
}

// strangersPerMinute is how many requests without a valid key are answered and
// put on record for one address; it is what somebody gets who guesses.
const strangersPerMinute = 60

func (l *limiters) take(address string) (wait time.Duration) {
	return l.count(address, strangersPerMinute).wait
}

// addressOf is what counts as one place on the network.
func addressOf(host string) string {
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	ip = ip.Unmap()
	if ip.Is4() {
		return ip.String()
	}
	prefix, err := ip.WithZone("").Prefix(64)
	if err != nil {
		return host
	}
	return prefix.String()
}

// slots counts requests that last, of one tenant and of all.
type slots struct {
	mu            sync.Mutex
	used          map[string]int
	total         int
	perTenant, of int
}

func (s *slots) take(tenantID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total >= s.of || s.used[tenantID] >= s.perTenant {
		return false
	}
	s.total++
	s.used[tenantID]++
	return true
}

func (s *slots) give(tenantID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	if s.used[tenantID]--; s.used[tenantID] == 0 {
		delete(s.used, tenantID)
	}
}
