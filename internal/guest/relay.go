package guest

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Relay connects to a unix socket in the sandbox, and passes on what comes from
// either side, until the socket's side has ended. (Package net would make the
// helper a fifth larger, which every start of it pays for.)
func Relay(path string, stdin io.Reader, stdout io.Writer) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	conn := os.NewFile(uintptr(fd), path)
	defer conn.Close()
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return fmt.Errorf("cannot reach %s: %w", path, err)
	}
	go func() { _, _ = io.Copy(conn, stdin) }()
	_, err = io.Copy(stdout, conn)
	return err
}
