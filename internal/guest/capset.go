package guest

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// capsetAll empties the permitted, effective and inheritable sets of every
// thread.
func capsetAll() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var empty [2]unix.CapUserData
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET,
		uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&empty[0])), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
