package policy

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/agentdock/agentdock/internal/egress/address"
)

// defaultPort is what a rule without a port means.
const defaultPort = 443

// Rule is one server, or all below a name, at one port.
type Rule struct {
	// host is in its one spelling. With below, it stands for every name that ends
	// in a dot and it, and not for itself.
	host  string
	below bool
	port  uint16
}

// ParseRule reads "name", "name:port" or "*.name:port". A name is in ASCII, as DNS
// has it (xn--…); an address stands for itself alone.
func ParseRule(text string) (Rule, error) {
	refused := func(why string) (Rule, error) {
		return Rule{}, fmt.Errorf("cannot allow %s: it %s; write NAME, NAME:PORT or *.NAME:PORT", quote(text), why)
	}
	rest, below := strings.CutPrefix(text, "*.")
	host, port, err := address.HostPort(rest, defaultPort)
	if err != nil {
		return refused(err.Error())
	}
	if below {
		if _, literal := address.Literal(host); literal {
			return refused("has nothing below it, because it is an address")
		}
		// Everything below a top-level domain is everybody.
		if !strings.Contains(host, ".") {
			return refused("names all of a top-level domain")
		}
	}
	return Rule{host: host, below: below, port: port}, nil
}

// Match reports whether the rule allows the host, in its one spelling, at a port.
func (r Rule) Match(host string, port uint16) bool {
	if port != r.port {
		return false
	}
	if !r.below {
		return host == r.host
	}
	return strings.HasSuffix(host, "."+r.host)
}

// covers reports whether everything that o allows, r allows too.
func (r Rule) covers(o Rule) bool {
	switch {
	case r.port != o.port:
		return false
	case !o.below:
		return r.Match(o.host, o.port)
	case !r.below:
		return false
	}
	return o.host == r.host || strings.HasSuffix(o.host, "."+r.host)
}

// String is the rule in its one spelling, which ParseRule reads.
func (r Rule) String() string {
	host := r.host
	if r.below {
		host = "*." + host
	}
	return host + ":" + strconv.Itoa(int(r.port))
}

// quote keeps hostile text in messages short and printable.
func quote(text string) string {
	const most = 80
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strconv.QuoteToASCII(text)
}
