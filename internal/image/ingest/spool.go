package ingest

import (
	"fmt"
	"io"
	"os"
	"strconv"
)

// spool holds the contents of files while the tree is put together: numbered
// files in a directory of our own, so that no name from an archive reaches
// the host's file system before every layer was checked.
type spool struct {
	dir  *os.Root
	next int
}

func openSpool(path string) (*spool, error) {
	if err := os.Mkdir(path, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make spool: %w", err)
	}
	dir, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("cannot open spool: %w", err)
	}
	return &spool{dir: dir}, nil
}

func (s *spool) Close() error { return s.dir.Close() }

func spoolName(content int) string { return strconv.Itoa(content) }

// put stores exactly size bytes of r and returns the number of the file.
func (s *spool) put(r io.Reader, size int64) (content int, err error) {
	content = s.next
	s.next++
	f, err := s.dir.OpenFile(spoolName(content), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, fmt.Errorf("cannot spool a file: %w", err)
	}
	_, err = io.CopyN(f, r, size)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF // the archive ends inside the file
	}
	return content, err
}

// discard gives back the space of contents no longer needed, so that layers
// which replace one another's files do not add up on disk.
func (s *spool) discard(content int) error {
	if err := s.dir.Remove(spoolName(content)); err != nil {
		return fmt.Errorf("cannot discard a spooled file: %w", err)
	}
	return nil
}

// read returns a small file's contents; larger ones are an error.
func (s *spool) read(in *inode, limit int64) ([]byte, error) {
	if in.size > limit {
		return nil, fmt.Errorf("it has %d bytes, %d is the limit", in.size, limit)
	}
	return s.dir.ReadFile(spoolName(in.content))
}
