package gvisor

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/lifecycle"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// slowGateway takes its time over Attach, and loses the answer to it and to Set.
type slowGateway struct {
	execenv.Gateway
	called, goOn chan struct{}

	mu    sync.Mutex
	holds run.Network
}

var errLost = errors.New("the answer was lost")

func (g *slowGateway) Attach(_ context.Context, _ string, n run.Network) (*os.File, error) {
	g.called <- struct{}{}
	<-g.goOn
	return nil, g.Set(context.Background(), "", n)
}

func (g *slowGateway) Set(_ context.Context, _ string, n run.Network) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.holds = n
	return fault.Wrap(fault.Unavailable, errLost, "the gateway did not answer")
}

// boxOf is a sandbox that runs, as far as its network can tell.
func boxOf(t *testing.T, g execenv.Gateway) *box {
	t.Helper()
	spec := networkSpec("box")
	b := &box{env: &Environment{cfg: Config{Gateway: g}, log: slog.New(slog.DiscardHandler)}}
	b.Sandbox = lifecycle.NewSandbox(spec, func() {})
	b.network.init(spec.Network)
	if err := b.Start(); err != nil {
		t.Fatal(err)
	}
	return b
}

// A stream that is being opened, with what was allowed when that began, must not
// undo a change that was made meanwhile; neither must one that is opened after a
// change whose answer was lost.
func TestAStreamDoesNotBringBackWhatWasTakenAway(t *testing.T) {
	g := &slowGateway{called: make(chan struct{}), goOn: make(chan struct{})}
	b := boxOf(t, g)
	narrow := run.Network{Mode: run.NetworkAllow, Allow: []string{"narrow.example"}}
	attached, set := make(chan struct{}), make(chan struct{})
	begin := func() {
		defer close(attached)
		_, _ = b.startNetwork(context.Background())
	}
	go begin()
	<-g.called
	go func() {
		defer close(set)
		_ = b.SetNetwork(context.Background(), narrow)
	}()
	// It has to wait for the other, and gets as long for not doing so.
	select {
	case <-set:
	case <-time.After(100 * time.Millisecond):
	}
	close(g.goOn)
	<-attached
	<-set
	if !g.holds.Equal(narrow) {
		t.Errorf("the gateway allows %v", g.holds.Allow)
	}
	attached = make(chan struct{})
	go begin()
	<-g.called
	<-attached
	if !g.holds.Equal(narrow) {
		t.Errorf("with the next stream the gateway allows %v", g.holds.Allow)
	}
}

// A program that kills its helper again and again is given the next one later and
// later.
func TestAHelperThatDoesNotLastIsReplacedLater(t *testing.T) {
	var pause time.Duration
	for _, step := range []struct{ lived, want time.Duration }{
		{steady, firstPause},
		{0, 2 * firstPause},
		{steady - 1, 4 * firstPause},
		{steady, firstPause},
		{0, 2 * firstPause},
	} {
		if pause = nextPause(pause, step.lived); pause != step.want {
			t.Errorf("after a helper that lived for %s the pause is %s, want %s", step.lived, pause, step.want)
		}
	}
	for range 20 {
		pause = nextPause(pause, 0)
	}
	if pause != longestPause {
		t.Errorf("the pause grows to %s", pause)
	}
}
