package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// readiness is a share in keeping the kernel ready to move processes.
type readiness struct {
	mu    sync.Mutex
	users int
	stop  chan struct{}
}

// moveInterval is well below the time after which the kernel is no longer ready:
// an RCU grace period, which takes some milliseconds.
const moveInterval = 3 * time.Millisecond

// KeepReady makes the moves of processes into groups quick until done is called.
// Whoever moves a process first, after a pause, waits for an RCU grace period
// while the kernel brings all forks of the host to where they can be held back;
// whoever comes soon after does not. The wait is the same whichever process is
// moved, so it can be had while the one to be moved is still starting. What is
// moved here is the calling process, to the group it is in, which changes
// nothing. Where that is not allowed, moves are as slow as they are.
func (h *Hierarchy) KeepReady() (done func()) {
	h.ready.mu.Lock()
	defer h.ready.mu.Unlock()
	if h.ready.users++; h.ready.users == 1 {
		h.ready.stop = make(chan struct{})
		go h.keepMoving(h.ready.stop)
	}
	return sync.OnceFunc(func() {
		h.ready.mu.Lock()
		defer h.ready.mu.Unlock()
		if h.ready.users--; h.ready.users == 0 {
			close(h.ready.stop)
		}
	})
}

func (h *Hierarchy) keepMoving(stop <-chan struct{}) {
	tick := time.NewTicker(moveInterval)
	defer tick.Stop()
	for h.stay() == nil {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
	}
}

// stay moves the calling process to the group it is in.
func (h *Hierarchy) stay() error {
	name, err := h.own()
	if err != nil {
		return err
	}
	return write(h.Group(name).file("pids", "cgroup.procs"), int64(os.Getpid()))
}

// own is the group that the calling process is in; on v1, in the hierarchy of
// the process limit.
func (h *Hierarchy) own() (string, error) {
	const file = "/proc/self/cgroup"
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(data)) {
		// ID:CONTROLLER,…:PATH, on v2 with no controllers
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) != 3 {
			continue
		}
		if h.v2 && fields[0] == "0" || !h.v2 && slices.Contains(strings.Split(fields[1], ","), "pids") {
			return filepath.Clean(fields[2]), nil
		}
	}
	return "", fmt.Errorf("%s names no group of this hierarchy", file)
}
