package guest

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// tree walks below one directory with descriptors, never through a symlink. It
// keeps the way to the last directory open: archives come in order, so the
// next one is usually the same or close by.
type tree struct {
	root int
	path []step
}

type step struct {
	name string
	fd   int
}

// openDir opens a directory that is not reached through a symlink. It does not
// use O_DIRECTORY: gVisor, asked for a directory, follows a last symlink in
// spite of O_NOFOLLOW. Non-blocking, in case it is a fifo.
func openDir(parent int, name string) (int, error) {
	fd, err := unix.Openat(parent, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return -1, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		unix.Close(fd)
		return -1, unix.ENOTDIR
	}
	return fd, nil
}

// openTree opens the directory rel below root, which is ours. With create, what
// is missing is made.
func openTree(root, rel string, create bool) (*tree, error) {
	elems, err := split(rel)
	if err != nil {
		return nil, err
	}
	fd, err := openDir(unix.AT_FDCWD, root)
	if err != nil {
		return nil, fmt.Errorf("cannot open %s: %w", root, err)
	}
	above := &tree{root: fd}
	defer above.close()
	at, err := above.dir(elems, create)
	if err != nil {
		return nil, err
	}
	at, err = unix.FcntlInt(uintptr(at), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return &tree{root: at}, nil
}

func (t *tree) close() {
	t.cut(0)
	unix.Close(t.root)
}

func (t *tree) cut(n int) {
	for _, s := range t.path[n:] {
		unix.Close(s.fd)
	}
	t.path = t.path[:n]
}

// dir returns a descriptor of the directory with that path, valid until the
// next call. With create, what is missing is made.
func (t *tree) dir(elems []string, create bool) (int, error) {
	common := 0
	for common < len(t.path) && common < len(elems) && t.path[common].name == elems[common] {
		common++
	}
	t.cut(common)
	fd := t.root
	if common > 0 {
		fd = t.path[common-1].fd
	}
	for i := common; i < len(elems); i++ {
		next, err := openDir(fd, elems[i])
		if create && errors.Is(err, unix.ENOENT) {
			if err = unix.Mkdirat(fd, elems[i], 0o755); err == nil || errors.Is(err, unix.EEXIST) {
				next, err = openDir(fd, elems[i])
			}
		}
		switch {
		case errors.Is(err, unix.ENOENT):
			return -1, fmt.Errorf("directory %q: %w", strings.Join(elems[:i+1], "/"), ErrMissing)
		case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENXIO):
			return -1, invalid("%q is not a directory (a file or a symlink)", strings.Join(elems[:i+1], "/"))
		case errors.Is(err, unix.ENAMETOOLONG):
			return -1, invalid("name %.40q… is too long", elems[i])
		case err != nil:
			return -1, fmt.Errorf("cannot open directory %q: %w", strings.Join(elems[:i+1], "/"), err)
		}
		t.path = append(t.path, step{elems[i], next})
		fd = next
	}
	return fd, nil
}
