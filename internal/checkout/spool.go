package checkout

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/checkout/reason"
	"github.com/agentdock/agentdock/internal/quantity"
)

// spool holds a pack in a file that has no name: when this process ends, in
// whatever way, the kernel frees it. Nothing is written beyond its limit.
type spool struct {
	file        *os.File
	size, limit int64
}

const spoolPrefix = "pack-"

func newSpool(dir string, limit int64) (*spool, error) {
	fd, err := unix.Open(dir, unix.O_RDWR|unix.O_TMPFILE|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return &spool{file: os.NewFile(uintptr(fd), dir), limit: limit}, nil
	}
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EISDIR) {
		return nil, fmt.Errorf("cannot make a file in %s: %w", dir, err)
	}
	// A file system without nameless files: it has a name for a moment. If this
	// process is killed in it, the next start removes an empty file.
	f, err := os.CreateTemp(dir, spoolPrefix)
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, reason.Also(err, f.Close())
	}
	return &spool{file: f, limit: limit}, nil
}

// sweepSpools makes the directory and removes names from it. A file that
// somebody is about to remove, because they just made it, loses nothing by that.
func sweepSpools(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	left, err := filepath.Glob(filepath.Join(dir, spoolPrefix+"*"))
	if err != nil {
		return err
	}
	for _, name := range left {
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (s *spool) Write(p []byte) (int, error) {
	if s.size+int64(len(p)) > s.limit {
		return 0, reason.New(reason.TooLarge, "what the server sends is more than %s, which is the least of the limit for a fetch and the sandbox's disk", quantity.Size(s.limit))
	}
	n, err := s.file.Write(p)
	s.size += int64(n)
	if err != nil {
		return n, fmt.Errorf("cannot keep the repository on its way: %w", err)
	}
	return n, nil
}

// reader reads the pack from its beginning; any number of times.
func (s *spool) reader() io.Reader { return io.NewSectionReader(s.file, 0, s.size) }

// Close frees the pack.
func (s *spool) Close() error { return s.file.Close() }
