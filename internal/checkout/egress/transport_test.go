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
