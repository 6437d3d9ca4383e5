package dirpack

import (
	"context"
	"errors"
	"os"
	"path"
	"sort"

	"golang.org/x/sys/unix"
)

// entry is one name in an open directory.
type entry struct {
	parent     int // descriptor of the directory
	base, name string
	st         unix.Stat_t
}

func (e entry) kind() uint32 { return e.st.Mode & unix.S_IFMT }

// walk visits everything below the directory, parents first and each directory
// in order of its names. Directories are opened one in the other by name
// without following, so that the walk cannot be led out of the tree.
func (d *Dir) walk(ctx context.Context, visit func(entry) error) error {
	// Opened anew: a descriptor of a directory remembers how far it was read.
	fd, err := unix.Openat(int(d.root.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return cannot("read directory", d.path, err)
	}
	return walk(ctx, fd, "", visit)
}

// walk visits what is in directory fd, which it closes.
func walk(ctx context.Context, fd int, name string, visit func(entry) error) error {
	dir := os.NewFile(uintptr(fd), name)
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return cannot("read directory", name, err)
	}
	sort.Strings(names)
	for _, base := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		e := entry{parent: fd, base: base, name: path.Join(name, base)}
		err := unix.Fstatat(fd, base, &e.st, unix.AT_SYMLINK_NOFOLLOW)
		if gone(err) {
			continue // deleted since the directory was read
		}
		if err != nil {
			return cannot("look at", e.name, err)
		}
		if err := visit(e); err != nil {
			return err
		}
		if e.kind() != unix.S_IFDIR {
			continue
		}
		sub, err := unix.Openat(fd, base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		switch {
		case gone(err):
			continue
		case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR):
			return changed(e.name)
		case err != nil:
			return cannot("read directory", e.name, err)
		}
		if err := walk(ctx, sub, e.name, visit); err != nil {
			return err
		}
	}
	return nil
}
