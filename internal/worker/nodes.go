package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
)

// dialFor bounds how long a service has to answer before it counts as away.
const dialFor = 5 * time.Second

// Node is an execution service under a name. Jobs have the name on record, so
// it stays with the service, and every worker knows all of them.
type Node struct {
	Name string
	Dial func(ctx context.Context) (Connection, error)
}

// Connection is an execution service that answered (*execrpc.Client).
type Connection interface {
	execenv.Environment
	Close()
}

type nodes struct {
	all         []Node
	development bool
	log         *slog.Logger

	mu sync.Mutex
	// placing counts jobs that have been promised a place on a node and have
	// no sandbox yet: they are not in its list.
	placing map[string]int
	// usableAt is when a node was last seen to be usable.
	usableAt time.Time
}

func newNodes(all []Node, development bool, log *slog.Logger) (*nodes, error) {
	if len(all) == 0 {
		return nil, errors.New("cannot make a worker: no execution service is named")
	}
	seen := map[string]bool{}
	for _, n := range all {
		if n.Name == "" || n.Dial == nil || seen[n.Name] {
			return nil, fmt.Errorf("cannot make a worker: execution service %q has no name, no way there, or a name that another has", n.Name)
		}
		seen[n.Name] = true
	}
	return &nodes{all: all, development: development, log: log, placing: map[string]int{}}, nil
}

// dial connects to a node and asks anew what it is: one that was restarted may
// have become something else.
func (n *nodes) dial(ctx context.Context, node Node) (Connection, error) {
	ctx, cancel := context.WithTimeout(ctx, dialFor)
	defer cancel()
	conn, err := node.Dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("execution service %s: %w", node.Name, err)
	}
	if class := conn.Capabilities().Isolation; class != execenv.IsolationKernel && !n.development {
		conn.Close()
		return nil, fault.New(fault.Denied, "execution service %s isolates by %q and not by a kernel; untrusted work is sent there only in development (AUTH_MODE=dev)", node.Name, class)
	}
	return conn, nil
}

// named connects to the node with that name.
func (n *nodes) named(ctx context.Context, name string) (Connection, error) {
	for _, node := range n.all {
		if node.Name == name {
			return n.dial(ctx, node)
		}
	}
	return nil, fault.New(fault.Unavailable, "execution service %q is not known to this worker", name)
}

// usable fails when no node can be used. What was seen a moment ago still
// counts.
func (n *nodes) usable(ctx context.Context) error {
	n.mu.Lock()
	fresh := time.Since(n.usableAt) < 2*time.Second
	n.mu.Unlock()
	if fresh {
		return nil
	}
	var errs []error
	for _, node := range n.all {
		conn, err := n.dial(ctx, node)
		if err == nil {
			conn.Close()
			n.wasUsable()
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (n *nodes) wasUsable() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.usableAt = time.Now()
}

// place is a connection to the node that was chosen, and a promise that ends
// with settled.
type place struct {
	Connection
	node    string
	settled func()
}

// errNeedsKernel is for a job from an API that is not in development, at a worker
// that is. Another worker may take it, or the settings be mended.
func errNeedsKernel(node string) error {
	return fault.New(fault.Unavailable, "execution service %s has no sandboxes with a kernel of their own, and this job comes from an API that is not in development; "+
		"the operator has to set AUTH_MODE and SANDBOX_RUNTIME alike for API, workers and execution services", node)
}

// choose connects to the node with the fewest sandboxes, leaving out those that
// are away, or did not take the job, for the reason that is given. It adds the
// reason of those that must not have it.
func (n *nodes) choose(ctx context.Context, kernelOnly bool, avoid map[string]error) (*place, error) {
	type answer struct {
		conn  Connection
		load  int
		unfit bool
		err   error
	}
	answers := make([]answer, len(n.all))
	var asked sync.WaitGroup
	for i, node := range n.all {
		if why := avoid[node.Name]; why != nil {
			answers[i].err = why
			continue
		}
		asked.Go(func() {
			a := &answers[i]
			a.conn, a.err = n.dial(ctx, node)
			switch {
			case a.err != nil:
			case kernelOnly && a.conn.Capabilities().Isolation != execenv.IsolationKernel:
				a.unfit, a.err = true, errNeedsKernel(node.Name)
			case len(n.all) > 1:
				a.load, a.err = load(ctx, a.conn)
			}
		})
	}
	asked.Wait()

	n.mu.Lock()
	defer n.mu.Unlock()
	best, least := -1, 0
	var errs []error
	for i, a := range answers {
		if a.err != nil {
			errs = append(errs, a.err)
			if a.unfit {
				avoid[n.all[i].Name] = a.err
			}
			continue
		}
		if l := a.load + n.placing[n.all[i].Name]; best < 0 || l < least {
			best, least = i, l
		}
	}
	for i, a := range answers {
		if i != best && a.conn != nil {
			a.conn.Close()
		}
	}
	if best < 0 {
		return nil, errors.Join(errs...)
	}
	n.usableAt = time.Now()
	name := n.all[best].Name
	n.placing[name]++
	return &place{Connection: answers[best].conn, node: name, settled: sync.OnceFunc(func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.placing[name]--
	})}, nil
}

// allRefuse reports whether no node is left that may ever take the job.
func (n *nodes) allRefuse(why map[string]error) bool {
	for _, node := range n.all {
		if !refuses(why[node.Name]) {
			return false
		}
	}
	return true
}

func load(ctx context.Context, conn Connection) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, dialFor)
	defer cancel()
	list, err := conn.List(ctx)
	return len(list), err
}
