// Package dirpack sends a directory of the host as a tar stream: what "run
// --dir" copies into a sandbox. It holds one file's buffer in memory, whatever
// the size of the tree, and never follows a symlink below the directory.
//
// Each file is sent as it was at one moment. One that changes meanwhile is read
// again while it is small, and fails the pack by name when it is not: an
// archive that arrives is never torn.
package dirpack

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/fault"
)

const (
	// small files are read whole before they are sent, so that one that
	// changed can be read again.
	small = 1 << 20
	// block is what file systems give out at least.
	block = 4096
	// attempts to read a small file that keeps changing.
	attempts = 5
)

// Dir is a directory to be packed. It stays open, so that what is packed is
// what was surveyed even if its path comes to lead elsewhere.
type Dir struct {
	path string
	root *os.File

	// reread is called between looking at a file and reading it; for tests.
	reread func(name string)
}

// Open opens the directory at path, which may be a symlink: the user named it.
func Open(path string) (*Dir, error) {
	root, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fault.New(fault.Invalid, "cannot send directory %q: it does not exist", path)
	case errors.Is(err, unix.ENOTDIR):
		return nil, fault.New(fault.Invalid, "cannot send directory %q: it is not a directory; put the file into one", path)
	case errors.Is(err, unix.ELOOP):
		return nil, fault.New(fault.Invalid, "cannot send directory %q: it is a symlink that leads to itself", path)
	case err != nil:
		return nil, cannot("send directory", path, err)
	}
	return &Dir{path: path, root: root}, nil
}

// Close frees the directory.
func (d *Dir) Close() error { return d.root.Close() }

// Survey is what a walk found.
type Survey struct {
	// Entries counts all that will be sent, Bytes their contents, and Blocks
	// the room they take where each file has whole blocks of its own.
	Entries, Bytes, Blocks int64
	// Skipped are the first few of what cannot be sent: sockets, fifos and
	// devices; Unsent counts all of them.
	Skipped []string
	Unsent  int
}

// mostSkipped bounds Survey.Skipped.
const mostSkipped = 10

// Survey walks the directory without reading files. It fails, naming it, for
// something that could not be read later.
func (d *Dir) Survey(ctx context.Context) (Survey, error) {
	var s Survey
	err := d.walk(ctx, func(e entry) error {
		switch e.kind() {
		case unix.S_IFREG:
			if err := unix.Faccessat(e.parent, e.base, unix.R_OK, unix.AT_EACCESS); err != nil && !gone(err) {
				return cannot("read", e.name, err)
			}
			s.Bytes += e.st.Size
			s.Blocks += (e.st.Size + block - 1) / block * block
		case unix.S_IFDIR, unix.S_IFLNK:
		default:
			if s.Unsent++; len(s.Skipped) < mostSkipped {
				s.Skipped = append(s.Skipped, fmt.Sprintf("%q is a %s", e.name, special(e.kind())))
			}
			return nil
		}
		s.Entries++
		return nil
	})
	return s, err
}

// Pack writes the tree as tar. Owners are left out; hard links become copies.
func (d *Dir) Pack(ctx context.Context, w io.Writer) error {
	out := bufio.NewWriterSize(w, 256<<10)
	p := &packer{dir: d, tar: tar.NewWriter(out), buf: make([]byte, small+1)}
	if err := d.walk(ctx, p.entry); err != nil {
		return err
	}
	if err := p.tar.Close(); err != nil {
		return err
	}
	return out.Flush()
}

type packer struct {
	dir *Dir
	tar *tar.Writer
	buf []byte
}

