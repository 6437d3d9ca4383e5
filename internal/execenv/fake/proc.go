package fake

import (
	"io"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/run"
)

// Program is what a process runs; what it returns is the exit code. It must
// do its waiting and its writing through p: that is where a process that was
// killed ends. One that waits elsewhere must watch p.Done.
type Program func(p *Proc) int

// Proc is a process. Its methods are called by its program only.
type Proc struct {
	Args []string
	Env  []string
	// Dir is the current directory.
	Dir            string
	Stdin          io.Reader
	Stdout, Stderr io.Writer

	box     *box
	command *command
	pid     int
	parent  *Proc

	// Guarded by box.mu.
	dead     chan struct{} // closed when the process is
	isDead   bool
	stopped  bool
	memory   int64
	ignored  map[syscall.Signal]bool
	notified map[syscall.Signal]bool
	arrived  []syscall.Signal // of those notified
	blocked  []syscall.Signal // came while stopped
}

// killed unwinds the program of a dead process.
type killed struct{}

// spawn starts a process. box.mu is held.
func (b *box) spawn(c *command, parent *Proc, program Program, args, env []string, dir string) (*Proc, error) {
	if int64(len(b.procs)) >= b.spec.Limits.PIDs {
		c.touch(run.LimitPIDs)
		return nil, syscall.EAGAIN
	}
	b.lastPID++
	p := &Proc{
		Args: slices.Clone(args), Env: slices.Clone(env), Dir: dir,
		box: b, command: c, pid: b.lastPID, parent: parent, dead: make(chan struct{}),
		ignored: map[syscall.Signal]bool{}, notified: map[syscall.Signal]bool{},
	}
	stderr := execenv.Stderr
	if c.tty != nil {
		stderr = execenv.Stdout
	}
	p.Stdout, p.Stderr = stream{p, execenv.Stdout}, stream{p, stderr}
	p.Stdin = strings.NewReader("")
	if parent == nil {
		p.Stdin = stdin{p}
	} else {
		p.ignored = maps.Clone(parent.ignored)
	}
	b.procs[p.pid] = p
	go p.run(program)
	return p, nil
}

func (p *Proc) run(program Program) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(killed); !ok {
				panic(r)
			}
		}
	}()
	code := program(p)
	p.enter()
	defer p.box.mu.Unlock()
	p.finish(run.ExitedWith(code&0xff, "exit code of the first process"))
}

// finish is the end of a process by itself or by a signal. box.mu is held.
func (p *Proc) finish(o run.Outcome) {
	if p.isDead {
		return
	}
	p.die()
	if p.parent == nil {
		p.command.end(o)
	}
	p.box.wake()
}

// die takes a process away. box.mu is held.
func (p *Proc) die() {
	if p.isDead {
		return
	}
	p.isDead = true
	close(p.dead)
	delete(p.box.procs, p.pid)
	p.box.memory -= p.memory
}

// enter takes the lock for a process that may go on: one that is stopped
// waits, one that is dead unwinds.
func (p *Proc) enter() {
	p.box.mu.Lock()
	defer func() {
		if p.isDead {
			p.box.mu.Unlock()
		}
	}()
	p.await(func() bool { return !p.stopped && !p.box.paused })
}

// await waits, with box.mu held, until cond holds. It unwinds a dead process
// with the lock held: callers unlock by defer.
func (p *Proc) await(cond func() bool) {
	for !p.isDead && !cond() {
		changed := p.box.changed
		p.box.mu.Unlock()
		select {
		case <-changed:
		case <-p.dead:
		}
		p.box.mu.Lock()
	}
	if p.isDead {
		panic(killed{})
	}
}

// signal delivers a signal from outside or from the process itself. box.mu is
// held.
func (p *Proc) signal(sig syscall.Signal) {
	if p.isDead {
		return
	}
	switch {
	case sig == syscall.SIGKILL:
		p.finish(run.SignalledBy(sig, "signal that ended the first process"))
		return
	case sig == syscall.SIGSTOP:
		p.stopped = true
	case sig == syscall.SIGCONT:
		p.stopped = false
		for _, s := range p.blocked {
			p.signal(s)
		}
		p.blocked = nil
	case p.stopped:
		p.blocked = append(p.blocked, sig)
	case p.notified[sig]:
		p.arrived = append(p.arrived, sig)
	case p.ignored[sig]:
	case sig == syscall.SIGTSTP, sig == syscall.SIGTTIN, sig == syscall.SIGTTOU:
		p.stopped = true
	case sig == 0, sig == syscall.SIGCHLD, sig == syscall.SIGURG, sig == syscall.SIGWINCH:
	default:
		p.finish(run.SignalledBy(sig, "signal that ended the first process"))
		return
	}
	p.box.wake()
}

