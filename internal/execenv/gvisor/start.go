package gvisor

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/gvisor/answer"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/guest"
	"github.com/agentdock/agentdock/internal/run"
)

// area is a part of the sandbox's cgroup; guest.Init makes both.
type area string

const (
	// programs carries the process limit.
	programs area = "x"
	// tools is for our helper, which must work when the limit is reached.
	tools area = "t"
)

// process is a started first process with the group of everything it starts.
type process struct {
	box  *box
	pid  int32
	slot int
	area area
	// left is closed once init has been told to leave its slot, leaveErr says
	// whether it did.
	left     chan struct{}
	leaveErr error
	// What was counted for its slot before it, and when nothing was left of it.
	before, after answer.Refusals

	slotMu   sync.Mutex // held while the slot's group is killed
	released bool       // whether the slot was given back
}

// errNotStarted is a program that the sandbox's kernel could not start.
type errNotStarted struct{ reason string }

func (e *errNotStarted) Error() string { return e.reason }

// errLostAtStart is a sandbox that went away when the program may have run already.
type errLostAtStart struct{ cause error }

func (e *errLostAtStart) Error() string { return "the sandbox went away: " + e.cause.Error() }
func (e *errLostAtStart) Unwrap() error { return e.cause }

// launch says what to start.
type launch struct {
	area area
	argv []string
	env  []string
	dir  string
	// files become descriptors 0, 1, 2 … of the process.
	files []*os.File
	tty   bool
}

// start starts a process, whatever bytes its command is made of.
func (b *box) start(l launch) (*process, error) {
	if l.isText() {
		return b.startText(l)
	}
	return b.startBytes(l)
}

// isText reports whether gVisor's control connection, which speaks JSON, can
// carry the command.
func (l launch) isText() bool {
	for _, list := range [][]string{l.argv, l.env, {l.dir}} {
		for _, s := range list {
			if !utf8.ValidString(s) {
				return false
			}
		}
	}
	return true
}

// helperPIDs is how many threads the guest helper may need.
const helperPIDs = 32

// startBytes starts a command through the guest helper, which gets it encoded
// and then becomes the program.
func (b *box) startBytes(l launch) (*process, error) {
	// The helper's pipe is not one that is kept over a pause.
	b.gate.busy.RLock()
	defer b.gate.busy.RUnlock()
	if l.area == programs && b.Spec.Limits.PIDs < helperPIDs {
		return nil, fault.New(fault.Invalid, "a command that is not UTF-8 needs a process limit of at least %d", helperPIDs)
	}
	encoded, err := guest.NewCommand(l.argv, l.env, l.dir)
	if err != nil {
		return nil, fault.Wrap(fault.Internal, err, "cannot encode the command")
	}
	failure, theirs, err := os.Pipe()
	if err != nil {
		return nil, fault.Wrap(fault.Internal, err, "cannot start the command")
	}
	defer failure.Close()
	l.argv, l.env, l.dir = []string{guestPath, "exec", encoded}, nil, "/"
	l.files = append(l.files[:len(l.files):len(l.files)], theirs)
	p, err := b.startText(l)
	theirs.Close()
	if err != nil {
		return nil, err
	}
	// The helper's end closes when the program starts.
	_ = failure.SetReadDeadline(time.Now().Add(answer.Timeout))
	reason, err := io.ReadAll(io.LimitReader(failure, 4096))
	if err == nil && len(reason) == 0 {
		return p, nil
	}
	if killErr := p.kill(); killErr != nil {
		return nil, b.lost(killErr)
	}
	if _, waitErr := p.wait(); waitErr != nil {
		return nil, b.lost(waitErr)
	}
	if emptyErr := p.empty(time.Now().Add(killTimeout)); emptyErr != nil {
		return nil, b.lost(emptyErr)
	}
	after, refusalsErr := p.refusals()
	if refusalsErr != nil {
		return nil, b.lost(refusalsErr)
	}
	p.after = after
	p.release()
	if err != nil {
		return nil, fault.Wrap(fault.Internal, err, "cannot start the command")
	}
	return nil, &errNotStarted{reason: strings.ToValidUTF8(string(reason), "?")}
}

