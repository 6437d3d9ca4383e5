package fake

import (
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/run"
)

// kind of a node.
type kind uint8

const (
	regular kind = iota
	directory
	symbolic
	fifo
	socket
)

// node is a file. Names refer to nodes, so hard links work.
type node struct {
	kind   kind
	mode   fs.FileMode
	data   []byte
	target string
	kids   map[string]*node
	mount  *mount
	links  int
}

// mount is what has quotas of its own.
type mount struct {
	readOnly           bool
	maxBytes, maxNodes int64
	bytes, inodes      int64
}

// fileSystem is a sandbox's tree. It is guarded by box.mu.
type fileSystem struct {
	root      *node
	workspace *mount
}

func newFileSystem(l run.Limits, programs map[string]Program) *fileSystem {
	image := &mount{}
	f := &fileSystem{root: &node{kind: directory, mode: 0o755, kids: map[string]*node{}, mount: image}}
	image.maxBytes, image.maxNodes = 1<<40, 1<<40
	for _, dir := range []string{"/etc", "/usr", "/usr/bin", "/var", "/var/tmp", "/dev", "/run", "/proc", "/workspace", "/tmp", "/dev/shm"} {
		_ = f.mkdir(dir, 0o755)
	}
	_ = f.symlink("usr/bin", "/bin")
	_ = f.write("/etc/passwd", []byte("agent:x:10001:10001::/workspace:/bin/false\n"), 0o644, false)
	for name := range programs {
		at := name
		if path.IsAbs(name) {
			_ = f.mkdir(path.Dir(name), 0o755)
		} else {
			at = "/usr/bin/" + name
		}
		_ = f.write(at, Binary(name), 0o755, false)
	}
	image.readOnly = true
	for _, at := range []string{execenv.Workspace, "/tmp", "/dev/shm"} {
		n, _ := f.find(at, false)
		n.mount = &mount{maxBytes: l.DiskBytes, maxNodes: l.Inodes, inodes: 1}
		if at == execenv.Workspace {
			f.workspace = n.mount
		}
	}
	return f
}

// place is where a path leads: node is nil when only the parent exists.
type place struct {
	parent *node
	name   string
	node   *node
}

const maxSymlinks = 40

// resolve walks an absolute path. The last element is followed if asked for.
func (f *fileSystem) resolve(p string, follow bool) (place, error) {
	dirs := []*node{f.root}
	at := place{parent: f.root, name: ".", node: f.root}
	rest := strings.Split(p, "/")
	for hops := 0; len(rest) > 0; {
		elem := rest[0]
		rest = rest[1:]
		if elem == "" || elem == "." {
			if at.node == nil || at.node.kind != directory {
				if slices.ContainsFunc(rest, func(s string) bool { return s != "" }) || at.node == nil {
					return place{}, syscall.ENOENT
				}
			}
			continue
		}
		if at.node == nil {
			return place{}, syscall.ENOENT
		}
		if at.node.kind != directory {
			return place{}, syscall.ENOTDIR
		}
		if elem == ".." {
			if len(dirs) > 1 {
				dirs = dirs[:len(dirs)-1]
			}
			at = place{parent: dirs[max(0, len(dirs)-2)], name: ".", node: dirs[len(dirs)-1]}
			continue
		}
		parent := at.node
		child := parent.kids[elem]
		last := !slices.ContainsFunc(rest, func(s string) bool { return s != "" })
		if child != nil && child.kind == symbolic && (!last || follow) {
			if hops++; hops > maxSymlinks {
				return place{}, syscall.ELOOP
			}
			if strings.HasPrefix(child.target, "/") {
				dirs = dirs[:1]
			}
			at = place{parent: dirs[max(0, len(dirs)-2)], name: ".", node: dirs[len(dirs)-1]}
			rest = append(strings.Split(child.target, "/"), rest...)
			continue
		}
		at = place{parent: parent, name: elem, node: child}
		if child != nil && child.kind == directory {
			dirs = append(dirs, child)
		}
	}
	return at, nil
}

func (f *fileSystem) find(p string, follow bool) (*node, error) {
	at, err := f.resolve(p, follow)
	if err == nil && at.node == nil {
		err = syscall.ENOENT
	}
	return at.node, err
}

func (f *fileSystem) isDir(p string) error {
	n, err := f.find(p, true)
	if err == nil && n.kind != directory {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return &fs.PathError{Op: "chdir", Path: p, Err: err}
	}
	return nil
}

