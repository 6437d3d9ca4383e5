package ingest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// materialize writes a finished tree below path, which must not exist yet, in
// a directory only we can enter.
//
// Every call names one component relative to an open directory that was made
// a moment ago, and none follows a link. So although symlinks with hostile
// targets are created, and come last in their directory, there is no call
// that could resolve one.
func materialize(ctx context.Context, root *node, sp *spool, path string) error {
	spoolDir, err := sp.dir.Open(".")
	if err != nil {
		return fmt.Errorf("cannot open spool: %w", err)
	}
	defer spoolDir.Close()
	if err := os.Mkdir(path, 0o700); err != nil {
		return fmt.Errorf("cannot make root directory: %w", err)
	}
	top, err := unix.Open(path, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_RDONLY, 0)
	if err != nil {
		return fmt.Errorf("cannot open root directory: %w", err)
	}
	defer unix.Close(top)
	m := &materializer{ctx: ctx, spool: int(spoolDir.Fd())}
	if err := m.fill(top, root, ""); err != nil {
		return err
	}
	return m.finish(top, root)
}

type materializer struct {
	ctx   context.Context
	spool int
	paths map[*inode]struct{} // files with several names, once placed
}

// fill makes everything in one directory: real directories and files first,
// symlinks at the end.
func (m *materializer) fill(fd int, dir *node, path string) error {
	if err := context.Cause(m.ctx); err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(dir.children))
	for _, name := range names {
		n := dir.children[name]
		var err error
		switch n.kind {
		case directory:
			err = m.subdirectory(fd, n, name, join(path, name))
		case regular:
			err = m.file(fd, n, name)
		}
		if err != nil {
			return wrapAt(err, join(path, name))
		}
	}
	for _, name := range names {
		if n := dir.children[name]; n.kind == symlink {
			if err := m.symlink(fd, n, name); err != nil {
				return wrapAt(err, join(path, name))
			}
		}
	}
	return nil
}

// atError keeps the innermost path only.
type atError struct {
	path  string
	cause error
}

func (e *atError) Error() string { return fmt.Sprintf("cannot write %.300q: %v", e.path, e.cause) }
func (e *atError) Unwrap() error { return e.cause }

func wrapAt(err error, path string) error {
	if _, ok := errors.AsType[*atError](err); ok {
		return err
	}
	return &atError{path, err}
}

func (m *materializer) subdirectory(parent int, n *node, name, path string) error {
	if err := unix.Mkdirat(parent, name, 0o700); err != nil {
		return err
	}
	fd, err := unix.Openat(parent, name, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := m.fill(fd, n, path); err != nil {
		return err
	}
	return m.finish(fd, n)
}

// finish gives an open directory its attributes; after its contents, because
// they would change its time.
func (m *materializer) finish(fd int, n *node) error {
	if err := unix.Fchown(fd, n.uid, n.gid); err != nil {
		return err
	}
	if err := unix.Fchmod(fd, n.mode); err != nil {
		return err
	}
	t := unix.NsecToTimeval(n.mtime.UnixNano())
	return unix.Futimes(fd, []unix.Timeval{t, t})
}

// file moves spooled contents to their place; while more names are to come, a
// link is made instead, so that in the end the number of links is right.
func (m *materializer) file(dir int, n *node, name string) error {
	from := spoolName(n.content)
	if _, done := m.paths[n.inode]; !done {
		if err := m.attributes(m.spool, from, n.inode); err != nil {
			return err
		}
		if n.links > 1 {
			if m.paths == nil {
				m.paths = map[*inode]struct{}{}
			}
			m.paths[n.inode] = struct{}{}
		}
	}
	if n.links--; n.links > 0 {
		return unix.Linkat(m.spool, from, dir, name, 0)
	}
	return unix.Renameat(m.spool, from, dir, name)
}

func (m *materializer) symlink(dir int, n *node, name string) error {
	if err := unix.Symlinkat(n.target, dir, name); err != nil {
		return err
	}
	return m.attributes(dir, name, n.inode)
}

func (m *materializer) attributes(dir int, name string, in *inode) error {
	if err := unix.Fchownat(dir, name, in.uid, in.gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if in.kind == regular { // a name in the spool, made by us
		if err := unix.Fchmodat(dir, name, in.mode, 0); err != nil {
			return err
		}
	}
	t := unix.NsecToTimespec(in.mtime.UnixNano())
	return unix.UtimesNanoAt(dir, name, []unix.Timespec{t, t}, unix.AT_SYMLINK_NOFOLLOW)
}
