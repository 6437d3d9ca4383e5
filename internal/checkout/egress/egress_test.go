package egress

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
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
		if err := (Policy{}).Check(netip.MustParseAddr(text)); (err == nil) != allowed {
			t.Errorf("%s: %v, want it allowed: %v", text, err, allowed)
		} else if err != nil && !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v is not a refusal", text, err)
		}
	}
	if (Policy{}).Check(netip.Addr{}) == nil {
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
		p := Policy{Allow: []netip.Prefix{netip.MustParsePrefix(tc.network)}}
		if err := p.Check(netip.MustParseAddr(tc.addr)); (err == nil) != tc.allowed {
			t.Errorf("with %s allowed, %s: %v, want it allowed: %v", tc.network, tc.addr, err, tc.allowed)
		}
	}
}

// What counts is where a name leads, in whatever way it is written.
func TestConnectionsAreRefusedWhenTheyAreMade(t *testing.T) {
	visits := 0
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { visits++ }))
	defer server.Close()
	port := server.URL[strings.LastIndex(server.URL, ":"):]
	get := func(p Policy, host string) error {
		transport := p.Transport()
		defer transport.CloseIdleConnections()
		req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+host+port, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(req)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	for _, host := range []string{"127.0.0.1", "localhost", "0.0.0.0", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]"} {
		if err := get(Policy{}, host); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v, want a refusal", host, err)
		}
	}
	// Forms that a resolver may take for an address or not: either way nobody
	// gets through.
	for _, host := range []string{"2130706433", "0x7f000001", "0177.0.0.1", "127.1"} {
		if err := get(Policy{}, host); err == nil {
			t.Errorf("%s was connected to", host)
		}
	}
	if visits != 0 {
		t.Errorf("%d requests arrived", visits)
	}
	if err := get(Policy{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}, "127.0.0.1"); err != nil || visits != 1 {
		t.Errorf("control: %v, %d requests arrived where it is allowed", err, visits)
	}
}

func TestProxiesOfTheEnvironmentAreNotUsed(t *testing.T) {
	if (Policy{}).Transport().Proxy != nil {
		t.Error("a proxy would connect where the policy does not look")
	}
}