// startText starts a process that is in its slot's group from its first
// instruction on. gVisor starts a process in the group in which init is at
// that moment, so init moves there and back: one start at a time.
//
// The program runs while init is still on its way back.
func (b *box) startText(l launch) (*process, error) {
	b.startMu.Lock()
	if err := b.Alive(); err != nil {
		b.startMu.Unlock()
		return nil, err
	}
	p, err := b.enterSlot(l.area)
	if err != nil {
		b.startMu.Unlock()
		return nil, err
	}
	p.pid, err = b.executeIn(l)
	go func() {
		defer b.startMu.Unlock()
		p.leave()
	}()
	if err == nil {
		return p, nil
	}
	<-p.left
	if p.leaveErr != nil {
		return nil, &errLostAtStart{p.leaveErr}
	}
	p.release()
	var remote *answer.Refused
	if errors.As(err, &remote) {
		return nil, &errNotStarted{reason: remote.Reason}
	}
	return nil, &errLostAtStart{err}
}

// enterSlot takes a slot and moves init into its group.
func (b *box) enterSlot(in area) (*process, error) {
	b.mu.Lock()
	slot := b.slots.take()
	p := &process{box: b, slot: slot, area: in, left: make(chan struct{})}
	p.before, p.after = b.counted[slot], b.counted[slot]
	b.mu.Unlock()
	if _, err := b.request(fmt.Sprintf("enter %s %d", in, slot)); err != nil {
		p.release()
		var refused *answer.InitError
		if errors.As(err, &refused) && strings.Contains(refused.Answer, unix.EAGAIN.Error()) {
			return nil, fault.Wrap(fault.Exhausted, err, "cannot start another command in sandbox %s: it is at its process limit of %d", b.Spec.ID, b.Spec.Limits.PIDs)
		}
		if refused != nil {
			return nil, fault.Wrap(fault.Internal, err, "cannot start a command in sandbox %s", b.Spec.ID)
		}
		b.abandon(fmt.Sprintf("its init does not answer: %v", err))
		return nil, b.lost(err)
	}
	return p, nil
}

// leave moves init back. Killing the slot's group before would kill init, so if
// that does not work, nothing can go on in the sandbox.
func (p *process) leave() {
	defer close(p.left)
	if _, p.leaveErr = p.box.request("leave"); p.leaveErr != nil {
		p.box.abandon(fmt.Sprintf("its init does not answer: %v", p.leaveErr))
	}
}

// executeIn starts a program in the group that init is in.
func (b *box) executeIn(l launch) (pid int32, err error) {
	fds := make([]int, len(l.files))
	for i := range fds {
		fds[i] = i
	}
	return b.execute(&control.ExecArgs{
		Argv: l.argv,
		Envv: l.env,
		// With the slash, a file is refused as a directory.
		WorkingDirectory: strings.TrimSuffix(l.dir, "/") + "/",
		KUID:             execenv.UID,
		KGID:             execenv.GID,
		NoNewPrivileges:  true,
		Capabilities:     &auth.TaskCapabilities{},
		StdioIsPty:       l.tty,
		FilePayload: control.FilePayload{
			FilePayload: urpc.FilePayload{Files: l.files},
			GuestFDs:    fds,
		},
		ContainerID: b.Spec.ID,
	})
}

// wait blocks until the process has ended, and says how.
func (p *process) wait() (unix.WaitStatus, error) {
	var status unix.WaitStatus
	args := &boot.WaitPIDArgs{PID: p.pid, CID: p.box.Spec.ID}
	for {
		at, err := p.box.whereabouts()
		if err != nil {
			return 0, err
		}
		err = answer.Call(at.socket, boot.ContMgrWaitPID, answer.ForEver, args, nil, &status)
		if err == nil {
			return status, answer.CheckStatus(status)
		}
		// The kernel that was asked may have been put away, and not the sandbox.
		if now, lost := p.box.whereabouts(); lost != nil || now.era == at.era {
			return 0, fmt.Errorf("asking the sandbox's kernel for the end of a process: %w", err)
		}
	}
}

