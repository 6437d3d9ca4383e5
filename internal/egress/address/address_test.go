package address

import (
	"errors"
	"net/netip"
	"testing"
)

func TestAddresses(t *testing.T) {
	for text, allowed := range map[string]bool{
		"140.82.121.4": true, "1.1.1.1": true, "2606:50c0:8000::154": true, "172.32.0.1": true, "100.128.0.1": true,
		"127.0.0.1": false, "127.9.9.9": false, "0.0.0.0": false, "0.1.2.3": false, "10.0.0.1": false,
		"172.16.0.1": false, "172.31.255.255": false, "192.168.1.1": false, "100.64.0.1": false,
		"169.254.169.254": false, "169.254.170.2": false, "168.63.129.16": false, "100.100.100.200": false,
		"192.0.0.192": false, "192.88.99.1": false, "198.18.0.1": false, "224.0.0.1": false, "255.255.255.255": false,
		"::": false, "::1": false, "::7f00:1": false, "::ffff:127.0.0.1": false, "::ffff:169.254.169.254": false,
		"::ffff:140.82.121.4": true, // the same as without
		"::ffff:0:127.0.0.1":  false, "64:ff9b::a9fe:a9fe": false, "64:ff9b:1::a00:1": false, "2002:7f00:1::": false, "2001:0:1::": false,
		"fc00::1": false, "fd00:ec2::254": false, "fe80::1": false, "fec0::1": false, "ff02::1": false, "fe80::1%eth0": false,
	} {
		if err := Check(netip.MustParseAddr(text), nil); (err == nil) != allowed {
			t.Errorf("%s: %v, want it allowed: %v", text, err, allowed)
		} else if err != nil && !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v is not a refusal", text, err)
		}
	}
	if Check(netip.Addr{}, nil) == nil {
		t.Error("no address at all is allowed")
	}
}

func TestAllowedNetworks(t *testing.T) {
	for _, tc := range []struct {
		network, addr string
		allowed       bool
	}{
		{"10.1.0.0/16", "10.1.2.3", true},
		{"10.1.0.0/16", "::ffff:10.1.2.3", true},
		{"10.1.0.0/16", "10.2.0.1", false},
		{"fd12::/16", "fd12::1", true},
		// Metadata must be meant to be allowed.
		{"0.0.0.0/0", "10.1.2.3", true},
		{"0.0.0.0/0", "169.254.169.254", false},
		{"169.254.0.0/16", "169.254.169.254", true},
		{"100.64.0.0/10", "100.64.0.1", true},
		{"100.64.0.0/10", "100.100.100.200", false},
		{"::/0", "fd00:ec2::254", false},
		{"fd00:ec2::254/128", "fd00:ec2::254", true},
	} {
		allowed := []netip.Prefix{netip.MustParsePrefix(tc.network)}
		if err := Check(netip.MustParseAddr(tc.addr), allowed); (err == nil) != tc.allowed {
			t.Errorf("with %s allowed, %s: %v, want it allowed: %v", tc.network, tc.addr, err, tc.allowed)
		}
	}
}
