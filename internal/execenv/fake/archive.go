package fake

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
)

// transfer runs the work of an archive call so that the end of ctx or of the
// sandbox ends the call, even while the caller's reader or writer is stuck.
// The work checks stop before it touches anything.
func (b *box) transfer(ctx context.Context, what string, work func(stop func() error) error) error {
	b.mu.Lock()
	err := b.alive(ctx, what)
	b.mu.Unlock()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- work(func() error { return ctx.Err() }) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ended(ctx.Err(), "%s in sandbox %s", what, b.spec.ID)
	case <-b.over:
		return fault.New(fault.Gone, "sandbox %s ended", b.spec.ID)
	}
}

// PutArchive unpacks r below dir.
func (b *box) PutArchive(ctx context.Context, dir string, r io.Reader) error {
	if _, err := execenv.WorkspacePath(dir); err != nil {
		return err
	}
	return b.transfer(ctx, "unpack an archive", func(stop func() error) error {
		u := unpacker{b: b, stop: stop}
		err := u.locked(func() (err error) {
			root, _ := b.files.find(execenv.Workspace, false)
			u.base, err = u.parents(root, elements(dir))
			return err
		})
		if err != nil {
			return putError(err)
		}
		archive := tar.NewReader(r)
		for {
			hdr, err := archive.Next()
			if errors.Is(err, io.EOF) {
				return stop()
			}
			if err != nil {
				return fault.Wrap(fault.Invalid, err, "cannot read the archive")
			}
			if err := u.entry(hdr, archive); err != nil {
				return putError(err)
			}
		}
	})
}

func putError(err error) error {
	var f *fault.Error
	switch {
	case errors.As(err, &f):
		return err
	case errors.Is(err, syscall.ENOSPC):
		return fault.Wrap(fault.Exhausted, err, "cannot unpack the archive")
	}
	return fault.Wrap(fault.Invalid, err, "cannot unpack the archive")
}

type unpacker struct {
	b    *box
	base *node
	stop func() error
}

// locked makes one step that touches the tree.
func (u *unpacker) locked(step func() error) error {
	u.b.mu.Lock()
	defer u.b.mu.Unlock()
	if err := u.stop(); err != nil {
		return err
	}
	return step()
}

func elements(name string) []string {
	return slices.DeleteFunc(strings.Split(name, "/"), func(s string) bool { return s == "" || s == "." })
}

// inside refuses names that lead out.
func inside(name string) ([]string, error) {
	if strings.HasPrefix(name, "/") || slices.Contains(strings.Split(name, "/"), "..") {
		return nil, fault.New(fault.Invalid, "archive entry %q leads out of its directory", name)
	}
	return elements(name), nil
}

// parents walks directories, makes those that are missing, and follows no
// symlink.
func (u *unpacker) parents(at *node, elems []string) (*node, error) {
	for _, elem := range elems {
		next := at.kids[elem]
		if next == nil {
			next = &node{kind: directory, mode: 0o755, kids: map[string]*node{}}
			if err := u.b.files.add(at, elem, next); err != nil {
				return nil, err
			}
		}
		if next.kind != directory {
			return nil, fault.New(fault.Invalid, "%q in the way of an archive entry is no directory", elem)
		}
		at = next
	}
	return at, nil
}

func (u *unpacker) entry(hdr *tar.Header, body io.Reader) error {
	elems, err := inside(hdr.Name)
	if err != nil {
		return err
	}
	n := &node{mode: fs.FileMode(hdr.Mode) & 0o777, target: hdr.Linkname}
	switch hdr.Typeflag {
	case tar.TypeReg:
		n.kind = regular
	case tar.TypeDir:
		return u.locked(func() error { return u.directory(elems, n.mode) })
	case tar.TypeSymlink:
		n.kind = symbolic
	case tar.TypeLink:
		if n, err = u.linked(hdr.Linkname); err != nil {
			return err
		}
	default:
		return fault.New(fault.Invalid, "archive entry %q is neither file, directory nor link", hdr.Name)
	}
	if len(elems) == 0 {
		return fault.New(fault.Invalid, "archive entry %q has no name", hdr.Name)
	}
	if err := u.locked(func() error { return u.replace(elems, n) }); err != nil || hdr.Typeflag != tar.TypeReg {
		return err
	}
	buf := make([]byte, 64<<10)
	for {
		k, err := body.Read(buf)
		if k > 0 {
			if err := u.locked(func() error { _, err := n.grow(buf[:k]); return err }); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fault.Wrap(fault.Invalid, err, "cannot read the archive")
		}
	}
}

func (u *unpacker) directory(elems []string, mode fs.FileMode) error {
	dir, err := u.parents(u.base, elems)
	if err == nil {
		dir.mode = mode
	}
	return err
}

