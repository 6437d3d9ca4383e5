package docker

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/execenv/stdio"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// Files of sandboxes are memory, and no process gives it back by being killed. So
// all sandboxes together are promised no more than half of what the daemon has:
// when memory runs out, a process has the rest, and the kernel finds that one.

// writableBytes is what the files of a sandbox can take.
func writableBytes(l run.Limits) (sum int64) {
	for _, p := range places(l) {
		sum += p.bytes
	}
	return sum
}

// fits fails if files of that size are more than may ever be promised.
func (e *Environment) fits(l run.Limits) error {
	if bytes := writableBytes(l); bytes > e.room {
		return fault.New(fault.Unsupported, "files of a sandbox are memory here, and its places with %d bytes in all are above the %d that all sandboxes may take, half of what the Docker daemon has; lower the disk limit", bytes, e.room)
	}
	return nil
}

// hasRoom fails if more is promised than may be. Whoever asks is counted.
func (e *Environment) hasRoom() error {
	if promised := e.promised.Load(); promised > e.room {
		return fault.New(fault.Exhausted, "files of sandboxes are memory here, and %d bytes would be promised of the %d that all may take, half of what the Docker daemon has; destroy a sandbox, or lower disk limits", promised, e.room)
	}
	return nil
}

// roomFor is half of what a daemon can have of the host's memory.
func roomFor(memTotal int64, socket string) int64 {
	most := int64(math.MaxInt64)
	if memTotal > 0 {
		most = memTotal
	}
	// Where it is not this host's to see, the host's memory has to do.
	if pid, err := listener(socket); err == nil {
		if limit, err := memoryLimit("/sys/fs/cgroup", fmt.Sprintf("/proc/%d/cgroup", pid)); err == nil {
			most = min(most, limit)
		}
	}
	return most / 2
}

// listener is the process that listens on a socket.
func listener(socket string) (int, error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	f, err := conn.(*net.UnixConn).File()
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var peer *unix.Ucred
	err = stdio.WithFD(f, func(fd int) error {
		peer, err = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		return err
	})
	if err != nil {
		return 0, err
	}
	if peer.Pid <= 0 {
		return 0, errors.New("the daemon is in another PID namespace")
	}
	return int(peer.Pid), nil
}

// memoryLimit is the least limit of memory of a process's control groups, of either
// version.
func memoryLimit(root, membership string) (int64, error) {
	data, err := os.ReadFile(membership)
	if err != nil {
		return 0, err
	}
	least := int64(math.MaxInt64)
	for line := range strings.Lines(string(data)) {
		// 4:memory:/a/b or 0::/a/b
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		dir, file := root, "memory.max"
		switch {
		case fields[1] == "memory":
			dir, file = filepath.Join(root, "memory"), "memory.limit_in_bytes"
		case fields[0] != "0":
			continue
		}
		for name := filepath.Clean("/" + fields[2]); ; name = filepath.Dir(name) {
			// "max", or a file that is not there, is no limit.
			text, _ := os.ReadFile(filepath.Join(dir, name, file))
			if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
				least = min(least, n)
			}
			if name == "/" {
				break
			}
		}
	}
	return least, nil
}
