package ingest

import (
	"strings"
	"time"
)

// kind is what an inode is. Nothing else can be in an image.
type kind uint8

const (
	directory kind = iota
	regular
	symlink
)

func (k kind) String() string { return [...]string{"directory", "file", "symbolic link"}[k] }

// inode is what hard links share.
type inode struct {
	kind     kind
	mode     uint32 // permission bits and, for directories, the sticky bit
	uid, gid int
	mtime    time.Time
	target   string // of a symlink; never resolved, only carried
	content  int    // number of the spooled file
	size     int64
	links    int
}

// node is a name in a directory. The whole image is held as such a tree while
// it is made: whatever path an archive names is looked up here, one component
// after the other and through directories only, never on the host.
type node struct {
	*inode
	children map[string]*node

	// The rest only matters in the tree of one layer, before it is merged.

	// implied directories appeared only as the parent of something.
	implied bool
	// opaque directories hide what lower layers have in them.
	opaque bool
	// whiteouts are the names hidden from lower layers.
	whiteouts []string
}

// epoch is the time of everything that has none of its own, so that the same
// input gives the same image.
var epoch = time.Unix(0, 0)

func newDirectory() *node {
	return &node{
		inode:    &inode{kind: directory, mode: 0o755, mtime: epoch, links: 1},
		children: map[string]*node{},
	}
}

// lookup finds a clean path. It does not follow symlinks: a path through one
// does not exist.
func (n *node) lookup(path string) *node {
	for name := range strings.SplitSeq(path, "/") {
		if n = n.children[name]; n == nil {
			return nil
		}
	}
	return n
}

// release drops n and all below it, and discards contents nothing names any
// more.
func (n *node) release(sp *spool) error {
	for _, c := range n.children {
		if err := c.release(sp); err != nil {
			return err
		}
	}
	n.links--
	if n.kind == regular && n.links == 0 {
		return sp.discard(n.content)
	}
	return nil
}

// unlink removes a child by name; no such child is fine.
func (n *node) unlink(name string, sp *spool) error {
	c := n.children[name]
	if c == nil {
		return nil
	}
	delete(n.children, name)
	return c.release(sp)
}

// merge puts a layer's directory on top of n. Whiteouts and opaque marks are
// applied first, whatever their order in the layer was: they hide lower
// layers and never the layer they are in.
func (n *node) merge(layer *node, path string, sp *spool) error {
	if layer.opaque {
		for name := range n.children {
			if err := n.unlink(name, sp); err != nil {
				return err
			}
		}
	}
	for _, name := range layer.whiteouts {
		if err := n.unlink(name, sp); err != nil {
			return err
		}
	}
	for name, upper := range layer.children {
		lower := n.children[name]
		at := join(path, name)
		switch {
		case upper.kind == directory && lower != nil && lower.kind == directory:
			if !upper.implied {
				lower.inode = upper.inode
			}
			if err := lower.merge(upper, at, sp); err != nil {
				return err
			}
			continue
		case upper.implied && lower != nil:
			return refuse(at, "a lower layer has a %v here, and this layer puts something below it; "+
				"links are not followed and it is not replaced unasked", lower.kind)
		}
		if err := n.unlink(name, sp); err != nil {
			return err
		}
		// Its own whiteouts have nothing left to hide.
		n.children[name] = upper
	}
	return nil
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}
