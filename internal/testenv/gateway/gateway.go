// Package gateway starts the way out of sandboxes for tests: the real gateway, in
// this process, with a name server that knows nobody.
package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/agentdock/agentdock/internal/egress"
	"github.com/agentdock/agentdock/internal/egress/policy"
	"github.com/agentdock/agentdock/internal/peersocket"
)

// nowhere resolves no name.
type nowhere struct{}

func (nowhere) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return nil, errors.New("no such host")
}

// Start serves at a socket until stop.
func Start(t testing.TB, socket string) (stop func()) {
	t.Helper()
	file, err := policy.Parse(strings.NewReader(""))
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	l, err := peersocket.Listen(socket, nil, "", quiet)
	if err != nil {
		t.Fatal(err)
	}
	g := egress.New(egress.Config{File: file, Resolver: nowhere{}, Log: quiet})
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	return func() {
		l.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
		g.Close()
	}
}
