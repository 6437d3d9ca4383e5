package main

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/execd"
)

// stageVariable marks the second life of the process. It is never passed on.
const stageVariable = execd.Prefix + "STAGE=isolated"

// stage takes the mark out of environ and says whether this is the second life.
// The mark alone is not believed: whoever sets it by hand has an environment
// that was not scrubbed.
func stage(environ []string) (rest []string, isolated bool) {
	rest = slices.DeleteFunc(slices.Clone(environ), func(kv string) bool { return kv == stageVariable })
	if len(rest) == len(environ) {
		return rest, false
	}
	name, _, _ := strings.Cut(stageVariable, "=")
	_ = os.Unsetenv(name)
	sorted := slices.Sorted(slices.Values(rest))
	return rest, slices.Equal(sorted, execd.ScrubbedEnvironment(rest))
}

// isolate replaces the process by itself, with only environ; as root, in a mount
// namespace of its own: what it mounts for sandboxes is never seen outside and
// is gone with it. Of the descriptors it was started with, only 0 to 2 and keep
// survive; of the capabilities, only those in kept. That takes an execve: a
// process of many threads cannot give up a capability for all of them at once,
// while the new program begins with what this one thread has left. It returns
// only on failure.
func isolate(args, environ []string, keep ...int) error {
	runtime.LockOSThread() // namespace and capabilities are the thread's until execve
	keepCapabilities := kept()
	if len(keepCapabilities) > 0 {
		if err := unshareMounts(); err != nil {
			return err
		}
	}
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("cannot start: cannot drop inherited descriptors: %w", err)
	}
	for _, fd := range keep {
		if fd < 3 {
			continue
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return fmt.Errorf("cannot start: descriptor %d is not open: %w", fd, err)
		}
	}
	if err := giveUpPrivileges(keepCapabilities); err != nil {
		return err
	}
	err := syscall.Exec("/proc/self/exe", args, append(environ, stageVariable))
	return fmt.Errorf("cannot start: cannot start again in the mount namespace: %w", err)
}

func unshareMounts() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("cannot start: cannot make a mount namespace: %w; root with CAP_SYS_ADMIN is needed", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("cannot start: cannot make the mount namespace private: %w", err)
	}
	return nil
}
