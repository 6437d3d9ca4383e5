package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
)

// dialFor bounds how long a service has to answer before it counts as away.
const dialFor = 5 * time.Second

// Node is an execution service under a name. Sandboxes have the name on record,
// so it stays with the service, and every process knows all of them.
type Node struct {
	Name string
	Dial func(ctx context.Context) (Connection, error)
}

// Connection is an execution service that answered.
type Connection interface {
	execenv.Environment
	Close()
}

// nodes keeps a connection to each service, so that no call has to make one.
type nodes struct {
	all         []*node
	development bool
}

type node struct {
	Node
	mu   sync.Mutex
	conn Connection // nil while there is none
}

func newNodes(all []Node, development bool) (*nodes, error) {
	if len(all) == 0 {
		return nil, errors.New("cannot offer live sandboxes: no execution service is named")
	}
	n := &nodes{development: development}
	seen := map[string]bool{}
	for _, one := range all {
		if one.Name == "" || one.Dial == nil || seen[one.Name] {
			return nil, fmt.Errorf("cannot offer live sandboxes: execution service %q has no name, no way there, or a name that another has", one.Name)
		}
		seen[one.Name] = true
		n.all = append(n.all, &node{Node: one})
	}
	return n, nil
}

// named finds a service.
func (n *nodes) named(name string) (*node, error) {
	for _, one := range n.all {
		if one.Name == name {
			return one, nil
		}
	}
	return nil, fault.New(fault.Unavailable, "execution service %q is not known here", name)
}

// connect returns the connection to a service, and makes it if there is none. A
// new one asks what the service is: one that was restarted may have become
// something else.
func (n *nodes) connect(ctx context.Context, to *node) (Connection, error) {
	to.mu.Lock()
	defer to.mu.Unlock()
	if to.conn != nil {
		return to.conn, nil
	}
	ctx, cancel := context.WithTimeout(ctx, dialFor)
	defer cancel()
	conn, err := to.Dial(ctx)
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "cannot reach execution service %s", to.Name)
	}
	if class := conn.Capabilities().Isolation; class != execenv.IsolationKernel && !n.development {
		conn.Close()
		return nil, fault.New(fault.Denied, "execution service %s isolates by %q and not by a kernel; untrusted work is sent there only in development (AUTH_MODE=dev)", to.Name, class)
	}
	to.conn = conn
	return conn, nil
}

// drop forgets a connection over which a service did not answer.
func (to *node) drop(conn Connection, err error) {
	if !fault.Is(err, fault.Unavailable) {
		return
	}
	to.mu.Lock()
	defer to.mu.Unlock()
	if to.conn == conn {
		to.conn = nil
		conn.Close()
	}
}

func (n *nodes) close() {
	for _, one := range n.all {
		one.mu.Lock()
		if one.conn != nil {
			one.conn.Close()
			one.conn = nil
		}
		one.mu.Unlock()
	}
}

// list asks a service what it has.
func (n *nodes) list(ctx context.Context, from *node) (Connection, []execenv.Info, error) {
	conn, err := n.connect(ctx, from)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialFor)
	defer cancel()
	infos, err := conn.List(ctx)
	if err != nil {
		from.drop(conn, err)
		return nil, nil, err
	}
	return conn, infos, nil
}

// byRoom returns the services that answer, the one with the fewest sandboxes
// first. When none does, it says why.
func (n *nodes) byRoom(ctx context.Context) ([]*node, error) {
	if len(n.all) == 1 {
		return n.all, nil
	}
	loads := make([]int, len(n.all))
	errs := make([]error, len(n.all))
	var asked sync.WaitGroup
	for i, one := range n.all {
		asked.Go(func() {
			_, infos, err := n.list(ctx, one)
			loads[i], errs[i] = len(infos), err
		})
	}
	asked.Wait()
	var usable []*node
	room := map[*node]int{}
	for i, one := range n.all {
		if errs[i] == nil {
			usable, room[one] = append(usable, one), loads[i]
		}
	}
	slices.SortStableFunc(usable, func(a, b *node) int { return room[a] - room[b] })
	if len(usable) == 0 {
		return nil, errors.Join(errs...)
	}
	return usable, nil
}
