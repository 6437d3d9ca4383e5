package guest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/tunnel"
)

// NetworkFD is the descriptor over which everything goes out.
const NetworkFD = 3

// Network listens on the sandbox's loopback and carries each connection over one
// descriptor (package tunnel). What programs say on it is for the gateway outside,
// which speaks HTTP proxy and SOCKS5; the helper does not look. It says "ready" once
// it listens, and ends when the descriptor does. (It does without package net as
// Relay does.)
func Network(port int, stdout io.Writer) error {
	if err := unix.SetNonblock(NetworkFD, true); err != nil {
		return fmt.Errorf("cannot use descriptor %d: %w", NetworkFD, err)
	}
	out := tunnel.Open(os.NewFile(NetworkFD, "network"))
	defer out.Close()
	listener, err := listenLoopback(port)
	if err != nil {
		return fmt.Errorf("cannot listen on port %d: %w", port, err)
	}
	defer listener.Close()
	if _, err := io.WriteString(stdout, "ready\n"); err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() { failed <- carryAll(listener, out) }()
	select {
	case err := <-failed:
		return err
	case <-out.Done():
		return out.Err()
	}
}

func listenLoopback(port int) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "listener")
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}),
		unix.Listen(fd, 1024),
	)
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// carryAll accepts connections until that fails.
func carryAll(listener *os.File, out *tunnel.Session) error {
	raw, err := listener.SyscallConn()
	if err != nil {
		return err
	}
	for {
		var fd int
		var acceptErr error
		err := raw.Read(func(l uintptr) bool {
			fd, _, acceptErr = unix.Accept4(int(l), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			return !errors.Is(acceptErr, unix.EAGAIN)
		})
		switch {
		case err != nil:
			return err
		case errors.Is(acceptErr, unix.ECONNABORTED), errors.Is(acceptErr, unix.EINTR):
			continue
		case acceptErr != nil:
			return acceptErr
		}
		conn := os.NewFile(uintptr(fd), "connection")
		st, err := out.Open()
		if err != nil {
			conn.Close()
			return err
		}
		go carry(conn, st)
	}
}

// carry copies both ways until both have ended.
func carry(conn *os.File, st *tunnel.Stream) {
	defer conn.Close()
	defer st.Close()
	var both sync.WaitGroup
	both.Go(func() {
		if _, err := io.Copy(st, conn); err != nil {
			shutdown(conn, unix.SHUT_RD)
		}
		_ = st.CloseWrite()
	})
	if _, err := io.Copy(conn, st); err != nil {
		// Nobody reads any more, or the connection was given up.
		shutdown(conn, unix.SHUT_RD)
	}
	shutdown(conn, unix.SHUT_WR)
	both.Wait()
}

func shutdown(conn *os.File, how int) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), how) })
}
