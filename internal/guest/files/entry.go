package files

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/guest/filewire"
)

// describe says what is at a path, without following a symlink there.
func describe(path string) (*filewire.Entry, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return nil, &fs.PathError{Op: "lstat", Path: path, Err: err}
	}
	e := entryOf(&st)
	if e.Kind == filewire.Symlink {
		target, err := os.Readlink(path)
		if err != nil {
			return nil, err
		}
		e.Target = []byte(target)
		if unix.Stat(path, &st) == nil {
			e.TargetKind = kindOf(st.Mode)
		}
	}
	return e, nil
}

func entryOf(st *unix.Stat_t) *filewire.Entry {
	return &filewire.Entry{
		Kind: kindOf(st.Mode), Size: st.Size, Mode: st.Mode & 0o7777, UID: st.Uid, GID: st.Gid,
		MTime: time.Unix(st.Mtim.Unix()).UTC(), Inode: st.Ino,
	}
}

func kindOf(mode uint32) filewire.Kind {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return filewire.File
	case unix.S_IFDIR:
		return filewire.Directory
	case unix.S_IFLNK:
		return filewire.Symlink
	}
	return filewire.Other
}

func (w *work) sendEntry(path string) error {
	e, err := describe(path)
	if err != nil {
		return err
	}
	return w.out.Send(filewire.Record{Entry: e})
}

// list sends what is below a directory, depth first, each directory's names
// sorted: so that it can go on behind any of them.
func (w *work) list() (more bool, err error) {
	info, err := os.Stat(w.path)
	if err != nil {
		return false, err
	}
	if !info.IsDir() {
		return false, refuse(filewire.Invalid, "%q is not a directory", short(w.path))
	}
	var after []string
	if len(w.req.After) > 0 {
		after = strings.Split(string(w.req.After), "/")
	}
	return false, w.listDir("", after, w.req.Depth)
}

// listDir sends the entries of a directory that come behind after, which is
// relative to it, and what is below them.
func (w *work) listDir(rel string, after []string, depth int) error {
	names, err := readNames(path.Join(w.path, rel))
	if err != nil {
		if rel != "" && (errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist)) {
			return nil // closed to the user, or gone meanwhile
		}
		return err
	}
	for _, name := range names {
		var below []string
		if len(after) > 0 {
			switch strings.Compare(name, after[0]) {
			case -1:
				continue
			case 0:
				below = after[1:]
			}
		}
		at := path.Join(rel, name)
		e, err := describe(path.Join(w.path, at))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		// What after names was sent, and so were the directories it is in.
		if len(after) == 0 || name != after[0] {
			e.Name = []byte(at)
			if err := w.out.Send(filewire.Record{Entry: e}); err != nil {
				return err
			}
		}
		if e.Kind == filewire.Directory && depth > 1 {
			if err := w.listDir(at, below, depth-1); err != nil {
				return err
			}
		}
	}
	return nil
}

func readNames(dir string) ([]string, error) {
	d, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}
