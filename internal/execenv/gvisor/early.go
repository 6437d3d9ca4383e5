package gvisor

import (
	"os"
	"os/signal"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/gomaxprocs"
	"gvisor.dev/gvisor/pkg/sentry/seccheck"
)

// These make a sentry start sooner; what each is worth is in
// docs/benchmarks/engine.md. None changes what a sentry may do.

// collectLater keeps the garbage collector from running while the sentry
// starts, when its heap is small and grows fast: that is a third of the
// processor time of a start. Its limit keeps it bounded if the start takes long.
func collectLater() {
	percent := debug.SetGCPercent(-1)
	limit := debug.SetMemoryLimit(32 << 20)
	time.AfterFunc(time.Second, func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	})
}

// startEarly begins what gVisor would do only when the sandbox is waited for,
// while there is other work that waits.
func startEarly() {
	// With one processor for the sandbox gVisor gives the Go scheduler one as
	// well. A goroutine that hands over to a locked thread and waits for it, as
	// for each signal below, then keeps all others from running meanwhile. How
	// much processor time there is, the cgroup says.
	gomaxprocs.Add(1)
	go seccheck.Initialize()
	go enableSignals()
}

// enableSignals asks for the signals that gVisor forwards to a sandbox, so that
// the Go runtime has them enabled when gVisor asks. Nobody reads the channels.
func enableSignals() {
	for sig := unix.Signal(1); sig < 32; sig++ {
		switch sig {
		case unix.SIGURG, unix.SIGPIPE, unix.SIGCHLD: // gVisor leaves them out
		default:
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
}
