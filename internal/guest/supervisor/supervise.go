package supervisor

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Config is what the first process is told.
type Config struct {
	// Socket is where the execution service listens.
	Socket string
	// Program is the path of this program, for shepherds.
	Program string
	// Places are the writable ones; the first is the workspace.
	Places []string
	// Processes bounds those of this user, everywhere; 0 does not.
	Processes uint64
	// Share is how many of them this sandbox may have before it gets no more; 0
	// does not bound it.
	Share int
}

// supervisor is the first process.
type supervisor struct {
	cfg  Config
	conn *net.UnixConn

	say sync.Mutex // one event at a time

	// forking is held while a shepherd is started and entered here, and by who has to
	// know all that there are: one that nobody knows yet is not astray, and how it
	// ended is not to be lost. It comes before mu, which no start holds up: the
	// programs can.
	forking sync.Mutex

	mu    sync.Mutex
	flock map[int]*herding // by the shepherd's pid
	named map[uint64]*herding
	share share
}

// herding is a command with its shepherd.
type herding struct {
	number   uint64
	shepherd int
	told     chan struct{}   // closed once the shepherd has said that the program runs
	died     chan struct{}   // closed once the shepherd is reaped
	status   unix.WaitStatus // of the shepherd, then
	program  *os.File        // a pidfd; nil unless it runs
	remark   string          // what befell it here; guarded by supervisor.mu

	killMu sync.Mutex
}

// Supervise serves the execution service until the connection closes. It is the
// first process of a PID namespace.
func Supervise(cfg Config) error {
	if err := keepToItself(); err != nil {
		return err
	}
	// A handler for each signal, so that one which a program sends is taken and
	// dropped. The dead have a channel of their own: in one for all, the signals that
	// the runtime sends to itself on a busy machine pushed out the one that counts.
	dropped, dead := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(dropped)
	signal.Notify(dead, unix.SIGCHLD)
	addr := &net.UnixAddr{Name: cfg.Socket, Net: "unix"}
	conn, err := net.DialUnix("unix", nil, addr)
	if err != nil {
		return fmt.Errorf("cannot reach the execution service: %w", err)
	}
	s := &supervisor{cfg: cfg, conn: conn, flock: map[int]*herding{}, named: map[uint64]*herding{}, share: share{most: cfg.Share}}
	go s.reapLoop(dead)
	if err := s.event(Event{Op: EventReady}); err != nil {
		return err
	}
	for {
		r, passed, err := receive(conn)
		if err != nil {
			return nil // with this process ends the namespace
		}
		s.serve(r, passed)
		for _, f := range passed {
			f.Close()
		}
	}
}

func (s *supervisor) event(e Event) error {
	s.say.Lock()
	defer s.say.Unlock()
	return sendEvent(s.conn, e)
}

func (s *supervisor) serve(r Request, passed []*os.File) {
	switch r.Op {
	case OpStart:
		if err := s.start(r, passed); err != nil {
			_ = s.event(Event{Op: EventRefused, Command: r.Command, Reason: err.Error()})
		}
	case OpSignal:
		s.mu.Lock()
		if h := s.named[r.Command]; h != nil && h.program != nil {
			h.signal(unix.Signal(r.Signal))
		}
		s.mu.Unlock()
	case OpKill:
		if h := s.find(r.Command); h != nil {
			go s.clear(h)
		}
	case OpUsage:
		_ = s.event(s.usage(Event{Op: EventUsage, Command: r.Command}))
	}
}

func (s *supervisor) find(number uint64) *herding {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.named[number]
}

