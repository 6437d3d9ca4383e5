// Package egress connects to servers that a caller chose, and not to what is
// inside. The address is judged when the connection is made, after the name was
// resolved, so that a name which resolves differently the second time gains
// nothing.
package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"github.com/agentdock/agentdock/internal/egress/address"
)

// ErrRefused is in the chain of an error for an address that is not allowed.
var ErrRefused = address.ErrRefused

// Policy says what may be connected to.
type Policy struct {
	// Allow are networks that are allowed although they are not public, such as
	// that of a GitHub Enterprise Server. Metadata addresses can be allowed only
	// by naming a network that is no wider than they are.
	Allow []netip.Prefix
	// Roots, if set, verify servers in place of the system's authorities.
	Roots *x509.CertPool
}

// Check returns an error unless addr may be connected to.
func (p Policy) Check(addr netip.Addr) error { return address.Check(addr, p.Allow) }

// control is called with the address that a socket is about to be connected to.
func (p Policy) control(_ context.Context, _, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("cannot connect to %q: %w", address, ErrRefused)
	}
	return p.Check(ap.Addr())
}

// Transport makes connections under the policy. No proxy is used: a proxy would
// resolve names where the policy does not see it.
func (p Policy) Transport() *http.Transport {
	dialer := &net.Dialer{Timeout: 20 * time.Second, ControlContext: p.control}
	return &http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: p.Roots},
		TLSHandshakeTimeout:    20 * time.Second,
		ResponseHeaderTimeout:  time.Minute,
		IdleConnTimeout:        10 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true, // nothing small may become large
		ForceAttemptHTTP2:      true,
	}
}