// replace puts a node where a file may be.
func (u *unpacker) replace(elems []string, n *node) error {
	last := len(elems) - 1
	parent, err := u.parents(u.base, elems[:last])
	if err != nil {
		return err
	}
	if old := parent.kids[elems[last]]; old != nil && old != n {
		if old.kind == directory {
			return fault.New(fault.Invalid, "archive entry %q is a directory already", elems[last])
		}
		if err := u.b.files.drop(parent, elems[last]); err != nil {
			return err
		}
	} else if old == n {
		return nil
	}
	return u.b.files.add(parent, elems[last], n)
}

// linked finds what a hard link means, below the base and through no symlink.
func (u *unpacker) linked(name string) (at *node, err error) {
	elems, err := inside(name)
	if err != nil {
		return nil, err
	}
	err = u.locked(func() error {
		at = u.base
		for _, elem := range elems {
			if at = at.kids[elem]; at == nil {
				return fault.New(fault.Invalid, "hard link to %q leads nowhere", name)
			}
		}
		if at.kind != regular {
			return fault.New(fault.Invalid, "hard link to %q is not to a file", name)
		}
		return nil
	})
	return at, err
}

// defaultArchiveBytes bounds an archive nobody bounded.
const defaultArchiveBytes = 1 << 30

// GetArchive packs what matches.
func (b *box) GetArchive(ctx context.Context, req execenv.ArchiveRequest, w io.Writer) error {
	if err := req.Validate(); err != nil {
		return err
	}
	return b.transfer(ctx, "pack an archive", func(stop func() error) error {
		chosen, denied, err := b.choose(req)
		if err != nil {
			return err
		}
		out := tar.NewWriter(&stoppableWriter{w: w, stop: stop})
		for _, f := range chosen {
			if err := out.WriteHeader(f.header); err != nil {
				return fault.Wrap(fault.Unavailable, err, "cannot write the archive")
			}
			if _, err := out.Write(f.data); err != nil {
				return fault.Wrap(fault.Unavailable, err, "cannot write the archive")
			}
		}
		if err := out.Close(); err != nil {
			return fault.Wrap(fault.Unavailable, err, "cannot write the archive")
		}
		return denied
	})
}

type packed struct {
	header *tar.Header
	data   []byte
}

// choose takes a copy of what goes into the archive, so that nothing changes
// while it is written.
func (b *box) choose(req execenv.ArchiveRequest) (chosen []packed, denied, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	dir, _ := b.files.find(execenv.Workspace, false)
	for _, elem := range elements(req.Dir) {
		switch dir = dir.kids[elem]; {
		case dir == nil:
			return nil, nil, fault.New(fault.NotFound, "directory %q does not exist", req.Dir)
		case dir.kind != directory:
			return nil, nil, fault.New(fault.Invalid, "%q is not a directory", req.Dir)
		}
	}
	bound := req.MaxBytes
	if bound == 0 {
		bound = defaultArchiveBytes
	}
	var total int64
	dir.walk("", func(rel string, n *node) {
		types := map[kind]byte{regular: tar.TypeReg, directory: tar.TypeDir, symbolic: tar.TypeSymlink}
		typ, ok := types[n.kind]
		if !ok || !matchesAny(req.Patterns, rel) {
			return
		}
		if n.kind == regular && n.mode&0o400 == 0 {
			denied = fault.New(fault.Denied, "cannot open %q: permission denied", rel)
			return
		}
		if total += int64(len(n.data)); total > bound {
			return
		}
		hdr := &tar.Header{Typeflag: typ, Name: rel, Mode: int64(n.mode), Linkname: n.target, Size: int64(len(n.data)), Format: tar.FormatGNU}
		if typ == tar.TypeDir {
			hdr.Name += "/"
		}
		chosen = append(chosen, packed{hdr, slices.Clone(n.data)})
	})
	if total > bound {
		return nil, nil, fault.New(fault.Exhausted, "the files are more than %d bytes", bound)
	}
	return chosen, denied, nil
}

func matchesAny(patterns []string, name string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool {
		return matches(elements(p), strings.Split(name, "/"))
	})
}

// matches reports whether a glob matches a name, both as elements.
func matches(pattern, name []string) bool {
	switch {
	case len(pattern) == 0:
		return len(name) == 0
	case pattern[0] == "**":
		return matches(pattern[1:], name) || len(name) > 0 && matches(pattern, name[1:])
	case len(name) == 0:
		return false
	}
	ok, _ := path.Match(pattern[0], name[0])
	return ok && matches(pattern[1:], name[1:])
}

// stoppableWriter begins no write after the call it belongs to has returned.
type stoppableWriter struct {
	w    io.Writer
	stop func() error
}

func (s *stoppableWriter) Write(p []byte) (int, error) {
	if err := s.stop(); err != nil {
		return 0, err
	}
	return s.w.Write(p)
}
