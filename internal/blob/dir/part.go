package dir

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// part is a file that is being written. Its writer holds a lock on it, which
// ends with the process: that tells a sweep which ones are dead.
type part struct {
	dir  *os.File
	file *os.File
	name string
	kept bool
}

func (s *Store) newPart() (*part, error) {
	dir, err := s.top(tempDir)
	if err != nil {
		return nil, err
	}
	for {
		p, err := lockedPart(dir)
		if err != nil {
			dir.Close()
			return nil, err
		}
		if p != nil {
			return p, nil
		}
	}
}

// lockedPart returns nil when a sweep was faster than the lock.
func lockedPart(dir *os.File) (*part, error) {
	name := rand.Text()
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	p := &part{dir: dir, file: os.NewFile(uintptr(fd), name), name: name}
	var st unix.Stat_t
	err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		err = unix.Fstat(fd, &st)
	}
	if err == nil && st.Nlink > 0 {
		return p, nil
	}
	_ = unix.Unlinkat(int(dir.Fd()), name, 0)
	p.file.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = nil
	}
	return nil, err
}

// discard removes the file unless it was kept.
func (p *part) discard() {
	if !p.kept {
		_ = unix.Unlinkat(int(p.dir.Fd()), p.name, 0)
	}
	p.file.Close()
	p.dir.Close()
}

// readError is a failure of the reader, not of the storage.
type readError struct{ cause error }

func (e *readError) Error() string { return e.cause.Error() }

// fill writes what r gives and syncs it. Of an r that gives more than size it
// reads one byte more.
func (p *part) fill(ctx context.Context, r io.Reader, size int64) (int64, error) {
	if size >= 0 {
		r = io.LimitReader(r, size+1)
	}
	buf := make([]byte, 256<<10)
	var total int64
	for {
		if err := ctx.Err(); err != nil {
			return total, &readError{err}
		}
		n, err := r.Read(buf)
		if n > 0 {
			if _, err := p.file.Write(buf[:n]); err != nil {
				return total, err
			}
			total += int64(n)
		}
		if errors.Is(err, io.EOF) {
			return total, p.file.Sync()
		}
		if err != nil {
			return total, &readError{err}
		}
	}
}

// keep gives the file its name. The directories may be removed by a Delete
// between the steps, and are then made again.
func (s *Store) keep(p *part, key string) error {
	dirs, name := fileOf(key)
	var err error
	for range 100 {
		if err = s.rename(p, dirs, name); !errors.Is(err, unix.ENOENT) {
			break
		}
	}
	return err
}

func (s *Store) rename(p *part, dirs []string, name string) error {
	top, err := s.top(blobsDir)
	if err != nil {
		return err
	}
	at, err := descend(top, dirs, true)
	if err != nil {
		return err
	}
	defer at.Close()
	if err := unix.Renameat(int(p.dir.Fd()), p.name, int(at.Fd()), name); err != nil {
		return err
	}
	p.kept = true
	return at.Sync()
}

// sweep removes parts whose writers are gone.
func (s *Store) sweep() error {
	dir, err := s.top(tempDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		if err := sweepPart(dir, name); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func sweepPart(dir *os.File, name string) error {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil // somebody writes it
	}
	return unix.Unlinkat(int(dir.Fd()), name, 0)
}
