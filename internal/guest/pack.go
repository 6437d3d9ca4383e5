package guest

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"sort"
	"time"

	"github.com/bmatcuk/doublestar/v4"
	"golang.org/x/sys/unix"
)

// Pack writes what is in the directory dir below root and matches one of the
// patterns (all, if there are none) as tar: regular files, directories and
// symlinks. Nothing is followed; what is neither of the three is left out. More
// than most bytes of contents is ErrTooLarge.
func Pack(root, dir string, patterns []string, most int64, w io.Writer) error {
	t, err := openTree(root, dir, false)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(w, 256<<10)
	p := &packer{tar: tar.NewWriter(out), patterns: patterns, left: most, buf: make([]byte, 256<<10)}
	if err := p.walk(t.root, ""); err != nil {
		return err
	}
	if err := p.tar.Close(); err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return p.denied
}

type packer struct {
	tar      *tar.Writer
	patterns []string
	left     int64
	buf      []byte
	// denied is the first refusal to read something; the rest is packed all
	// the same.
	denied error
}

// refused notes a refusal and lets the packing go on; other errors end it.
func (p *packer) refused(err error) error {
	if !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EPERM) {
		return err
	}
	if p.denied == nil {
		p.denied = err
	}
	return nil
}

// walk packs the directory fd, which it closes.
func (p *packer) walk(fd int, name string) error {
	d := os.NewFile(uintptr(fd), name)
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("cannot read directory %q: %w", name, err)
	}
	sort.Strings(names)
	for _, n := range names {
		if err := p.entry(fd, n, path.Join(name, n)); err != nil {
			return err
		}
	}
	return nil
}

func (p *packer) entry(parent int, base, name string) error {
	var st unix.Stat_t
	if err := unix.Fstatat(parent, base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return nil // gone meanwhile
		}
		return p.refused(fmt.Errorf("cannot stat %q: %w", name, err))
	}
	wanted := p.matches(name)
	h := &tar.Header{
		Name:    name,
		Mode:    int64(st.Mode & 0o777),
		ModTime: time.Unix(st.Mtim.Unix()),
		Format:  tar.FormatPAX,
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		if wanted {
			h.Typeflag, h.Name = tar.TypeDir, name+"/"
			if err := p.tar.WriteHeader(h); err != nil {
				return headerError(name, err)
			}
		}
		fd, err := openDir(parent, base)
		if err != nil {
			return p.refused(fmt.Errorf("cannot open directory %q: %w", name, err))
		}
		return p.walk(fd, name)
	case unix.S_IFLNK:
		if !wanted {
			return nil
		}
		target := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(parent, base, target)
		if err != nil {
			return fmt.Errorf("cannot read symlink %q: %w", name, err)
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, string(target[:n])
		return headerError(name, p.tar.WriteHeader(h))
	case unix.S_IFREG:
		if !wanted {
			return nil
		}
		return p.file(parent, base, h)
	}
	return nil
}

func (p *packer) file(parent int, base string, h *tar.Header) error {
	// Non-blocking, in case it was changed into a fifo since.
	fd, err := unix.Openat(parent, base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return p.refused(fmt.Errorf("cannot open %q: %w", h.Name, err))
	}
	f := os.NewFile(uintptr(fd), h.Name)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil
	}
	if st.Size > p.left {
		return fmt.Errorf("%w: %q does not fit any more", ErrTooLarge, h.Name)
	}
	p.left -= st.Size
	h.Typeflag, h.Size = tar.TypeReg, st.Size
	if err := p.tar.WriteHeader(h); err != nil {
		return headerError(h.Name, err)
	}
	n, err := io.CopyBuffer(onlyWriter{p.tar}, io.LimitReader(f, st.Size), p.buf)
	if err == nil && n < st.Size {
		err = errors.New("it shrank meanwhile")
	}
	if err != nil {
		return fmt.Errorf("cannot pack %q: %w", h.Name, err)
	}
	return nil
}

func (p *packer) matches(name string) bool {
	if len(p.patterns) == 0 {
		return true
	}
	for _, pattern := range p.patterns {
		if ok, err := doublestar.Match(pattern, name); ok && err == nil {
			return true
		}
	}
	return false
}

func headerError(name string, err error) error {
	if err != nil {
		return fmt.Errorf("cannot pack %q: %w", name, err)
	}
	return nil
}