// Done is closed when the process is dead.
func (p *Proc) Done() <-chan struct{} { return p.dead }

// Getenv returns a variable of the process.
func (p *Proc) Getenv(name string) string {
	for _, kv := range p.Env {
		if k, v, _ := strings.Cut(kv, "="); k == name {
			return v
		}
	}
	return ""
}

// Raise sends a signal to the process itself.
func (p *Proc) Raise(sig syscall.Signal) {
	p.enter()
	defer p.box.mu.Unlock()
	p.signal(sig)
	p.await(func() bool { return !p.stopped })
}

// Ignore makes signals have no effect, on the process and its children.
func (p *Proc) Ignore(sigs ...syscall.Signal) {
	p.enter()
	defer p.box.mu.Unlock()
	for _, s := range sigs {
		p.ignored[s] = true
	}
}

// Notify makes signals arrive at NextSignal.
func (p *Proc) Notify(sigs ...syscall.Signal) {
	p.enter()
	defer p.box.mu.Unlock()
	for _, s := range sigs {
		p.notified[s] = true
	}
}

// NextSignal waits for a signal that Notify named.
func (p *Proc) NextSignal() syscall.Signal {
	p.enter()
	defer p.box.mu.Unlock()
	p.await(func() bool { return len(p.arrived) > 0 && !p.stopped })
	sig := p.arrived[0]
	p.arrived = p.arrived[1:]
	return sig
}

// Sleep waits.
func (p *Proc) Sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.dead:
	}
	p.enter()
	p.box.mu.Unlock()
}

// Pause waits until a signal ends the process.
func (p *Proc) Pause() {
	<-p.dead
	panic(killed{})
}

// Start starts a child that runs program in the same command. Nothing a child
// does takes it out of the command's tree.
func (p *Proc) Start(program Program, args ...string) error {
	p.enter()
	defer p.box.mu.Unlock()
	_, err := p.box.spawn(p.command, p, program, args, p.Env, p.Dir)
	return err
}

// Alloc takes memory until the process ends. Over the sandbox's limit the
// whole sandbox ends.
func (p *Proc) Alloc(n int64) {
	p.enter()
	defer p.box.mu.Unlock()
	b := p.box
	p.memory += n
	b.memory += n
	b.peak = max(b.peak, min(b.memory, b.spec.Limits.MemoryBytes))
	if b.memory > b.spec.Limits.MemoryBytes {
		b.endLocked(run.Outcome{Kind: run.OutOfMemory, Evidence: "memory limit of the sandbox", LimitsHit: []run.Limit{run.LimitMemory}})
		p.await(func() bool { return true })
	}
}

// Processes lists what runs in the sandbox, each as its arguments.
func (p *Proc) Processes() map[int][]string {
	p.enter()
	defer p.box.mu.Unlock()
	all := map[int][]string{}
	for pid, other := range p.box.procs {
		all[pid] = slices.Clone(other.Args)
	}
	return all
}

// WindowSize is the terminal's size; false without one.
func (p *Proc) WindowSize() (execenv.WindowSize, bool) {
	p.enter()
	defer p.box.mu.Unlock()
	if p.command.tty == nil {
		return execenv.WindowSize{}, false
	}
	return *p.command.tty, true
}

// stream writes to the command's log.
type stream struct {
	p  *Proc
	to execenv.Stream
}

func (s stream) Write(b []byte) (int, error) {
	s.p.enter()
	defer s.p.box.mu.Unlock()
	s.p.command.log.Append(s.to, b)
	if s.p.command.log.Truncated() {
		s.p.command.touch(run.LimitOutput)
	}
	return len(b), nil
}

// stdin reads what WriteStdin wrote.
type stdin struct{ p *Proc }

func (s stdin) Read(b []byte) (int, error) {
	s.p.enter()
	defer s.p.box.mu.Unlock()
	c := s.p.command
	s.p.await(func() bool { return !s.p.stopped && (len(c.input) > 0 || c.inputClosed) })
	if len(c.input) == 0 {
		return 0, io.EOF
	}
	n := copy(b, c.input)
	c.input = c.input[n:]
	s.p.box.wake()
	return n, nil
}
