package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// id prints who the program is and what it may do.
func id() int {
	groups, _ := os.Getgroups()
	fmt.Println("uid", os.Getuid(), os.Geteuid())
	fmt.Println("gid", os.Getgid(), os.Getegid())
	fmt.Println("groups", groups)
	const prGetNoNewPrivs = 39
	nnp, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, prGetNoNewPrivs, 0, 0, 0, 0, 0)
	if errno != 0 {
		return failed(errno)
	}
	fmt.Println("no_new_privs", nnp)
	status, err := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "Cap") {
			fmt.Println(strings.Join(strings.Fields(line), " "))
		}
	}
	return failed(err)
}

// network prints the interfaces there are, and what becomes of attempts to
// reach the addresses and names given.
func network(args []string) int {
	ifaces, err := net.Interfaces()
	if err != nil {
		fmt.Println("interfaces error", err)
	}
	for _, i := range ifaces {
		fmt.Println("interface", i.Name)
	}
	for _, a := range args {
		began := time.Now()
		var err error
		network, rest, _ := strings.Cut(a, ":")
		switch network {
		case "lookup":
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			_, err = net.DefaultResolver.LookupHost(ctx, rest)
			cancel()
		default:
			var c net.Conn
			c, err = net.DialTimeout(network, rest, 20*time.Second)
			if err == nil && network == "udp" {
				_, err = c.Write([]byte("x"))
			}
		}
		took := "fast"
		if time.Since(began) > 10*time.Second {
			took = "slow"
		}
		fmt.Println("try", a, took, resultName(err))
	}
	return 0
}

func resultName(err error) string {
	var errno syscall.Errno
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &errno):
		return errName(errno)
	}
	return strings.ReplaceAll(err.Error(), "\n", " ")
}

// listen accepts connections for ever ("tcp" on loopback, "unix" also with an
// abstract name) and greets each.
func listen(network, addr string) int {
	l, err := net.Listen(network, addr)
	if err != nil {
		return failed(err)
	}
	fmt.Println("ready")
	for {
		c, err := l.Accept()
		if err != nil {
			return failed(err)
		}
		_, _ = c.Write([]byte("hello\n"))
		_ = c.Close()
	}
}

func dial(network, addr string) int {
	c, err := net.DialTimeout(network, addr, 10*time.Second)
	if err != nil {
		return failed(err)
	}
	defer c.Close()
	fmt.Println("connected")
	return 0
}

// proxy asks a proxy for a tunnel and prints the first line of its answer.
func proxy(addr, name string) int {
	c, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return failed(err)
	}
	defer c.Close()
	if _, err := fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", name, name); err != nil {
		return failed(err)
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	fmt.Print(line)
	return failed(err)
}

func mksock(path string) error {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	return syscall.Bind(fd, &syscall.SockaddrUnix{Name: path})
}

// writable prints every directory in which a file can be made, and every
// file outside them that can be opened for writing.
func writable() int {
	return failed(filepath.WalkDir("/", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // not ours to see, so not ours to write
		}
		if path == "/proc" || path == "/sys" {
			return fs.SkipDir
		}
		switch d.Type() {
		case fs.ModeDir:
			f, err := os.OpenFile(filepath.Join(path, ".writable"), os.O_CREATE|os.O_WRONLY, 0o600)
			if err != nil {
				return nil
			}
			_ = f.Close()
			_ = os.Remove(f.Name())
			fmt.Printf("dir %s\n", path)
			return fs.SkipDir // what is below belongs to it
		case 0:
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return nil
			}
			// A directory lists a device that is mounted on a file as that file.
			if info, err := f.Stat(); err != nil || info.Mode().IsRegular() {
				fmt.Printf("file %s\n", path)
			}
			_ = f.Close()
		}
		return nil
	}))
}

type winsize struct{ rows, cols, x, y uint16 }

func windowSize(fd int) (winsize, bool) {
	var ws winsize
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&ws)))
	return ws, errno == 0
}

// tty prints which of its descriptors are terminals, of what size, and
// whether there is a controlling one. The last line goes to stderr.
func tty() int {
	for fd := range 3 {
		ws, ok := windowSize(fd)
		fmt.Printf("fd %d terminal %v %dx%d\n", fd, ok, ws.cols, ws.rows)
	}
	f, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	fmt.Println("controlling", err == nil)
	if err == nil {
		_ = f.Close()
	}
	fmt.Fprintln(os.Stderr, "on stderr")
	return 0
}

// winch prints the terminal's size at the start and after each of n changes.
func winch(n int64) int {
	ch := make(chan os.Signal, 16)
	signal.Notify(ch, syscall.SIGWINCH)
	ws, _ := windowSize(0)
	fmt.Printf("size %dx%d\n", ws.cols, ws.rows)
	for range n {
		<-ch
		ws, _ = windowSize(0)
		fmt.Printf("size %dx%d\n", ws.cols, ws.rows)
	}
	return 0
}
