package files

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/guest/filewire"
)

// maxWatched bounds the directories below one watch.
const maxWatched = 4096

const (
	interesting = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_ATTRIB
	watchMask   = interesting | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR
)

// watcher knows the directories that are watched by the kernel's numbers.
type watcher struct {
	work *work
	fd   int
	dirs map[int32]string
}

// watch sends what happens below a directory until its input ends, the budget
// is used up, or the directory is gone.
func (w *work) watch() (more bool, err error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return false, refuse(filewire.Failed, "the sandbox's kernel watches nothing: %v", err)
	}
	events := os.NewFile(uintptr(fd), "inotify")
	defer events.Close()
	t := &watcher{work: w, fd: fd, dirs: map[int32]string{}}
	if err := t.add("", nil); err != nil {
		return false, err
	}
	if err := w.out.Send(filewire.Record{Ready: true}); err != nil {
		return false, err
	}
	go func() {
		_, _ = io.Copy(io.Discard, w.in)
		events.Close() // the read below ends
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := events.Read(buf)
		if err != nil {
			return false, nil // closed
		}
		if gone, err := t.handle(buf[:n]); gone || err != nil {
			return false, err
		}
	}
}

// add watches a directory and, where asked for, those below it. With found,
// what is in them already is reported: it came before the watch did.
func (t *watcher) add(rel string, found func(name string) error) error {
	if len(t.dirs) >= maxWatched {
		return refuse(filewire.Exhausted, "there are more than %d directories to watch", maxWatched)
	}
	at := path.Join(t.work.path, rel)
	wd, err := unix.InotifyAddWatch(t.fd, at, watchMask)
	if err != nil {
		if rel != "" {
			return nil // gone meanwhile, or closed to the user
		}
		return &fs.PathError{Op: "watch", Path: at, Err: err}
	}
	t.dirs[int32(wd)] = rel
	if !t.work.req.Recursive {
		return nil
	}
	names, err := readNames(at)
	if err != nil {
		return nil
	}
	for _, name := range names {
		name = path.Join(rel, name)
		if found != nil {
			if err := found(name); err != nil {
				return err
			}
		}
		if info, err := os.Lstat(path.Join(t.work.path, name)); err == nil && info.IsDir() {
			if err := t.add(name, found); err != nil {
				return err
			}
		}
	}
	return nil
}

// handle reads what the kernel reports. It says whether the watched directory
// itself is gone.
func (t *watcher) handle(raw []byte) (gone bool, err error) {
	for len(raw) >= unix.SizeofInotifyEvent {
		wd := int32(binary.NativeEndian.Uint32(raw))
		mask := binary.NativeEndian.Uint32(raw[4:])
		size := int(binary.NativeEndian.Uint32(raw[12:]))
		if size < 0 || unix.SizeofInotifyEvent+size > len(raw) {
			return false, errors.New("the sandbox's kernel reports half an event")
		}
		name := string(bytes.TrimRight(raw[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+size], "\x00"))
		raw = raw[unix.SizeofInotifyEvent+size:]
		if gone, err := t.event(wd, mask, name); gone || err != nil {
			return gone, err
		}
	}
	return false, nil
}

func (t *watcher) event(wd int32, mask uint32, name string) (gone bool, err error) {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		return false, t.send(filewire.Overflow, "")
	}
	dir, known := t.dirs[wd]
	if !known {
		return false, nil
	}
	if mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_IGNORED) != 0 {
		delete(t.dirs, wd)
		return dir == "", nil
	}
	if name == "" {
		return false, nil // the directory's own attributes
	}
	at := path.Join(dir, name)
	for _, k := range []struct {
		mask uint32
		kind filewire.EventKind
	}{
		{unix.IN_CREATE | unix.IN_MOVED_TO, filewire.Created},
		{unix.IN_MODIFY, filewire.Written},
		{unix.IN_DELETE, filewire.Removed},
		{unix.IN_MOVED_FROM, filewire.Renamed},
		{unix.IN_ATTRIB, filewire.Changed},
	} {
		if mask&k.mask == 0 {
			continue
		}
		if err := t.send(k.kind, at); err != nil {
			return false, err
		}
	}
	if mask&unix.IN_ISDIR != 0 && mask&unix.IN_MOVED_FROM != 0 {
		t.forget(at)
	}
	if mask&unix.IN_ISDIR != 0 && mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0 && t.work.req.Recursive {
		return false, t.add(at, func(name string) error { return t.send(filewire.Created, name) })
	}
	return false, nil
}

// forget stops to watch a directory that has another name now, and what is
// below it. If the new name is in the tree, it is watched again as that.
func (t *watcher) forget(name string) {
	for wd, dir := range t.dirs {
		if dir == name || strings.HasPrefix(dir, name+"/") {
			delete(t.dirs, wd)
			_, _ = unix.InotifyRmWatch(t.fd, uint32(wd))
		}
	}
}

func (t *watcher) send(kind filewire.EventKind, name string) error {
	return t.work.out.Send(filewire.Record{Event: &filewire.Event{Kind: kind, Name: []byte(name)}})
}
