package ingest

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/agentdock/agentdock/internal/fault"
)

// The names layers use to hide what lower layers have.
const (
	whiteoutPrefix = ".wh."
	opaqueMark     = ".wh..wh..opq"
	aufsPrefix     = ".wh..wh." // leftovers of an old storage driver
)

// flattener puts layers on top of each other in memory. One is used for one
// image; its budget is the image's.
type flattener struct {
	root   *node
	spool  *spool
	limits Limits

	bytes   int64 // of uncompressed layers read
	entries int
	names   int64
}

func newFlattener(sp *spool, limits Limits) *flattener {
	return &flattener{root: newDirectory(), spool: sp, limits: limits}
}

// add reads one uncompressed layer to its end and merges it. label names the
// layer in errors. The reader is drained beyond the archive's end, so that a
// digest computed over it is complete.
//
// After an error the flattener is of no use any more.
func (f *flattener) add(ctx context.Context, label string, r io.Reader) error {
	err := f.read(ctx, r)
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("cannot unpack %s: %w", label, cause)
	}
	var bad *badEntry
	var known *fault.Error
	switch {
	case errors.As(err, &known):
		return fault.Wrap(known.Code, err, "cannot unpack %s", label)
	case errors.As(err, &bad):
		return fault.New(fault.Invalid, "cannot unpack %s: %s", label, bad)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fault.Wrap(fault.Invalid, err, "cannot unpack %s: it is truncated", label)
	case errors.Is(err, tar.ErrHeader):
		return fault.Wrap(fault.Invalid, err, "cannot unpack %s: it is no valid tar archive", label)
	}
	return fmt.Errorf("cannot unpack %s: %w", label, err)
}

func (f *flattener) read(ctx context.Context, r io.Reader) error {
	stream := &meter{ctx: ctx, r: r, f: f}
	tr := tar.NewReader(stream)
	layer := newDirectory()
	for {
		hdr, err := tr.Next()
		if err == io.EOF {
			break
		}
		// A name the host's Go would not take is no matter: it is never
		// used on the host, and clean refuses what escapes.
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			return err
		}
		if err := f.entry(layer, hdr, tr); err != nil {
			return err
		}
	}
	if _, err := io.Copy(io.Discard, stream); err != nil {
		return err
	}
	return f.root.merge(layer, "", f.spool)
}

// entry takes in one entry of a layer.
func (f *flattener) entry(layer *node, hdr *tar.Header, content io.Reader) error {
	if f.entries++; f.entries > f.limits.Entries {
		return refuse(hdr.Name, "the image has more than %d entries", f.limits.Entries)
	}
	if hdr.Typeflag == tar.TypeXGlobalHeader {
		return nil // says nothing about an entry of ours
	}
	path, err := f.clean(hdr.Name)
	if err != nil {
		return err
	}
	if path == "" {
		if hdr.Typeflag != tar.TypeDir {
			return refuse(hdr.Name, "the root of an image can only be a directory")
		}
		return nil // the root's owner and mode are ours
	}
	if masked(path) {
		return nil
	}
	if err := check(hdr); err != nil {
		return err
	}
	parent, name, err := f.parent(layer, path)
	if err != nil {
		return err
	}
	if strings.HasPrefix(name, whiteoutPrefix) {
		return whiteout(parent, path, name)
	}
	have := parent.children[name]
	if have != nil && (have.kind != directory || hdr.Typeflag != tar.TypeDir) {
		return refuse(path, "the layer names it twice")
	}
	n, err := f.node(layer, path, hdr, content)
	if err != nil {
		return err
	}
	if have != nil { // a directory named twice: the later one's attributes count
		have.inode, have.implied = n.inode, false
		return nil
	}
	parent.children[name] = n
	return nil
}

