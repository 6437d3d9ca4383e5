package lifecycle

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/outlog"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// keepEnded is how many ended commands of a sandbox stay readable.
const keepEnded = 64

// Begin returns the command with that ID, and has begin begin it if there is none.
// Begin takes it to Follow, Finish or Fail before it returns.
func (s *Sandbox) Begin(ctx context.Context, spec execenv.ExecSpec, begin func(*Command)) (execenv.Exec, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "the command was given up before it started")
	}
	c, created, err := s.register(spec)
	if err != nil {
		return nil, err
	}
	if created {
		go func() {
			s.starts.RLock()
			defer s.starts.RUnlock()
			defer close(c.begun)
			c.startTime = time.Now()
			begin(c)
		}()
	}
	select {
	case <-c.begun:
	case <-ctx.Done():
		return nil, fault.Wrap(fault.Unavailable, ctx.Err(), "waiting for the command to start was given up")
	}
	if c.startErr != nil {
		return nil, c.startErr
	}
	return c, nil
}

// register returns the command with that ID, and whether it is a new one.
func (s *Sandbox) register(spec execenv.ExecSpec) (c *Command, created bool, err error) {
	if err := s.Alive(); err != nil {
		return nil, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if spec.ID == "" {
		spec.ID = strings.ToLower(rand.Text())
	}
	if c, ok := s.commands[spec.ID]; ok {
		return c, false, nil
	}
	limits := s.Spec.Limits.Clamp(run.Limits{OutputBytes: spec.OutputBytes, WallClock: spec.Timeout})
	c = &Command{
		sandbox: s, Spec: spec, Limit: limits.WallClock, Log: outlog.New(limits.OutputBytes),
		begun: make(chan struct{}), ended: make(chan struct{}), done: make(chan struct{}),
	}
	s.commands[spec.ID] = c
	return c, true, nil
}

// AttachExec implements execenv.Sandbox.
func (s *Sandbox) AttachExec(ctx context.Context, id string) (execenv.Exec, error) {
	if err := s.known(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	c, ok := s.commands[id]
	s.mu.Unlock()
	if ok {
		select {
		case <-c.begun:
		case <-ctx.Done():
			return nil, fault.Wrap(fault.Unavailable, ctx.Err(), "attaching to command %s was given up", id)
		}
		if c.startErr == nil {
			return c, nil
		}
	}
	return nil, fault.New(fault.NotFound, "command %s does not exist in sandbox %s", id, s.Spec.ID)
}

// Execs implements execenv.Sandbox.
func (s *Sandbox) Execs(context.Context) ([]execenv.ExecInfo, error) {
	if err := s.known(); err != nil {
		return nil, err
	}
	var infos []execenv.ExecInfo
	for _, c := range s.all() {
		select {
		case <-c.begun:
		default:
			continue // whether it will be one is not known yet
		}
		if c.startErr == nil {
			infos = append(infos, c.info())
		}
	}
	slices.SortStableFunc(infos, func(a, b execenv.ExecInfo) int { return a.StartedAt.Compare(b.StartedAt) })
	return infos, nil
}

// AwaitCommands returns when every command has ended. The sandbox must have.
func (s *Sandbox) AwaitCommands() {
	for _, c := range s.all() {
		<-c.done
	}
}

func (s *Sandbox) all() []*Command {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*Command, 0, len(s.commands))
	for _, c := range s.commands {
		all = append(all, c)
	}
	return all
}

// retire notes that a command has ended and forgets the oldest ended ones.
func (s *Sandbox) retire(c *Command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired = append(s.retired, c.Spec.ID)
	for len(s.retired) > keepEnded {
		delete(s.commands, s.retired[0])
		s.retired = s.retired[1:]
	}
}

// drop forgets a command that was never started.
func (s *Sandbox) drop(c *Command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.commands, c.Spec.ID)
}
