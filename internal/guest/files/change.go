package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/guest/filewire"
)

// makeDir makes a directory and its parents.
func (w *work) makeDir() error {
	switch info, err := os.Stat(w.path); {
	case err == nil && info.IsDir():
		return refuse(filewire.Conflict, "%q exists", short(w.path))
	case err == nil:
		return refuse(filewire.Conflict, "%q exists and is not a directory", short(w.path))
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := os.MkdirAll(w.path, 0o755); err != nil {
		return err
	}
	return w.sendEntry(w.path)
}

func (w *work) move() error {
	to := string(w.req.To)
	if err := checkPath(to); err != nil {
		return err
	}
	info, err := os.Lstat(w.path)
	if err != nil {
		return err
	}
	if there, err := os.Lstat(to); err == nil && (there.IsDir() || info.IsDir()) {
		return refuse(filewire.Conflict, "%q exists", short(to))
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	err = os.Rename(w.path, to)
	if errors.Is(err, unix.EXDEV) {
		return refuse(filewire.Invalid, "%q and %q are in places with quotas of their own; copy instead", short(w.path), short(to))
	}
	if err != nil {
		return err
	}
	return w.sendEntry(to)
}

// remove takes a file or a whole directory away, but none that something is
// mounted on: its contents would be gone before the refusal.
func (w *work) remove() error {
	var st, above unix.Stat_t
	if err := unix.Lstat(w.path, &st); err != nil {
		return &fs.PathError{Op: "remove", Path: w.path, Err: err}
	}
	if err := unix.Stat(filepath.Dir(w.path), &above); err != nil {
		return &fs.PathError{Op: "remove", Path: w.path, Err: err}
	}
	if st.Dev != above.Dev || (st.Ino == above.Ino && kindOf(st.Mode) == filewire.Directory) {
		return refuse(filewire.Denied, "%q is a place of the sandbox and cannot be removed", short(w.path))
	}
	return os.RemoveAll(w.path)
}
