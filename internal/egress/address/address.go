// Package address says which servers outside may be connected to at all: how
// their names are spelled, and that an address is public.
package address

import (
	"errors"
	"fmt"
	"net/netip"
)

// ErrRefused is in the chain of an error for an address that is not allowed.
var ErrRefused = errors.New("the address is private, local or reserved")

// reserved is what IANA's registries for special purposes do not give to public
// servers, and the addresses through which others can be reached by embedding.
var reserved = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
	"192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15",
	"198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
	"168.63.129.16/32", // Azure's host service, in the middle of public space
	"::/96",            // unspecified, loopback, IPv4-compatible
	"::ffff:0:0/96",    // IPv4-mapped, where it was not unmapped
	"::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
	"5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
)

// metadata answers with credentials on clouds. It takes more than allowing
// 10.0.0.0/8, or everything, to reach it.
var metadata = prefixes("169.254.0.0/16", "168.63.129.16/32", "100.100.100.200/32", "192.0.0.192/32", "fd00:ec2::254/128", "fd20:ce::254/128")

func prefixes(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, t := range texts {
		list[i] = netip.MustParsePrefix(t)
	}
	return list
}

// Check returns an error unless addr is public or in one of the networks that an
// operator allows. Metadata addresses can be allowed only by naming a network
// that is no wider than they are.
func Check(addr netip.Addr, allowed []netip.Prefix) error {
	addr = addr.Unmap().WithZone("")
	for _, a := range allowed {
		if a.Contains(addr) && !wider(a, addr) {
			return nil
		}
	}
	if !addr.IsValid() {
		return fmt.Errorf("cannot connect: %w", ErrRefused)
	}
	for _, r := range reserved {
		if r.Contains(addr) {
			return fmt.Errorf("cannot connect to %s: %w", addr, ErrRefused)
		}
	}
	return nil
}

// wider reports whether network a holds more than the metadata network that
// addr is in.
func wider(a netip.Prefix, addr netip.Addr) bool {
	for _, m := range metadata {
		if m.Contains(addr) {
			return a.Bits() < m.Bits()
		}
	}
	return false
}
