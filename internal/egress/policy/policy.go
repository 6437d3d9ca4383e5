// Package policy says what a sandbox may reach outside. It is pure: it reads what
// callers and operators wrote, and answers questions about names and ports.
package policy

import (
	"errors"
	"fmt"
	"slices"

	"github.com/agentdock/agentdock/internal/run"
)

const (
	maxRules = 256
	// MaxConnections is the most that may be open at once from one sandbox, and
	// DefaultConnections how many are if nothing was said.
	MaxConnections     = 1024
	DefaultConnections = 64
	// DefaultBytes is what all connections of a sandbox may carry together if
	// nothing was said.
	DefaultBytes = 16 * run.GiB
	// minRate is below what a connection can live with.
	minRate = 1024
)

// Policy is a network that was checked.
type Policy struct {
	Rules          []Rule
	MaxBytes       int64
	MaxConnections int64
	// BytesPerSecond is 0 where only the host bounds it.
	BytesPerSecond int64
}

// Compile checks what was asked for. Nothing is left out in silence: one entry
// that cannot be is an error.
func Compile(n run.Network) (Policy, error) {
	switch n.Mode {
	case run.NetworkNone, "":
		if !n.Equal(run.Network{Mode: n.Mode}) {
			return Policy{}, errors.New(`the network has settings and its mode is none; say "allow", or leave them out`)
		}
		return Policy{}, nil
	case run.NetworkAllow:
	default:
		return Policy{}, fmt.Errorf(`network mode %s is neither "none" nor "allow"`, quote(string(n.Mode)))
	}
	switch {
	case len(n.Allow) == 0:
		return Policy{}, errors.New("the network is to be open and nothing is allowed; name servers, or leave it out")
	case len(n.Allow) > maxRules:
		return Policy{}, fmt.Errorf("%d allowed servers are more than %d", len(n.Allow), maxRules)
	case n.MaxBytes < 0 || n.MaxConnections < 0 || n.BytesPerSecond < 0:
		return Policy{}, errors.New("a limit of the network is negative")
	case n.BytesPerSecond > 0 && n.BytesPerSecond < minRate:
		return Policy{}, fmt.Errorf("%d bytes a second are less than %d", n.BytesPerSecond, minRate)
	case n.MaxConnections > MaxConnections:
		return Policy{}, fmt.Errorf("%d connections at once are more than %d", n.MaxConnections, MaxConnections)
	}
	p := Policy{MaxBytes: n.MaxBytes, MaxConnections: n.MaxConnections, BytesPerSecond: n.BytesPerSecond}
	if p.MaxBytes == 0 {
		p.MaxBytes = DefaultBytes
	}
	if p.MaxConnections == 0 {
		p.MaxConnections = DefaultConnections
	}
	for _, text := range n.Allow {
		r, err := ParseRule(text)
		if err != nil {
			return Policy{}, err
		}
		if !slices.Contains(p.Rules, r) {
			p.Rules = append(p.Rules, r)
		}
	}
	return p, nil
}

// Open reports whether anything is allowed.
func (p Policy) Open() bool { return len(p.Rules) > 0 }

// Allows returns the rule that allows a host, in its one spelling, at a port.
func (p Policy) Allows(host string, port uint16) (Rule, bool) {
	for _, r := range p.Rules {
		if r.Match(host, port) {
			return r, true
		}
	}
	return Rule{}, false
}

// Within says what of p a ceiling does not cover, as an error; limits that are
// above the ceiling's are one too. Nothing is lowered in silence.
func (p Policy) Within(ceiling Policy) error {
	if !p.Open() {
		return nil
	}
	for _, r := range p.Rules {
		if !slices.ContainsFunc(ceiling.Rules, func(c Rule) bool { return c.covers(r) }) {
			return fmt.Errorf("%s may not be reached", r)
		}
	}
	switch {
	case p.MaxBytes > ceiling.MaxBytes:
		return fmt.Errorf("%d bytes are more than the %d that are allowed", p.MaxBytes, ceiling.MaxBytes)
	case p.MaxConnections > ceiling.MaxConnections:
		return fmt.Errorf("%d connections at once are more than the %d that are allowed", p.MaxConnections, ceiling.MaxConnections)
	case ceiling.BytesPerSecond > 0 && (p.BytesPerSecond == 0 || p.BytesPerSecond > ceiling.BytesPerSecond):
		return fmt.Errorf("%d bytes a second are allowed; ask for no more", ceiling.BytesPerSecond)
	}
	return nil
}

// Intersect is what both allow: what is left of p when its ceiling was lowered
// after it was admitted.
func (p Policy) Intersect(ceiling Policy) Policy {
	out := Policy{
		MaxBytes: min(p.MaxBytes, ceiling.MaxBytes), MaxConnections: min(p.MaxConnections, ceiling.MaxConnections),
		BytesPerSecond: least(p.BytesPerSecond, ceiling.BytesPerSecond),
	}
	add := func(r Rule) {
		if !slices.Contains(out.Rules, r) {
			out.Rules = append(out.Rules, r)
		}
	}
	for _, r := range p.Rules {
		for _, c := range ceiling.Rules {
			switch {
			case c.covers(r):
				add(r)
			case r.covers(c):
				add(c)
			}
		}
	}
	return out
}

// least is the smaller of two limits, of which 0 is none.
func least(a, b int64) int64 {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}