// start starts a shepherd, which starts the program.
func (s *supervisor) start(r Request, passed []*os.File) error {
	data, err := json.Marshal(command{Argv: r.Argv, Env: r.Env, Dir: r.Dir, TTY: r.TTY, Processes: s.cfg.Processes})
	if err != nil {
		return err
	}
	report, theirReport, err := os.Pipe()
	if err != nil {
		return err
	}
	defer theirReport.Close()
	theirCommand, ours, err := os.Pipe()
	if err != nil {
		report.Close()
		return err
	}
	defer theirCommand.Close()
	attr := &syscall.ProcAttr{
		Dir: "/", Env: []string{"GOMAXPROCS=1", "GOGC=off"},
		Files: []uintptr{passed[0].Fd(), passed[1].Fd(), passed[2].Fd(), theirReport.Fd(), theirCommand.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	}
	h := &herding{number: r.Command, told: make(chan struct{}), died: make(chan struct{})}
	s.forking.Lock()
	h.shepherd, err = s.fork(attr)
	if err == nil {
		s.mu.Lock()
		s.flock[h.shepherd], s.named[h.number] = h, h
		s.keepShare()
		s.mu.Unlock()
	}
	s.forking.Unlock()
	if err != nil {
		report.Close()
		ours.Close()
		return fmt.Errorf("failed to start a shepherd: %w", err)
	}
	go func() {
		defer ours.Close()
		_, _ = ours.Write(data)
	}()
	go s.follow(h, report)
	go s.rouse(h)
	return nil
}

// fork starts a shepherd. A program can stop it before it is one, again and again,
// when this process waits for it and hears nothing else: then all others are
// stopped, and it goes on alone for a moment.
func (s *supervisor) fork(attr *syscall.ProcAttr) (int, error) {
	done := make(chan struct{})
	defer close(done)
	go func() {
		every := time.NewTicker(reportTime)
		defer every.Stop()
		for {
			select {
			case <-done:
				return
			case <-every.C:
			}
			s.mu.Lock()
			_ = frozen(func(all map[int]process) {
				for pid, p := range all {
					if p.parent == 1 && s.flock[pid] == nil {
						_ = unix.Kill(pid, unix.SIGCONT)
					}
				}
				select {
				case <-done:
				case <-time.After(moment):
				}
			})
			s.mu.Unlock()
		}
	}()
	return syscall.ForkExec(s.cfg.Program, []string{s.cfg.Program, "shepherd"}, attr)
}

// rouse keeps a shepherd going until it has said that its program runs: the
// program can be faster, and stop it before that.
func (s *supervisor) rouse(h *herding) {
	every := time.NewTicker(reportTime)
	defer every.Stop()
	for {
		select {
		case <-h.told:
			return
		case <-h.died:
			return
		case <-every.C:
		}
		s.mu.Lock()
		if s.flock[h.shepherd] == h {
			_ = unix.Kill(h.shepherd, unix.SIGCONT)
		}
		s.mu.Unlock()
	}
}

// follow reads what the shepherd reports, and takes the command to its end.
func (s *supervisor) follow(h *herding, report *os.File) {
	defer report.Close()
	end := Event{Op: EventEnded, Command: h.number}
	reported, started := false, false
	lines := bufio.NewScanner(report)
	for lines.Scan() {
		word, rest, _ := strings.Cut(lines.Text(), " ")
		switch word {
		case reportRefused:
			<-h.died
			s.forget(h)
			_ = s.event(Event{Op: EventRefused, Command: h.number, Reason: rest})
			return
		case reportStarted:
			if !started {
				close(h.told)
			}
			started = true
			s.started(h, rest)
		case reportEnded:
			number, left, _ := strings.Cut(rest, " ")
			status, _ := strconv.ParseUint(number, 10, 32)
			end.Status, reported = uint32(status), true
			if left != "" {
				s.clear(h)
			}
		}
	}
	<-h.died
	if h.status != 0 {
		// It was killed by what it herded, which is astray now.
		s.clearAstray()
	}
	s.mu.Lock()
	end.Reason = h.remark
	s.mu.Unlock()
	if !reported {
		end.Status, end.Reason = unwatched(h.status, end.Reason)
	}
	s.forget(h)
	if !started {
		_ = s.event(Event{Op: EventStarted, Command: h.number})
	}
	_ = s.event(s.usage(end))
}

// unwatched is the end of a command whose shepherd ended without a report: what it
// herded was killed. Its own exit code, where it could not go on, is not the
// program's.
func unwatched(shepherd unix.WaitStatus, remark string) (status uint32, reason string) {
	if remark != "" {
		remark += "; "
	}
	if shepherd.Signaled() {
		return uint32(shepherd), remark + "the process that watches over the command was killed from inside the sandbox"
	}
	return uint32(unix.SIGKILL), remark + "the process that watches over the command could not go on, and what it watched was killed"
}

func (s *supervisor) started(h *herding, pid string) {
	n, err := strconv.Atoi(pid)
	if err != nil {
		return
	}
	// Failure says that it has ended, and was reaped.
	if fd, err := unix.PidfdOpen(n, unix.PIDFD_NONBLOCK); err == nil {
		s.mu.Lock()
		h.program = os.NewFile(uintptr(fd), "program")
		s.mu.Unlock()
		go s.awaitEnd(h, h.program)
	}
	_ = s.event(Event{Op: EventStarted, Command: h.number})
}

// reportTime is how long a shepherd may take to report the end of its program.
const reportTime = 50 * time.Millisecond

// awaitEnd sees to it that the end of a program is noticed although something in
// the sandbox has stopped its shepherd.
func (s *supervisor) awaitEnd(h *herding, program *os.File) {
	conn, err := program.SyscallConn()
	if err != nil {
		return
	}
	err = conn.Read(func(fd uintptr) bool {
		ended := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(ended, 0)
		return n > 0 && err == nil
	})
	if err != nil {
		return // it was closed: the command is over
	}
	select {
	case <-h.died:
	case <-time.After(reportTime):
		s.clear(h)
	}
}

func (s *supervisor) forget(h *herding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.named, h.number)
	if h.program != nil {
		_ = h.program.Close()
		h.program = nil
	}
}

