package dir

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const openDir = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC

// top opens one of the two directories of the store. That they are there also
// tells a storage that is mounted from an empty mount point.
func (s *Store) top(name string) (*os.File, error) {
	root, err := os.Open(s.path) // the operator's path, which may be a link
	if err == nil {
		defer root.Close()
		var fd int
		if fd, err = unix.Openat(int(root.Fd()), name, openDir, 0); err == nil {
			return os.NewFile(uintptr(fd), name), nil
		}
	}
	return nil, fmt.Errorf("%w: %w", errAway, noErrno{err})
}

// errAway is a storage that is not there. It must not look like a file that
// is not there, so its cause is kept as words.
var errAway = errors.New("the directory cannot be opened")

type noErrno struct{ cause error }

func (e noErrno) Error() string { return e.cause.Error() }

// descend goes down step by step, so that no step follows a link, and closes
// the directory it came from. With create it makes what is missing.
func descend(at *os.File, dirs []string, create bool) (*os.File, error) {
	for _, d := range dirs {
		next, err := step(at, d, create)
		at.Close()
		if err != nil {
			return nil, err
		}
		at = next
	}
	return at, nil
}

func step(at *os.File, name string, create bool) (*os.File, error) {
	fd, err := unix.Openat(int(at.Fd()), name, openDir, 0)
	if create && errors.Is(err, unix.ENOENT) {
		if err := unix.Mkdirat(int(at.Fd()), name, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
			return nil, err
		}
		if err := at.Sync(); err != nil {
			return nil, err
		}
		fd, err = unix.Openat(int(at.Fd()), name, openDir, 0)
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// removeTree removes a file, or a directory with all that is in it. What is
// not there is removed already.
func removeTree(at *os.File, name string) error {
	err := unix.Unlinkat(int(at.Fd()), name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
		return err
	}
	// A file that comes while the directory is emptied is found in the next
	// round.
	for range 100 {
		dir, err := step(at, name, false)
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		if err != nil {
			return err
		}
		err = empty(dir)
		dir.Close()
		if err != nil {
			return err
		}
		err = unix.Unlinkat(int(at.Fd()), name, unix.AT_REMOVEDIR)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.ENOTEMPTY) {
			return err
		}
	}
	return fmt.Errorf("directory %s does not become empty", name)
}

func empty(dir *os.File) error {
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := removeTree(dir, name); err != nil {
			return err
		}
	}
	return nil
}

// prune removes directories that are empty, from the innermost outwards.
func (s *Store) prune(dirs []string) error {
	for n := len(dirs); n > 0; n-- {
		top, err := s.top(blobsDir)
		if err != nil {
			return err
		}
		at, err := descend(top, dirs[:n-1], false)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return err
		}
		err = unix.Unlinkat(int(at.Fd()), dirs[n-1], unix.AT_REMOVEDIR)
		at.Close()
		switch {
		case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST):
			return nil // something else is there
		case err != nil && !errors.Is(err, unix.ENOENT):
			return err
		}
	}
	return nil
}
