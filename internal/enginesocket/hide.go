package enginesocket

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/fault"
)

// cover is bound over a socket: it is everywhere, and nothing can be connected
// to it.
const cover = "/dev/null"

// Hide takes the sockets of engines out of this process's sight, and out of that
// of all it starts: each is covered by a file that is no socket. It returns those
// that it has covered. Variables stay: what they lead to may be on the network,
// where nothing can be covered, and Refuse names them.
//
// The process must have a mount namespace of its own, or the sockets are covered
// for the whole host. An engine that starts later makes its socket anew, and the
// kernel takes a cover away with the file below it; so whoever hides looks again
// from time to time.
func (s Surroundings) Hide() (hidden []string, err error) {
	for {
		found, err := s.sockets()
		if err != nil {
			return hidden, fault.Wrap(fault.Denied, err, "it cannot be found out whether a container engine can be reached from here")
		}
		if len(found) == 0 {
			return hidden, nil
		}
		// A socket that has two names is found again by the other one. Each
		// round covers one at least, or ends this.
		for _, p := range found {
			if err := unix.Mount(s.Root+cover, s.Root+p, "", unix.MS_BIND, ""); err != nil {
				return hidden, fault.Wrap(fault.Denied, fmt.Errorf("cannot mount over it: %w", err),
					"a container engine can be reached from here (%s), and through it the whole host, and it cannot be hidden; stop the engine", p)
			}
			hidden = append(hidden, p)
		}
	}
}