func (p *packer) entry(e entry) error {
	h := &tar.Header{
		Name:    e.name,
		Mode:    int64(e.st.Mode & 0o777),
		ModTime: time.Unix(e.st.Mtim.Unix()),
		// PAX takes every name: long, with newlines, not UTF-8.
		Format: tar.FormatPAX,
	}
	switch e.kind() {
	case unix.S_IFDIR:
		h.Typeflag, h.Name = tar.TypeDir, e.name+"/"
		return p.header(h)
	case unix.S_IFLNK:
		target := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(e.parent, e.base, target)
		if gone(err) || errors.Is(err, unix.EINVAL) {
			return changed(e.name)
		}
		if err != nil {
			return cannot("read symlink", e.name, err)
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, string(target[:n])
		return p.header(h)
	case unix.S_IFREG:
		h.Typeflag = tar.TypeReg
		return p.file(e, h)
	}
	return nil // Survey has said so
}

func (p *packer) header(h *tar.Header) error {
	err := p.tar.WriteHeader(h)
	if errors.Is(err, tar.ErrHeader) || errors.Is(err, tar.ErrFieldTooLong) {
		return fault.Wrap(fault.Invalid, err, "cannot send %q: tar cannot hold it", h.Name)
	}
	return err // the writer's own, which is the caller's
}

func (p *packer) file(e entry, h *tar.Header) error {
	// Non-blocking, in case it was changed into a fifo since.
	fd, err := unix.Openat(e.parent, e.base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil // deleted since: as if it had never been there
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENXIO):
		return changed(e.name) // into a symlink, a fifo or a socket
	case err != nil:
		return cannot("read", e.name, err)
	}
	f := os.NewFile(uintptr(fd), e.name)
	defer f.Close()
	for range attempts {
		before, err := stat(f)
		if err != nil {
			return cannot("read", e.name, err)
		}
		if before.Mode&unix.S_IFMT != unix.S_IFREG {
			return changed(e.name)
		}
		if p.dir.reread != nil {
			p.dir.reread(e.name)
		}
		if before.Size > small {
			return p.large(f, before, h)
		}
		n, err := io.ReadFull(f, p.buf)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return cannot("read", e.name, err)
		}
		after, err := stat(f)
		if err != nil {
			return cannot("read", e.name, err)
		}
		if n <= small && same(before, after) {
			h.Size = int64(n)
			if err := p.header(h); err != nil {
				return err
			}
			_, err := p.tar.Write(p.buf[:n])
			return err
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return cannot("read", e.name, err)
		}
	}
	return changed(e.name)
}

// large streams a file. Its size is sent first, so one that changes cannot be
// taken back; it fails the whole archive.
func (p *packer) large(f *os.File, before unix.Stat_t, h *tar.Header) error {
	h.Size = before.Size
	if err := p.header(h); err != nil {
		return err
	}
	for left := before.Size; left > 0; {
		n, err := f.Read(p.buf[:min(left, small)])
		if errors.Is(err, io.EOF) {
			return changed(h.Name)
		}
		if err != nil {
			return cannot("read", h.Name, err)
		}
		if _, err := p.tar.Write(p.buf[:n]); err != nil {
			return err
		}
		left -= int64(n)
	}
	after, err := stat(f)
	if err != nil {
		return cannot("read", h.Name, err)
	}
	if !same(before, after) {
		return changed(h.Name)
	}
	return nil
}

func stat(f *os.File) (st unix.Stat_t, err error) {
	err = unix.Fstat(int(f.Fd()), &st)
	return st, err
}

func same(a, b unix.Stat_t) bool {
	return a.Size == b.Size && a.Mtim == b.Mtim && a.Ctim == b.Ctim
}

func changed(name string) error {
	return fault.New(fault.Unavailable, "cannot send %q: it changed while it was read; stop what writes to it and try again", name)
}

func cannot(what, name string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fault.Wrap(fault.Denied, fs.ErrPermission, "cannot %s %q", what, name)
	}
	var errno unix.Errno
	if errors.As(err, &errno) {
		err = errno
	}
	return fault.Wrap(fault.Invalid, err, "cannot %s %q", what, name)
}

func gone(err error) bool { return errors.Is(err, unix.ENOENT) }

func special(kind uint32) string {
	switch kind {
	case unix.S_IFIFO:
		return "fifo"
	case unix.S_IFSOCK:
		return "socket"
	}
	return "device"
}
