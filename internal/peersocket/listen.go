// Package peersocket listens on unix sockets for processes of certain users only.
package peersocket

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Listen listens on a unix socket and lets in only processes that run as
// root, as this process's user, or as one of uids; the kernel says who they
// are. Others are closed before a byte of theirs is read, and logged.
//
// The file's mode is 0600. Only if uids names somebody else is it 0666, since
// they could not connect otherwise; the kernel's word then decides alone.
//
// A socket file that nobody listens on is replaced. One with a listener, or
// anything else at that path, is left alone and is an error. Close removes the
// file if it is still this one.
//
// Setting is where an operator names users, for the log.
func Listen(path string, uids []uint32, setting string, log *slog.Logger) (net.Listener, error) {
	allowed := append([]uint32{0, uint32(os.Getuid())}, uids...)
	mode := fs.FileMode(0o600)
	for _, uid := range uids {
		if uid != 0 && uid != uint32(os.Getuid()) {
			mode = 0o666
		}
	}
	l, err := bindUnix(path, mode)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", path, err)
	}
	info, err := os.Lstat(path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot listen on %s: %w", path, err), l.Close())
	}
	return &peerListener{UnixListener: l, path: path, file: info, allowed: allowed, setting: setting, log: log}, nil
}

// Inherited does the same on a socket that another process has opened, which also
// removes its file.
func Inherited(f *os.File, uids []uint32, setting string, log *slog.Logger) (net.Listener, error) {
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on an inherited socket: %w", err)
	}
	unixListener, ok := l.(*net.UnixListener)
	if !ok {
		return nil, errors.Join(errors.New("cannot listen on an inherited socket: it is not a unix socket"), l.Close())
	}
	unixListener.SetUnlinkOnClose(false)
	allowed := append([]uint32{0, uint32(os.Getuid())}, uids...)
	return &peerListener{UnixListener: unixListener, path: l.Addr().String(), allowed: allowed, setting: setting, log: log}, nil
}

// bindUnix makes the socket beside its path and renames it there once its mode
// is right, so that it is never open to more than it should be. The lock on the
// directory keeps two processes from replacing each other's socket.
func bindUnix(path string, mode fs.FileMode) (*net.UnixListener, error) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close() // and with it the lock
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX); err != nil {
		return nil, fmt.Errorf("cannot lock its directory: %w", err)
	}
	if err := free(path); err != nil {
		return nil, err
	}
	bound := filepath.Join(filepath.Dir(path), fmt.Sprintf(".s%d", os.Getpid()))
	_ = os.Remove(bound)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: bound, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	err = os.Chmod(bound, mode)
	if err == nil {
		err = os.Rename(bound, path)
	}
	if err != nil {
		_ = os.Remove(bound)
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// free says whether path may be taken.
func free(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return errors.New("it exists and is not a socket; choose another path or remove it")
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	switch {
	case err == nil:
		_ = conn.Close()
		return errors.New("another process is listening there; stop it or choose another path")
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return nil
	default:
		return fmt.Errorf("cannot tell whether another process is listening there: %w", err)
	}
}

type peerListener struct {
	*net.UnixListener
	path    string
	file    fs.FileInfo
	allowed []uint32
	setting string
	log     *slog.Logger
	once    sync.Once
	closed  error
}

func (l *peerListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		cred, err := peer(conn)
		if err == nil && slices.Contains(l.allowed, cred.Uid) {
			return conn, nil
		}
		_ = conn.Close()
		if err != nil {
			l.log.Warn("refused a connection: cannot tell whose it is", "socket", l.path, "error", err)
		} else {
			l.log.Warn("refused a connection: user is not allowed; name it in "+l.setting+" if it should be",
				"socket", l.path, "uid", cred.Uid, "pid", cred.Pid)
		}
	}
}

func (l *peerListener) Close() error {
	l.once.Do(func() {
		if now, err := os.Lstat(l.path); err == nil && l.file != nil && os.SameFile(now, l.file) {
			_ = os.Remove(l.path)
		}
		l.closed = l.UnixListener.Close()
	})
	return l.closed
}

func peer(conn *net.UnixConn) (*syscall.Ucred, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *syscall.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil {
		return nil, err
	}
	return cred, credErr
}
