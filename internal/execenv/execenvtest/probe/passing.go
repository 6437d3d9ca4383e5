package main

import (
	"fmt"
	"io"
	"os"
	"syscall"
)

// take is at a socket, takes the first file that is sent there, and holds it, and
// what else is sent there.
func take(path string) int {
	s, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_DGRAM, 0)
	if err == nil {
		err = syscall.Bind(s, &syscall.SockaddrUnix{Name: path})
	}
	if err != nil {
		return failed(err)
	}
	fmt.Println("ready")
	data, rights := make([]byte, 1), make([]byte, syscall.CmsgSpace(4))
	_, n, _, _, err := syscall.Recvmsg(s, data, rights, 0)
	if err != nil {
		return failed(err)
	}
	if n == 0 {
		fmt.Println("error nothing was sent")
		return 1
	}
	fmt.Println("taken")
	return forever()
}

// give sends its stdout to a socket, and copies stdin to stdout.
func give(path string) int {
	s, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_DGRAM, 0)
	if err == nil {
		err = syscall.Sendmsg(s, []byte{1}, syscall.UnixRights(1), &syscall.SockaddrUnix{Name: path}, 0)
	}
	if err != nil {
		return failed(err)
	}
	fmt.Println("given")
	_, err = io.Copy(os.Stdout, os.Stdin)
	return failed(err)
}
