package main

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/peersocket"
	"github.com/agentdock/agentdock/internal/settings"
)

// stageVariable marks the second life of the process. It is never passed on. The
// mark alone is not believed: checkPrivileges looks.
const stageVariable = settings.EgressPrefix + "STAGE=isolated"

func stage(environ []string) (rest []string, isolated bool) {
	rest = slices.DeleteFunc(slices.Clone(environ), func(kv string) bool { return kv == stageVariable })
	return rest, len(rest) != len(environ)
}

// scrubbed is what of environ the gateway keeps. Proxies of the host are not among
// it: they would resolve names where nothing is checked.
func scrubbed(environ []string) []string {
	kept := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if name == "LANG" || name == "TZ" || name == "AGENTDOCK_NETWORK_FILE" || strings.HasPrefix(name, settings.EgressPrefix) {
			kept = append(kept, kv)
		}
	}
	return kept
}

// isolate replaces the process by itself with an environment of its own; root
// becomes a user that is nobody else, and opens the socket before. It returns only
// on failure.
func isolate(args []string, c config, environ []string) error {
	runtime.LockOSThread()
	if os.Geteuid() == 0 {
		fd, err := openSocket(c)
		if err != nil {
			return fmt.Errorf("cannot start: %w", err)
		}
		c.ListenerFD = fd
		args = append(slices.Clone(args), "--listener-fd="+strconv.Itoa(fd))
		// The operator's file may be where only root can read it.
		switch fd, err := unix.Open(c.NetworkFile, unix.O_RDONLY|unix.O_CLOEXEC, 0); {
		case err == nil:
			c.NetworkFD = fd
			args = append(args, "--network-fd="+strconv.Itoa(fd))
		case !errors.Is(err, unix.ENOENT):
			return fmt.Errorf("cannot start: cannot open %s: %w", c.NetworkFile, err)
		}
		if err := become(int(c.User)); err != nil {
			return fmt.Errorf("cannot start: %w", err)
		}
	}
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("cannot start: cannot drop inherited descriptors: %w", err)
	}
	for _, fd := range []int{c.ReadyFD, c.ExitWithFD, c.ListenerFD, c.NetworkFD} {
		if fd < 0 {
			continue
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil || fd < 3 {
			return fmt.Errorf("cannot start: descriptor %d is not open, or a standard one", fd)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot start: cannot set no_new_privs: %w", err)
	}
	err := syscall.Exec("/proc/self/exe", args, append(scrubbed(environ), stageVariable))
	return fmt.Errorf("cannot start: cannot start again as another user: %w", err)
}

// openSocket opens the socket as root, in a directory that the gateway may not
// write.
func openSocket(c config) (int, error) {
	if c.User == 0 || c.User > math.MaxUint32-1 {
		return -1, fmt.Errorf("%sUSER is %d; it must be a user that is not root", settings.EgressPrefix, c.User)
	}
	if err := os.MkdirAll(filepath.Dir(c.Socket), 0o755); err != nil {
		return -1, err
	}
	l, err := peersocket.Listen(c.Socket, nil, "", slog.New(slog.DiscardHandler))
	if err != nil {
		return -1, err
	}
	// Not closed: closing it would remove the file.
	conn, err := l.(syscall.Conn).SyscallConn()
	if err != nil {
		return -1, err
	}
	fd := -1
	if controlErr := conn.Control(func(raw uintptr) { fd, err = unix.FcntlInt(raw, unix.F_DUPFD_CLOEXEC, 3) }); controlErr != nil {
		return -1, controlErr
	}
	return fd, err
}

// become gives up being root in all threads.
func become(user int) error {
	if err := syscall.Setgroups(nil); err != nil {
		return fmt.Errorf("cannot give up groups: %w", err)
	}
	if err := syscall.Setresgid(user, user, user); err != nil {
		return fmt.Errorf("cannot become group %d: %w", user, err)
	}
	if err := syscall.Setresuid(user, user, user); err != nil {
		return fmt.Errorf("cannot become user %d: %w", user, err)
	}
	return nil
}

// checkPrivileges refuses to serve with rights that it has no use for.
func checkPrivileges() error {
	if os.Getuid() == 0 || os.Geteuid() == 0 || os.Getgid() == 0 {
		return errors.New("cannot start: this is root, which the gateway must not be; start it without setting its stage by hand")
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("cannot start: cannot read the own capabilities: %w", err)
	}
	for _, d := range data {
		if d.Effective|d.Permitted|d.Inheritable != 0 {
			return errors.New("cannot start: it has capabilities and needs none")
		}
	}
	nnp, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil || nnp != 1 {
		return fmt.Errorf("cannot start: no_new_privs is %d, %v; start it without setting its stage by hand", nnp, err)
	}
	// Nobody of the same user may look into it.
	return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}

// listener is the socket that root opened, or one of the gateway's own.
func listener(c config, log *slog.Logger) (net.Listener, error) {
	uids := make([]uint32, len(c.AllowedUIDs))
	for i, uid := range c.AllowedUIDs {
		uids[i] = uint32(uid)
	}
	const setting = settings.EgressPrefix + "ALLOWED_UIDS"
	if c.ListenerFD < 0 {
		return peersocket.Listen(c.Socket, uids, setting, log)
	}
	f := os.NewFile(uintptr(c.ListenerFD), "listener")
	defer f.Close()
	return peersocket.Inherited(f, uids, setting, log)
}
