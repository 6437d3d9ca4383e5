package docker

import (
	"bufio"
	"errors"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/guest/supervisor"
)

// link is the connection to a sandbox's supervisor. What comes over it is from
// inside the sandbox: bounded, and about commands of this sandbox only.
type link struct {
	conn *net.UnixConn
	send sync.Mutex

	mu     sync.Mutex
	next   uint64
	asked  map[uint64]chan supervisor.Event
	ready  chan supervisor.Event // gets one, under number 0
	closed chan struct{}
}

var errLinkClosed = errors.New("the sandbox's supervisor is gone")

func newLink(conn *net.UnixConn) *link {
	ready := make(chan supervisor.Event, 1)
	return &link{conn: conn, asked: map[uint64]chan supervisor.Event{0: ready}, ready: ready, closed: make(chan struct{})}
}

// serve passes events on until the connection ends.
func (l *link) serve() {
	defer close(l.closed)
	defer l.conn.Close()
	in := bufio.NewReader(l.conn)
	for {
		e, err := supervisor.ReadEvent(in)
		if err != nil {
			return
		}
		l.mu.Lock()
		to := l.asked[e.Command]
		l.mu.Unlock()
		select {
		case to <- e:
		default: // more than was asked for, or nobody asked
		}
	}
}

// ask makes a number under which events are taken, as many as will come.
func (l *link) ask(events int) (uint64, chan supervisor.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next++
	l.asked[l.next] = make(chan supervisor.Event, events)
	return l.next, l.asked[l.next]
}

func (l *link) forget(number uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.asked, number)
}

func (l *link) request(r supervisor.Request, files ...*os.File) error {
	l.send.Lock()
	defer l.send.Unlock()
	return supervisor.Send(l.conn, r, files...)
}

// process is a started command.
type process struct {
	link   *link
	number uint64
	events chan supervisor.Event
}

// errNotStarted is a program that could not be started.
type errNotStarted struct{ reason string }

func (e *errNotStarted) Error() string { return e.reason }

// launch says what to start.
type launch struct {
	argv, env []string
	dir       string
	files     []*os.File // 0, 1, 2
	tty       bool
}

// begin asks for a command to be started. It may run from here on, and it can be
// killed, whether or not anybody says that it was started.
func (l *link) begin(what launch) (*process, error) {
	p := &process{link: l}
	p.number, p.events = l.ask(2)
	err := l.request(supervisor.Request{
		Op: supervisor.OpStart, Command: p.number,
		Argv: raw(what.argv), Env: raw(what.env), Dir: []byte(what.dir), TTY: what.tty,
	}, what.files...)
	if err != nil {
		l.forget(p.number)
		return nil, errors.Join(errLinkClosed, err)
	}
	return p, nil
}

// started waits for the word that the command was started, or was not.
func (p *process) started() error {
	select {
	case e := <-p.events:
		if e.Op == supervisor.EventRefused {
			p.link.forget(p.number)
			return &errNotStarted{e.Reason}
		}
		return nil
	case <-p.link.closed:
		p.link.forget(p.number)
		return errLinkClosed
	}
}

// wait blocks until nothing is left of the command.
func (p *process) wait() (supervisor.Event, error) {
	defer p.link.forget(p.number)
	select {
	case e := <-p.events:
		return e, nil
	case <-p.link.closed:
	}
	select {
	case e := <-p.events: // the last thing it said
		return e, nil
	default:
		return supervisor.Event{}, errLinkClosed
	}
}

func (p *process) signal(sig unix.Signal) error {
	return p.link.request(supervisor.Request{Op: supervisor.OpSignal, Command: p.number, Signal: int(sig)})
}

func (p *process) kill() error {
	return p.link.request(supervisor.Request{Op: supervisor.OpKill, Command: p.number})
}

// usage asks what the sandbox holds.
func (l *link) usage() (supervisor.Event, error) {
	number, events := l.ask(1)
	defer l.forget(number)
	if err := l.request(supervisor.Request{Op: supervisor.OpUsage, Command: number}); err != nil {
		return supervisor.Event{}, errors.Join(errLinkClosed, err)
	}
	select {
	case e := <-events:
		return e, nil
	case <-l.closed:
		return supervisor.Event{}, errLinkClosed
	}
}

func raw(list []string) [][]byte {
	out := make([][]byte, len(list))
	for i, s := range list {
		out[i] = []byte(s)
	}
	return out
}
