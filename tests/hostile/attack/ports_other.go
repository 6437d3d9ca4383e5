//go:build !amd64

package main

import "golang.org/x/sys/unix"

func iopl() error   { return unix.ENOSYS }
func ioperm() error { return unix.ENOSYS }