// add makes a node below a directory, within the quota of inodes.
func (f *fileSystem) add(parent *node, name string, n *node) error {
	m := parent.mount
	switch {
	case m.readOnly:
		return syscall.EROFS
	case parent.kids[name] != nil:
		return syscall.EEXIST
	case len(name) > 255:
		return syscall.ENAMETOOLONG
	case n.links == 0 && m.inodes >= m.maxNodes:
		return errInodes
	case n.links > 0 && n.mount != m:
		return syscall.EXDEV
	}
	if n.links == 0 {
		m.inodes++
	}
	n.mount = m
	n.links++
	parent.kids[name] = n
	return nil
}

// drop takes a name away, and the node with the last name.
func (f *fileSystem) drop(parent *node, name string) error {
	n := parent.kids[name]
	if parent.mount.readOnly || n.mount != parent.mount {
		return syscall.EROFS
	}
	for kid := range n.kids {
		if err := f.drop(n, kid); err != nil {
			return err
		}
	}
	delete(parent.kids, name)
	if n.links--; n.links == 0 {
		n.mount.inodes--
		n.mount.bytes -= int64(len(n.data))
	}
	return nil
}

// Two limits show as one error to a program; which it was goes into the
// outcome.
type full struct{ limit run.Limit }

func (full) Error() string        { return syscall.ENOSPC.Error() }
func (full) Is(target error) bool { return target == syscall.ENOSPC }
func (full) Unwrap() error        { return syscall.ENOSPC }

var (
	errDisk   = full{run.LimitDisk}
	errInodes = full{run.LimitInodes}
)

// grow appends as much of p as the quota allows.
func (n *node) grow(p []byte) (int, error) {
	if n.mount.readOnly {
		return 0, syscall.EROFS
	}
	room := n.mount.maxBytes - n.mount.bytes
	k := int(min(int64(len(p)), max(room, 0)))
	n.data = append(n.data, p[:k]...)
	n.mount.bytes += int64(k)
	if k < len(p) {
		return k, errDisk
	}
	return k, nil
}

func (f *fileSystem) mkdir(p string, mode fs.FileMode) error {
	return f.make(p, &node{kind: directory, mode: mode, kids: map[string]*node{}})
}

func (f *fileSystem) symlink(target, p string) error {
	return f.make(p, &node{kind: symbolic, mode: 0o777, target: target})
}

func (f *fileSystem) make(p string, n *node) error {
	at, err := f.resolve(p, false)
	if err != nil {
		return err
	}
	if at.node != nil {
		return syscall.EEXIST
	}
	return f.add(at.parent, at.name, n)
}

// open returns the file at p for writing, made or emptied if need be.
func (f *fileSystem) open(p string, mode fs.FileMode, keep bool) (*node, error) {
	at, err := f.resolve(p, true)
	switch {
	case err != nil:
		return nil, err
	case at.node == nil:
		at.node = &node{kind: regular, mode: mode}
		if err := f.add(at.parent, at.name, at.node); err != nil {
			return nil, err
		}
	case at.node.kind == directory:
		return nil, syscall.EISDIR
	case at.node.kind != regular:
		return nil, syscall.ENXIO
	case at.node.mount.readOnly:
		return nil, syscall.EROFS
	case !keep:
		at.node.mount.bytes -= int64(len(at.node.data))
		at.node.data = nil
	}
	return at.node, nil
}

func (f *fileSystem) write(p string, data []byte, mode fs.FileMode, keep bool) error {
	n, err := f.open(p, mode, keep)
	if err == nil {
		_, err = n.grow(data)
	}
	return err
}

// magic begins the contents of a file that runs a Program.
const magic = "\x7fFAKE\x00"

// Binary is the contents of an executable file that runs the program of that
// name, wherever it is put.
func Binary(name string) []byte { return []byte(magic + name) }

// lookUp finds the program argv0 means, as execvp does.
func (b *box) lookUp(argv0, cwd string, env []string) (Program, error) {
	candidates := []string{argv0}
	if !strings.Contains(argv0, "/") {
		candidates = nil
		for _, kv := range env {
			if list, ok := strings.CutPrefix(kv, "PATH="); ok {
				for _, dir := range strings.Split(list, ":") {
					if dir != "" {
						candidates = append(candidates, dir+"/"+argv0)
					}
				}
			}
		}
	}
	err := error(syscall.ENOENT)
	for _, p := range candidates {
		if !path.IsAbs(p) {
			p = cwd + "/" + p
		}
		n, cause := b.files.find(p, true)
		if cause != nil {
			err = cause
			continue
		}
		name, isProgram := strings.CutPrefix(string(n.data[:min(len(n.data), 200)]), magic)
		program := b.env.programs[name]
		switch {
		case n.kind != regular, n.mode&0o111 == 0:
			err = syscall.EACCES
		case !isProgram, program == nil:
			err = syscall.ENOEXEC
		default:
			return program, nil
		}
	}
	return nil, &fs.PathError{Op: "exec", Path: argv0, Err: err}
}
