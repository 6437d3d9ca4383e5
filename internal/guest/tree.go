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

const dirFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC

func openTree(dir string) (*tree, error) {
	fd, err := unix.Open(dir, dirFlags, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot open %s: %w", dir, err)
	}
	return &tree{root: fd}, nil
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
		next, err := unix.Openat(fd, elems[i], dirFlags, 0)
		if create && errors.Is(err, unix.ENOENT) {
			if err = unix.Mkdirat(fd, elems[i], 0o755); err == nil || errors.Is(err, unix.EEXIST) {
				next, err = unix.Openat(fd, elems[i], dirFlags, 0)
			}
		}
		switch {
		case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
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
