package execd

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// stub is an environment that keeps sandboxes in a map. Commands run until
// they are killed.
type stub struct {
	execenv.Environment
	mu        sync.Mutex
	boxes     map[string]*stubBox
	destroyed map[string]int
	fail      map[string]bool // Destroy of it fails
	away      bool            // Destroy reaches nothing
	createErr error
	weak      bool // enforces no limit of processor, memory and processes
	onCreate  func(ctx context.Context)
	extended  func(lifetime time.Duration) // called when it was
}

type stubBox struct {
	execenv.Sandbox
	s     *stub
	spec  execenv.Spec
	at    time.Time
	state execenv.State // StateRunning if empty
	until time.Time
	execs map[string]*stubExec
}

type stubExec struct {
	execenv.Exec
	id    string
	once  sync.Once
	ended chan struct{}
}

func newStub() *stub {
	return &stub{boxes: map[string]*stubBox{}, destroyed: map[string]int{}, fail: map[string]bool{}}
}

func (s *stub) Capabilities() execenv.Capabilities {
	return execenv.Capabilities{
		Name: "stub", Isolation: execenv.IsolationNone,
		Enforces: execenv.Enforces{CPU: !s.weak, Memory: !s.weak, PIDs: !s.weak, Disk: true, Inodes: true, Output: true, WallClock: true},
	}
}

func (s *stub) Create(ctx context.Context, spec execenv.Spec) (execenv.Sandbox, error) {
	if s.onCreate != nil {
		s.onCreate(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.createErr != nil {
		return nil, s.createErr
	}
	b := s.boxes[spec.ID]
	if b == nil {
		b = &stubBox{s: s, spec: spec, at: time.Now(), execs: map[string]*stubExec{}}
		s.boxes[spec.ID] = b
	}
	if !b.spec.Equal(spec) {
		return nil, fault.New(fault.Conflict, "exists")
	}
	return b, nil
}

func (s *stub) Attach(_ context.Context, id string) (execenv.Sandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.boxes[id]; b != nil {
		return b, nil
	}
	return nil, fault.New(fault.NotFound, "no %s", id)
}

func (s *stub) List(context.Context) ([]execenv.Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var infos []execenv.Info
	for _, id := range slices.Sorted(maps.Keys(s.boxes)) {
		infos = append(infos, s.boxes[id].info())
	}
	return infos, nil
}

func (s *stub) Destroy(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.destroyed[id]++
	if s.away {
		return fault.New(fault.Unavailable, "away")
	}
	if s.fail[id] {
		return fault.New(fault.Internal, "stuck")
	}
	if b := s.boxes[id]; b != nil {
		for _, e := range b.execs {
			e.once.Do(func() { close(e.ended) })
		}
		delete(s.boxes, id)
	}
	return nil
}

func (s *stub) left() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.boxes))
}

func (s *stub) has(id string) bool { return slices.Contains(s.left(), id) }

func (s *stub) setFail(id string, fails bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail[id] = fails
}

func (b *stubBox) ID() string { return b.spec.ID }

func (b *stubBox) info() execenv.Info {
	state := b.state
	if state == "" {
		state = execenv.StateRunning
	}
	return execenv.Info{ID: b.spec.ID, State: state, Limits: b.spec.Limits, CreatedAt: b.at, ExpiresAt: b.until}
}

func (b *stubBox) Extend(_ context.Context, lifetime time.Duration) error {
	b.s.mu.Lock()
	b.until = time.Now().Add(lifetime)
	b.s.mu.Unlock()
	b.s.extended(lifetime)
	return nil
}

func (b *stubBox) Info(context.Context) (execenv.Info, error) {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	return b.info(), nil
}

func (b *stubBox) Exec(_ context.Context, spec execenv.ExecSpec) (execenv.Exec, error) {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	if spec.ID == "" {
		spec.ID = fmt.Sprintf("e%d", len(b.execs))
	}
	if e := b.execs[spec.ID]; e != nil {
		return e, nil
	}
	e := &stubExec{id: spec.ID, ended: make(chan struct{})}
	b.execs[spec.ID] = e
	return e, nil
}

func (b *stubBox) AttachExec(_ context.Context, id string) (execenv.Exec, error) {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	if e := b.execs[id]; e != nil {
		return e, nil
	}
	return nil, fault.New(fault.NotFound, "no %s", id)
}

func (e *stubExec) ID() string { return e.id }

func (e *stubExec) Kill(context.Context) error {
	e.once.Do(func() { close(e.ended) })
	return nil
}

func (e *stubExec) Wait(ctx context.Context) (execenv.Result, error) {
	select {
	case <-e.ended:
		return execenv.Result{Outcome: run.Outcome{Kind: run.Cancelled}}, nil
	case <-ctx.Done():
		return execenv.Result{}, ctx.Err()
	}
}
