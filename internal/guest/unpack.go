package guest

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Unpack reads a tar stream and makes its entries in the directory dir below
// root, which it creates. Nothing is made through a symlink, above dir or over a
// special file. Owners are ignored: everything belongs to the user that
// unpacks.
func Unpack(root, dir string, r io.Reader) error {
	t, err := openTree(root, dir, true)
	if err != nil {
		return err
	}
	defer t.close()
	u := &unpacker{tree: t, buf: make([]byte, 256<<10)}
	// Files are made with the mode they shall have, which is one call less for
	// each.
	unix.Umask(0)
	// The tar reader asks for 512 bytes at a time.
	in := tar.NewReader(bufio.NewReaderSize(r, 256<<10))
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return u.finishDirs()
		}
		if err != nil {
			return invalid("not a tar archive: %v", err)
		}
		if err := u.entry(h, in); err != nil {
			return err
		}
	}
}

type unpacker struct {
	tree *tree
	buf  []byte
	// dirs get their mode and time at the end, so that a read-only directory
	// can be filled first.
	dirs []*tar.Header
}

func (u *unpacker) entry(h *tar.Header, r io.Reader) error {
	elems, err := split(h.Name)
	if err != nil {
		return err
	}
	if len(elems) == 0 {
		return nil // the directory itself
	}
	switch h.Typeflag {
	case tar.TypeDir:
		if _, err := u.tree.dir(elems, true); err != nil {
			return err
		}
		u.dirs = append(u.dirs, h)
		return nil
	case tar.TypeReg, tar.TypeSymlink, tar.TypeLink, tar.TypeGNUSparse:
	case tar.TypeXGlobalHeader:
		return nil
	default:
		return invalid("entry %q is neither file, directory, symlink nor hard link (type %q)", h.Name, h.Typeflag)
	}
	parent, err := u.tree.dir(elems[:len(elems)-1], true)
	if err != nil {
		return err
	}
	name := elems[len(elems)-1]
	switch h.Typeflag {
	case tar.TypeSymlink:
		return u.replace(parent, name, h, func() error { return unix.Symlinkat(h.Linkname, parent, name) })
	case tar.TypeLink:
		return u.link(parent, name, h)
	}
	return u.file(parent, name, h, r)
}

// replace makes something under a name that may be taken by a file.
func (u *unpacker) replace(parent int, name string, h *tar.Header, make func() error) error {
	err := make()
	if errors.Is(err, unix.EEXIST) {
		if err = unix.Unlinkat(parent, name, 0); err == nil {
			err = make()
		} else if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
			return invalid("entry %q would replace a directory", h.Name)
		}
	}
	if err != nil {
		return fmt.Errorf("cannot make %q: %w", h.Name, err)
	}
	return nil
}

func (u *unpacker) link(parent int, name string, h *tar.Header) error {
	target, err := split(h.Linkname)
	if err != nil {
		return invalid("hard link %q leads outside: %v", h.Name, err)
	}
	if len(target) == 0 {
		return invalid("hard link %q leads to the directory itself", h.Name)
	}
	// The walk to the target moves the tree's cursor; parent must outlive it.
	parent, err = unix.FcntlInt(uintptr(parent), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	from, err := u.tree.dir(target[:len(target)-1], false)
	if err != nil {
		return err
	}
	base := target[len(target)-1]
	var st unix.Stat_t
	if err := unix.Fstatat(from, base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return invalid("hard link %q leads to %q, which does not exist", h.Name, h.Linkname)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG && st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return invalid("hard link %q leads to %q, which is not a file", h.Name, h.Linkname)
	}
	return u.replace(parent, name, h, func() error { return unix.Linkat(from, base, parent, name, 0) })
}

func (u *unpacker) file(parent int, name string, h *tar.Header, r io.Reader) error {
	fd := -1
	err := u.replace(parent, name, h, func() (err error) {
		fd, err = unix.Openat(parent, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, perm(h))
		return err
	})
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if _, err := io.CopyBuffer(onlyWriter{f}, r, u.buf); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return invalid("archive ends in the middle of %q", h.Name)
		}
		return fmt.Errorf("cannot write %q: %w", h.Name, err)
	}
	return setTime(parent, name, h)
}

// onlyWriter hides ReadFrom, which would bypass the large buffer.
type onlyWriter struct{ io.Writer }

func (u *unpacker) finishDirs() error {
	for i := len(u.dirs) - 1; i >= 0; i-- {
		h := u.dirs[i]
		elems, err := split(h.Name)
		if err != nil {
			return err
		}
		fd, err := u.tree.dir(elems, false)
		if err != nil {
			return err
		}
		if err := unix.Fchmod(fd, perm(h)); err != nil {
			return fmt.Errorf("cannot set the mode of %q: %w", h.Name, err)
		}
		if err := setTime(fd, ".", h); err != nil {
			return err
		}
	}
	return nil
}

// perm keeps the permission bits and drops setuid, setgid and sticky, which
// have no effect in a sandbox.
func perm(h *tar.Header) uint32 { return uint32(h.Mode) & 0o777 }

func setTime(parent int, name string, h *tar.Header) error {
	if h.ModTime.IsZero() || h.ModTime.Before(time.Unix(0, 0)) {
		return nil
	}
	ts := unix.NsecToTimespec(h.ModTime.UnixNano())
	if err := unix.UtimesNanoAt(parent, name, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("cannot set the time of %q: %w", h.Name, err)
	}
	return nil
}

// split turns a name of an archive into path elements and refuses every name
// that could leave the directory.
func split(name string) ([]string, error) {
	switch {
	case strings.HasPrefix(name, "/"):
		return nil, invalid("entry %q is absolute", name)
	case strings.IndexByte(name, 0) >= 0:
		return nil, invalid("entry %q holds a NUL byte", name)
	}
	for _, e := range strings.Split(name, "/") {
		if e == ".." {
			return nil, invalid("entry %q holds '..'", name)
		}
	}
	clean := path.Clean(name)
	if clean == "." {
		return nil, nil
	}
	return strings.Split(clean, "/"), nil
}
