package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// leftVariable tells the second life of the process which mount namespace the
// first one has left. It is never passed on.
const leftVariable = "AGENTDOCK_LEFT_MOUNTS"

// ownMounts gives the process a mount namespace of its own, in which it can hide
// what its parts must not see and nobody else is disturbed. What the host mounts
// later is seen there too. That takes an execve: a process of many threads cannot
// leave its namespace as a whole. So it returns in the second life only, or with
// an error.
func ownMounts() error {
	here, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return fmt.Errorf("cannot start: cannot look at the mount namespace: %w", err)
	}
	left := os.Getenv(leftVariable)
	if err := os.Unsetenv(leftVariable); err != nil {
		return err
	}
	// The variable alone is not believed: whoever sets it by hand would hide
	// things from the whole host.
	if strings.HasPrefix(left, "mnt:[") && left != here {
		return nil
	}
	runtime.LockOSThread() // the namespace is the thread's until execve
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("cannot start: cannot make a mount namespace: %w; root with CAP_SYS_ADMIN is needed", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("cannot start: cannot part the mount namespace from the host's: %w", err)
	}
	err = syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), leftVariable+"="+here))
	return fmt.Errorf("cannot start: cannot start again in a mount namespace: %w", err)
}
