package egress

import (
	"sync"
	"time"

	"github.com/agentdock/agentdock/internal/run"
)

// maxKinds is how many kinds of refusals are told apart. A program can invent
// names without end; the rest is counted under one.
const maxKinds = 256

// The list is divided, so that refusals and failures, which a program causes
// without end, do not hide which server got bytes.
const (
	maxRefusedListed = 512
	// maxSums is one sum for each rule that a policy can have, and one for the
	// rules of policies that came later.
	maxSums          = 257
	maxAllowedListed = run.MaxConnectionsListed - maxRefusedListed - maxSums
)

// record is the transcript of a sandbox, bounded.
type record struct {
	mu                sync.Mutex
	entries           []*entry
	refusals, allowed int // of entries
	sums              []*run.Connection
	omitted           int64
	denied            []run.EgressDenied
	kinds             map[run.EgressDenied]int // with a count of zero; where it is in denied
	out, in           int64
}

// entry is a line of it, which changes until it is ended.
type entry struct {
	line  run.Connection
	ended bool
	// sum is what counts in its place if it is not listed.
	sum *run.Connection
}

// counts is the line that has its bytes.
func (e *entry) counts() *run.Connection {
	if e.sum != nil {
		return e.sum
	}
	return &e.line
}

func (r *record) add(c run.Connection) *entry {
	c.At = time.Now().UTC()
	e := &entry{line: c, ended: c.Decision != run.EgressAllowed}
	listed, most := &r.refusals, maxRefusedListed
	if c.Decision == run.EgressAllowed {
		listed, most = &r.allowed, maxAllowedListed
	}
	switch {
	case *listed < most:
		*listed++
		r.entries = append(r.entries, e)
		return e
	case c.Decision == run.EgressAllowed:
		e.sum = r.sumOf(c)
	}
	r.omitted++
	return e
}

// sumOf is the line in which the bytes of a rule's unlisted connections are.
func (r *record) sumOf(c run.Connection) *run.Connection {
	rule := c.Rule
	for _, s := range r.sums {
		if s.Rule == rule {
			return s
		}
	}
	if len(r.sums) == maxSums-1 {
		rule = ""
	} else if len(r.sums) == maxSums {
		return r.sums[maxSums-1]
	}
	s := &run.Connection{At: c.At, Name: "others", Rule: rule, Decision: run.EgressAllowed, Reason: "the sum of connections that are not listed"}
	r.sums = append(r.sums, s)
	return s
}

// refused notes what nobody was connected for.
func (r *record) refused(name string, port uint16, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(run.Connection{Name: name, Port: int64(port), Decision: run.EgressRefused, Reason: reason})
	r.countDenied(name, port, reason)
}

func (r *record) countDenied(name string, port uint16, reason string) {
	kind := run.EgressDenied{Name: name, Port: int64(port), Reason: reason}
	i, known := r.kinds[kind]
	if !known && len(r.kinds) >= maxKinds {
		kind = run.EgressDenied{Name: "others", Reason: "too many to name"}
		i, known = r.kinds[kind]
	}
	if !known {
		if r.kinds == nil {
			r.kinds = map[run.EgressDenied]int{}
		}
		i = len(r.denied)
		r.kinds[kind] = i
		r.denied = append(r.denied, kind)
	}
	r.denied[i].Count++
}

func (r *record) failed(t target, rule, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(run.Connection{Name: t.host, Port: int64(t.port), Rule: rule, Decision: run.EgressFailed, Reason: reason})
}

func (r *record) opened(t target, rule, addr string) *entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.add(run.Connection{Name: t.host, Port: int64(t.port), Address: addr, Rule: rule, Decision: run.EgressAllowed})
}

// turned makes a connection that was open a refused one.
func (r *record) turned(e *entry, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.ended || e.line.Reason != "" {
		return
	}
	e.line.Decision, e.line.Reason = run.EgressRefused, reason
	r.countDenied(e.line.Name, uint16(e.line.Port), reason)
}

// reason notes why a connection was cut; the first one counts.
func (r *record) reason(e *entry, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.line.Reason == "" && !e.ended {
		e.line.Reason = reason
	}
}

func (r *record) sent(e *entry, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.counts().SentBytes += int64(n)
	r.out += int64(n)
}

func (r *record) received(e *entry, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.counts().ReceivedBytes += int64(n)
	r.in += int64(n)
}

func (r *record) ended(e *entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !e.ended {
		e.ended = true
		line := e.counts()
		line.Duration = max(time.Since(line.At), 1)
	}
}

// use is what there is until now.
func (r *record) use() run.NetworkUse {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := run.NetworkUse{Omitted: r.omitted, SentBytes: r.out, ReceivedBytes: r.in}
	for _, e := range r.entries {
		u.Connections = append(u.Connections, e.line)
	}
	for _, s := range r.sums {
		u.Connections = append(u.Connections, *s)
	}
	u.Denied = append(u.Denied, r.denied...)
	return u
}
