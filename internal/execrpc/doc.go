// Package execrpc carries the port (internal/execenv) over Connect on HTTP/2:
// NewServer serves an Environment, Dial makes one out of a connection. It is
// an adapter like any other and passes the same contract suite.
//
// What it promises beyond the port:
//
//   - A fault keeps its code and public message. Its cause is operator detail
//     and stays in the server's log.
//   - An error of the transport is fault.Unavailable, whatever it was. It is
//     never a Result and never the end of an Output or of an archive: those
//     need a message that says so.
//   - When the caller's own context ends, the error wraps that context's error.
//   - Nothing reconnects by itself. Idempotent calls can be repeated, and
//     Output takes up where it was cut, by offset.
//   - P2 holds over the wire: a Create that fails for its caller leaves
//     nothing behind, as long as the service can still be reached.
//   - Archives pass through in pieces of at most maxPiece bytes, and a side
//     that does not read holds up the other, not the connection.
package execrpc

import "time"

const (
	// maxPiece bounds the bytes in one streamed message.
	maxPiece = 256 << 10
	// maxMessage bounds any message. The largest valid one is an ExecRequest:
	// arguments of 1 MiB and an environment of 256 KiB.
	maxMessage = 4 << 20
	// heartbeat is how often a quiet Output or Wait says that it is alive.
	heartbeat = 15 * time.Second
)