// signal sends a signal to the process, or to the terminal's foreground group.
func (p *process) signal(sig unix.Signal, foreground bool) error {
	args := &boot.SignalArgs{CID: p.box.Spec.ID, PID: p.pid, Signo: int32(sig), Mode: boot.DeliverToProcess}
	if foreground {
		args.Mode = boot.DeliverToForegroundProcessGroup
	}
	return p.box.call(boot.ContMgrSignal, answer.Timeout, args, nil, nil)
}

// kill ends everything the process ever started, at once and with nobody left
// out: the sandbox's kernel holds forks back meanwhile.
//
// Once the slot was given back it does nothing: another command may have the
// slot by then, and init with it.
func (p *process) kill() error {
	<-p.left
	p.slotMu.Lock()
	defer p.slotMu.Unlock()
	if p.released {
		return nil
	}
	return p.box.writeGroupFile(p.file("cgroup.kill"), "1")
}

// clear kills what the first process left behind, and returns when nothing is
// there. Mostly nothing is: nobody can get into the group but who is born in it,
// so once it is empty it stays so, and there is nothing to kill.
func (p *process) clear() error {
	<-p.left
	if empty, err := p.isEmpty(); err != nil || empty {
		return err
	}
	if err := p.kill(); err != nil {
		return err
	}
	return p.empty(time.Now().Add(killTimeout))
}

func (p *process) isEmpty() (bool, error) {
	events, err := p.box.readGroupFile(p.file("cgroup.events"))
	return strings.Contains(events, "populated 0"), err
}

// empty waits until nothing is left of what the process started.
func (p *process) empty(deadline time.Time) error {
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 10*time.Millisecond) {
		if empty, err := p.isEmpty(); err != nil || empty {
			return err
		}
		if time.Now().After(deadline) {
			return errors.New("killed processes are still there")
		}
		time.Sleep(pause)
	}
}

// release gives the slot back; its group must be empty.
func (p *process) release() {
	p.slotMu.Lock()
	p.released = true
	p.slotMu.Unlock()
	p.box.mu.Lock()
	defer p.box.mu.Unlock()
	p.box.counted[p.slot] = p.after
	p.box.slots.release(p.slot)
}

// refusals reads what was counted for its slot since the sandbox began.
func (p *process) refusals() (answer.Refusals, error) {
	words, err := p.box.request(fmt.Sprintf("refused %d", p.slot))
	if err != nil {
		return answer.Refusals{}, err
	}
	return answer.ParseRefusals(words)
}

// account reads the same and what the sandbox's files take, in one question.
func (p *process) account() (answer.Refusals, []answer.Place, error) {
	words, err := p.box.request(fmt.Sprintf("account %d", p.slot))
	if err != nil {
		return answer.Refusals{}, nil, err
	}
	return answer.ParseAccount(words)
}

func (p *process) file(name string) control.CgroupControlFile {
	return control.CgroupControlFile{
		Controller: "pids",
		Path:       path.Join("/", p.box.Spec.ID, string(p.area), strconv.Itoa(p.slot)),
		Name:       name,
	}
}

// usage reads what the sandbox uses, for who has passed the gate.
func (b *box) usage() (run.Usage, error) {
	stats, err := b.group.Stats()
	if err != nil {
		return run.Usage{}, b.lost(err)
	}
	words, err := b.control.Request("usage")
	if err != nil {
		return run.Usage{}, b.lost(err)
	}
	places, err := answer.ParsePlaces(words)
	if err != nil {
		return run.Usage{}, b.lost(err)
	}
	return withPlaces(b.usageOf(stats), places), nil
}

// lost turns the failure to reach a sandbox into what happened to it.
func (b *box) lost(cause error) error { return b.Unreachable(cause, time.Second) }

// abandon ends a sandbox that cannot be used any more.
func (b *box) abandon(reason string) {
	b.env.log.Error("ending a sandbox", "sandbox", b.Spec.ID, "reason", reason)
	b.mu.Lock()
	if b.abandoned == "" {
		b.abandoned = reason
	}
	b.mu.Unlock()
	b.kill()
}

// kill kills the sandbox's kernel. An error says that it is gone already.
func (b *box) kill() {
	b.mu.Lock()
	process := b.process
	b.mu.Unlock()
	_ = process.Control(func(fd uintptr) { _ = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) })
}
