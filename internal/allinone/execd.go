package allinone

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/agentdock/agentdock/internal/execrpc"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/localexecd"
	"github.com/agentdock/agentdock/internal/service"
)

// execd is the execution service of this platform. One that dies is replaced;
// what ran in it is lost, and the worker puts that on record.
type execd struct {
	cfg     Config
	mu      sync.Mutex
	current *localexecd.Service
}

func newExecd(cfg Config) *execd { return &execd{cfg: cfg} }

func (e *execd) part() *service.Part {
	return service.New("the execution service", e.run)
}

// again is how long a service that died stays away at least: one that dies at
// once must not be started in a circle.
const again = time.Second

func (e *execd) run(ctx context.Context, ready func()) error {
	for starts := 0; ; starts++ {
		began := time.Now()
		s, err := e.start(ctx)
		if err != nil {
			return err
		}
		ready()
		select {
		case <-ctx.Done():
			e.set(nil)
			return s.Stop()
		case <-s.Done():
		}
		e.set(nil)
		e.cfg.Log.Error("the execution service has died; starting another", "reason", s.LastWords())
		if err := s.Stop(); err != nil {
			e.cfg.Log.Error("cannot remove what the execution service left", "error", err)
		}
		if time.Since(began) > time.Minute {
			starts = 0
		}
		if starts >= 5 {
			return fmt.Errorf("it dies again and again: %s", s.LastWords())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(again):
		}
	}
}

func (e *execd) start(ctx context.Context) (*localexecd.Service, error) {
	told := e.cfg.Settings
	cfg := localexecd.Config{ImageDir: e.cfg.ImageDir, Runtime: told.Runtime.Runtime, AuthMode: told.Mode}
	ended := e.cfg.Phase("starting the execution service")
	defer ended()
	if err := localexecd.Sweep(ctx, cfg); err != nil {
		e.cfg.Log.Warn("an earlier execution service has left something", "error", err)
	}
	s, err := localexecd.Start(ctx, cfg)
	if err != nil {
		return nil, err
	}
	e.set(s)
	return s, nil
}

func (e *execd) set(s *localexecd.Service) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.current = s
}

func (e *execd) dial(ctx context.Context) (*execrpc.Client, error) {
	e.mu.Lock()
	s := e.current
	e.mu.Unlock()
	if s == nil {
		return nil, fault.New(fault.Unavailable, "the execution service is not running")
	}
	return execrpc.DialUnix(ctx, s.Socket())
}

// count is how many sandboxes there are.
func (e *execd) count(ctx context.Context) (int, error) {
	c, err := e.dial(ctx)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	infos, err := c.List(ctx)
	return len(infos), err
}
