package main

import "golang.org/x/sys/unix"

// Input and output ports exist on this architecture only.
func iopl() error   { return call(unix.SYS_IOPL, 3) }
func ioperm() error { return call(unix.SYS_IOPERM, 0x80, 1, 1) }