// signal reaches the program and nothing that has its number after it.
func (h *herding) signal(sig unix.Signal) {
	conn, err := h.program.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) { _ = unix.PidfdSendSignal(int(fd), sig, nil, 0) })
}

// patience is how long processes are killed one by one before all are stopped
// for it.
const patience = 20 * time.Millisecond

// clear kills all that a shepherd herds, and goes on until it has ended.
func (s *supervisor) clear(h *herding) {
	h.killMu.Lock()
	defer h.killMu.Unlock()
	s.repeat(nil, func(all map[int]process) bool {
		select {
		case <-h.died:
			return true
		default:
		}
		kill(all, below(all, h.shepherd))
		// A program may have stopped it, and does so again if it gets to it first.
		_ = unix.Kill(h.shepherd, unix.SIGCONT)
		awaitExit(h.shepherd)
		return false
	})
}

// moment is how long one process has the sandbox to itself to get where it is
// wanted, when others may be stopped for that.
const moment = 5 * time.Millisecond

// awaitExit waits for a child to exit, for a moment. It is not reaped.
func awaitExit(pid int) {
	pause := unix.NsecToTimespec(int64(100 * time.Microsecond))
	for until := time.Now().Add(moment); time.Now().Before(until); _ = unix.Nanosleep(&pause, nil) {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if err != nil && !errors.Is(err, unix.EINTR) || info.Signo == int32(unix.SIGCHLD) {
			return
		}
	}
}

// clearAstray kills all that no shepherd herds any more.
func (s *supervisor) clearAstray() {
	s.repeat(&s.forking, func(all map[int]process) bool {
		return !kill(all, astray(all, func(pid int) bool { return s.flock[pid] != nil }))
	})
}

// repeat calls f until it says that it is done. At first others run meanwhile;
// if that takes too long, they are stopped while f runs. Each time, first is held
// too, if there is one.
func (s *supervisor) repeat(first *sync.Mutex, f func(all map[int]process) (done bool)) {
	began := time.Now()
	for pause := 200 * time.Microsecond; ; pause = min(2*pause, 5*time.Millisecond) {
		done := false
		if first != nil {
			first.Lock()
		}
		s.mu.Lock()
		if time.Since(began) < patience {
			if all, err := processes(); err == nil {
				done = f(all)
			}
		} else {
			_ = frozen(func(all map[int]process) { done = f(all) })
		}
		s.mu.Unlock()
		if first != nil {
			first.Unlock()
		}
		if done {
			return
		}
		time.Sleep(pause)
	}
}

// reapLoop collects what ends: shepherds, and what fell to the first process.
func (s *supervisor) reapLoop(dead <-chan os.Signal) {
	for range dead {
		for s.reap() {
		}
	}
}

func (s *supervisor) reap() bool {
	s.forking.Lock()
	defer s.forking.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	var status unix.WaitStatus
	pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
	if errors.Is(err, unix.EINTR) {
		return true
	}
	if err != nil || pid <= 0 {
		return false
	}
	if h := s.flock[pid]; h != nil {
		delete(s.flock, pid)
		h.status = status
		close(h.died)
	}
	return true
}

func (s *supervisor) usage(e Event) Event {
	for _, path := range s.cfg.Places {
		var st unix.Statfs_t
		if err := unix.Statfs(path, &st); err != nil {
			return e
		}
		e.Places = append(e.Places, Place{
			Used: (int64(st.Blocks) - int64(st.Bfree)) * st.Bsize, UsedInodes: int64(st.Files) - int64(st.Ffree),
		})
	}
	if all, err := processes(); err == nil {
		s.mu.Lock()
		e.Processes = int64(len(all) - len(s.flock))
		s.mu.Unlock()
	}
	return e
}