// node makes what the header describes.
func (f *flattener) node(layer *node, path string, hdr *tar.Header, content io.Reader) (*node, error) {
	in := &inode{mode: mode(hdr), uid: hdr.Uid, gid: hdr.Gid, mtime: mtime(hdr), links: 1}
	switch hdr.Typeflag {
	case tar.TypeDir:
		in.kind = directory
		return &node{inode: in, children: map[string]*node{}}, nil
	case tar.TypeSymlink:
		if f.names += int64(len(hdr.Linkname)); f.names > f.limits.IndexBytes {
			return nil, refuse(path, "the image's names and link targets have more than %d bytes", f.limits.IndexBytes)
		}
		in.kind, in.mode, in.target = symlink, 0o777, hdr.Linkname
		return &node{inode: in}, nil
	case tar.TypeLink:
		return f.hardLink(layer, path, hdr.Linkname)
	}
	// Checked before a byte is written; what is written in the end is also
	// counted as it is read.
	if hdr.Size > f.limits.Bytes-f.bytes {
		return nil, refuse(path, "with its %d bytes the image is larger than %d", hdr.Size, f.limits.Bytes)
	}
	var err error
	in.kind, in.size = regular, hdr.Size
	in.content, err = f.spool.put(content, hdr.Size)
	return &node{inode: in}, err
}

// hardLink finds what a link shares: in its own layer first, then below it.
func (f *flattener) hardLink(layer *node, path, linkname string) (*node, error) {
	target, err := f.clean(linkname)
	if err != nil {
		return nil, refuse(path, "it is a hard link to %q, which is no path inside the image", linkname)
	}
	if target == path {
		return nil, refuse(path, "it is a hard link to itself")
	}
	n := layer.lookup(target)
	if n == nil {
		n = f.root.lookup(target)
	}
	switch {
	case n == nil:
		return nil, refuse(path, "it is a hard link to %q, which is not in the image", linkname)
	case n.kind == directory:
		return nil, refuse(path, "it is a hard link to the directory %q", linkname)
	}
	n.links++
	return &node{inode: n.inode}, nil
}

// parent finds or makes the directory an entry is in.
func (f *flattener) parent(layer *node, path string) (dir *node, name string, err error) {
	dir = layer
	rest := path
	for {
		component, after, more := strings.Cut(rest, "/")
		if !more {
			return dir, component, nil
		}
		if strings.HasPrefix(component, whiteoutPrefix) && !strings.HasPrefix(component, aufsPrefix) {
			return nil, "", refuse(path, "it is below a whiteout")
		}
		next := dir.children[component]
		if next == nil {
			if f.entries++; f.entries > f.limits.Entries {
				return nil, "", refuse(path, "the image has more than %d entries", f.limits.Entries)
			}
			next = newDirectory()
			next.implied = true
			dir.children[component] = next
		}
		if next.kind != directory {
			return nil, "", refuse(path, "it is below %q, which is a %v; links are never followed",
				strings.TrimSuffix(path, "/"+after), next.kind)
		}
		dir, rest = next, after
	}
}

// whiteout notes what an entry hides from lower layers.
func whiteout(parent *node, path, name string) error {
	switch hidden := strings.TrimPrefix(name, whiteoutPrefix); {
	case name == opaqueMark:
		parent.opaque = true
	case strings.HasPrefix(name, aufsPrefix):
		// Book-keeping that hides nothing.
	case hidden == "" || hidden == "." || hidden == "..":
		return refuse(path, "it is a whiteout of %q", hidden)
	default:
		parent.whiteouts = append(parent.whiteouts, hidden)
	}
	return nil
}

// meter bounds what all layers together may unpack to, which covers headers,
// padding and what follows the archive's end, and ends reading when the
// context does.
type meter struct {
	ctx context.Context
	r   io.Reader
	f   *flattener
}

func (m *meter) Read(p []byte) (int, error) {
	if err := m.ctx.Err(); err != nil {
		return 0, err
	}
	left := m.f.limits.Bytes - m.f.bytes
	if int64(len(p)) > left {
		p = p[:max(left, 0)+1] // one more than allowed, to see whether there is more
	}
	n, err := m.r.Read(p)
	m.f.bytes += int64(n)
	if m.f.bytes > m.f.limits.Bytes {
		return 0, &badEntry{reason: fmt.Sprintf("the image unpacks to more than %d bytes", m.f.limits.Bytes)}
	}
	return n, err
}
