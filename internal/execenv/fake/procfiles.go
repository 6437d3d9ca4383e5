package fake

import (
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"syscall"
)

// FileInfo is what Walk tells of a file.
type FileInfo struct {
	Path   string
	Mode   fs.FileMode // type and permissions
	Size   int64
	Target string // of a symlink
}

// withFiles runs f on the tree. A limit it meets is named in the outcome.
func (p *Proc) withFiles(op, name string, f func(files *fileSystem, abs string) error) error {
	p.enter()
	defer p.box.mu.Unlock()
	abs := name
	if !path.IsAbs(abs) {
		abs = p.Dir + "/" + abs
	}
	err := f(p.box.files, abs)
	var limit full
	if errors.As(err, &limit) {
		p.command.touch(limit.limit)
	}
	if err != nil {
		return &fs.PathError{Op: op, Path: name, Err: err}
	}
	return nil
}

// WriteFile makes or replaces a file.
func (p *Proc) WriteFile(name string, data []byte) error {
	return p.withFiles("open", name, func(f *fileSystem, abs string) error { return f.write(abs, data, 0o644, false) })
}

// AppendFile adds to a file, and says how much there was room for.
func (p *Proc) AppendFile(name string, data []byte) (n int, err error) {
	err = p.withFiles("write", name, func(f *fileSystem, abs string) error {
		file, err := f.open(abs, 0o644, true)
		if err == nil {
			n, err = file.grow(data)
		}
		return err
	})
	return n, err
}

// ReadFile returns a file's contents.
func (p *Proc) ReadFile(name string) (data []byte, err error) {
	err = p.withFiles("open", name, func(f *fileSystem, abs string) error {
		n, err := f.find(abs, true)
		if err != nil {
			return err
		}
		if n.kind != regular {
			return syscall.EISDIR
		}
		data = slices.Clone(n.data)
		return nil
	})
	return data, err
}

// MkdirAll makes a directory and its parents.
func (p *Proc) MkdirAll(name string) error {
	return p.withFiles("mkdir", name, func(f *fileSystem, abs string) error {
		for i := 1; i <= len(abs); i++ {
			if i < len(abs) && abs[i] != '/' {
				continue
			}
			if n, err := f.find(abs[:i], true); err == nil && n.kind == directory {
				continue
			}
			if err := f.mkdir(abs[:i], 0o755); err != nil {
				return err
			}
		}
		return nil
	})
}

// Symlink makes a symbolic link.
func (p *Proc) Symlink(target, name string) error {
	return p.withFiles("symlink", name, func(f *fileSystem, abs string) error { return f.symlink(target, abs) })
}

// Mkfifo and Mksock make what archives leave out.
func (p *Proc) Mkfifo(name string) error {
	return p.withFiles("mkfifo", name, func(f *fileSystem, abs string) error { return f.make(abs, &node{kind: fifo, mode: 0o644}) })
}

func (p *Proc) Mksock(name string) error {
	return p.withFiles("bind", name, func(f *fileSystem, abs string) error { return f.make(abs, &node{kind: socket, mode: 0o755}) })
}

// RemoveAll removes a file or a tree; what does not exist is no error.
func (p *Proc) RemoveAll(name string) error {
	return p.withFiles("remove", name, func(f *fileSystem, abs string) error {
		at, err := f.resolve(abs, false)
		if err != nil || at.node == nil {
			return nil
		}
		return f.drop(at.parent, at.name)
	})
}

// Walk lists everything below a directory, sorted.
func (p *Proc) Walk(name string) (all []FileInfo, err error) {
	err = p.withFiles("open", name, func(f *fileSystem, abs string) error {
		n, err := f.find(abs, true)
		if err != nil {
			return err
		}
		n.walk("", func(rel string, n *node) { all = append(all, n.info(rel)) })
		return nil
	})
	return all, err
}

func (n *node) walk(prefix string, visit func(rel string, n *node)) {
	for _, name := range slices.Sorted(maps.Keys(n.kids)) {
		rel := path.Join(prefix, name)
		visit(rel, n.kids[name])
		n.kids[name].walk(rel, visit)
	}
}

func (n *node) info(rel string) FileInfo {
	types := map[kind]fs.FileMode{directory: fs.ModeDir, symbolic: fs.ModeSymlink, fifo: fs.ModeNamedPipe, socket: fs.ModeSocket}
	return FileInfo{Path: rel, Mode: types[n.kind] | n.mode, Size: int64(len(n.data)), Target: n.target}
}
