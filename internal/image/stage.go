package image

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// Stage is a private directory in the store for making one image. It is held
// by a lock that ends with its process however that ends, which is how the
// next writer knows that it may be removed.
type Stage struct {
	dir  string
	lock *os.File
	once sync.Once
	err  error
}

// Stage makes a stage. Close it on every path.
func (w *Writer) Stage() (*Stage, error) {
	dir, err := os.MkdirTemp(filepath.Join(w.dir, stageDir), "stage-")
	if err != nil {
		return nil, fmt.Errorf("cannot make a stage in the image store: %w", err)
	}
	s := &Stage{dir: dir}
	// Another writer can sweep the new directory in the moment before it is
	// locked; then the lock is on a directory without a name. Trying again
	// costs less than holding the store's lock here.
	if s.lock, err = lockDir(dir); err == nil {
		if _, err = os.Stat(dir); err == nil {
			return s, nil
		}
		s.lock.Close()
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EWOULDBLOCK) {
		return w.Stage()
	}
	return nil, errors.Join(fmt.Errorf("cannot lock a stage in the image store: %w", err), os.RemoveAll(dir))
}

// Dir is the stage's directory; only its owner can look into it.
func (s *Stage) Dir() string { return s.dir }

// Close removes the stage and all in it. It may be called again.
func (s *Stage) Close() error {
	s.once.Do(func() {
		// The lock is held until nothing is left, so that a sweep does not
		// run into the removal.
		if err := removeStage(s.dir); err != nil {
			s.err = fmt.Errorf("cannot remove the image stage: %w", err)
		}
		s.lock.Close()
	})
	return s.err
}

func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// sweepStages removes the stages whose owner is dead; the caller holds the
// store's lock.
func (w *Writer) sweepStages() error {
	root := filepath.Join(w.dir, stageDir)
	entries, err := os.ReadDir(root)
	if err != nil {
		return fmt.Errorf("cannot sweep image store: %w", err)
	}
	var errs []error
	for _, e := range entries {
		path := filepath.Join(root, e.Name())
		if !e.IsDir() {
			errs = append(errs, removeIfThere(path))
			continue
		}
		lock, err := lockDir(path)
		if err != nil {
			continue // in use, or gone by now
		}
		errs = append(errs, removeStage(path))
		lock.Close()
	}
	return errors.Join(errs...)
}

// unescape undoes the octal escapes of mountinfo.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// removeStage removes a stage unless something is mounted in it: removing
// file by file would go on into what is mounted. Nothing should be, since
// what a build mounts is in its own namespace.
func removeStage(dir string) error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if len(fields) > 4 && strings.HasPrefix(unescape.Replace(fields[4]), dir+"/") {
			return fmt.Errorf("cannot remove %s: %s is mounted; unmount it", dir, fields[4])
		}
	}
	return os.RemoveAll(dir)
}

// seal makes a file immutable in effect, readable by all, and durable.
func seal(path string) error {
	if err := os.Chmod(path, 0o444); err != nil {
		return err
	}
	return syncFile(path)
}

func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

func syncDir(path string) error { return syncFile(path) }

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
