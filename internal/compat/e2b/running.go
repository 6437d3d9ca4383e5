package e2b

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	pb "github.com/agentdock/agentdock/internal/compat/e2b/processpb"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
)

// Commands have numbers here and names at their sandbox, and a number is part of
// the name: so a command is found by its number in any process, also in one that
// has not started it. What only this process knows is what can be listed.
const (
	plainName    = "e2b-%d"
	terminalName = "e2b-tty-%d"
)

// process is a command that this process has started.
type process struct {
	pid      uint32
	config   *pb.ProcessConfig
	tag      *string
	terminal bool

	mu        sync.Mutex
	followers int
	ended     bool
}

func (p *process) name() string { return commandName(p.pid, p.terminal) }

func commandName(pid uint32, terminal bool) string {
	if terminal {
		return fmt.Sprintf(terminalName, pid)
	}
	return fmt.Sprintf(plainName, pid)
}

// follow notes that somebody learns of the end of the command, until the
// function that it returns is called.
func (p *process) follow() (left func(ended bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.followers++
	return func(ended bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.followers--
		p.ended = p.ended || ended
	}
}

// runs reports whether the command goes on, as far as that is known without
// asking.
func (p *process) runs() (runs, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.ended, p.ended || p.followers > 0
}

// registry remembers commands by sandbox.
type registry struct {
	mu  sync.Mutex
	all map[string]map[uint32]*process
}

// mostListed bounds what is remembered of a sandbox.
const mostListed = 4096

// add gives a command its number.
func (r *registry) add(sandbox string, p *process) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[string]map[uint32]*process{}
	}
	known := r.all[sandbox]
	if known == nil {
		known = map[uint32]*process{}
		r.all[sandbox] = known
	}
	for pid, old := range known {
		if len(known) < mostListed {
			break
		}
		if runs, _ := old.runs(); !runs {
			delete(known, pid)
		}
	}
	if len(known) >= mostListed {
		return fault.New(fault.Exhausted, "the sandbox has %d commands; end some", mostListed)
	}
	for p.pid == 0 || known[p.pid] != nil {
		p.pid = rand.Uint32N(1<<31-1) + 1
	}
	known[p.pid] = p
	return nil
}

func (r *registry) drop(sandbox string, pid uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all[sandbox], pid)
	if len(r.all[sandbox]) == 0 {
		delete(r.all, sandbox)
	}
}

// forget drops everything of a sandbox.
func (r *registry) forget(sandbox string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, sandbox)
}

// find returns the command that a selector names, as far as this process has
// started it.
func (r *registry) find(sandbox string, which *pb.ProcessSelector) *process {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch s := which.GetSelector().(type) {
	case *pb.ProcessSelector_Pid:
		return r.all[sandbox][s.Pid]
	case *pb.ProcessSelector_Tag:
		for _, p := range r.all[sandbox] {
			if p.tag != nil && *p.tag == s.Tag {
				return p
			}
		}
	}
	return nil
}

// list returns the commands of a sandbox, by number.
func (r *registry) list(sandbox string) []*process {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []*process
	for _, p := range r.all[sandbox] {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *process) int { return cmp.Compare(a.pid, b.pid) })
	return all
}

// found is a command that a client has named.
type found struct {
	execenv.Exec
	*process
}

// find attaches to the command that a selector names, running or ended.
func (x *exchange) find(ctx context.Context, r *registry, which *pb.ProcessSelector) (found, error) {
	p := r.find(x.handle.Record.ID, which)
	candidates := []*process{p}
	if p == nil {
		pid := which.GetPid()
		if pid == 0 {
			return found{}, fault.New(fault.NotFound, "there is no such process")
		}
		candidates = []*process{{pid: pid}, {pid: pid, terminal: true}}
	}
	for _, c := range candidates {
		exec, err := x.handle.Attach(ctx, c.name())
		if err == nil {
			return found{exec, c}, nil
		}
		if !fault.Is(err, fault.NotFound) {
			return found{}, err
		}
	}
	if p != nil {
		r.drop(x.handle.Record.ID, p.pid)
	}
	return found{}, fault.New(fault.NotFound, "there is no such process")
}

// probing is how long is waited for the end of a command of which nobody knows
// whether it has ended.
const probing = 100 * time.Millisecond

// findRunning is find for what makes no sense with a command that has ended.
func (x *exchange) findRunning(ctx context.Context, r *registry, which *pb.ProcessSelector) (found, error) {
	c, err := x.find(ctx, r, which)
	if err != nil {
		return found{}, err
	}
	if !c.goesOn(ctx) {
		r.drop(x.handle.Record.ID, c.pid)
		return found{}, fault.New(fault.NotFound, "process %d has ended", c.pid)
	}
	return c, nil
}

func (c found) goesOn(ctx context.Context) bool {
	if runs, known := c.runs(); known {
		return runs
	}
	short, cancel := context.WithTimeout(ctx, probing)
	defer cancel()
	_, err := c.Wait(short)
	return err != nil
}
