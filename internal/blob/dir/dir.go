// Package dir keeps blobs as files of one directory of this machine (package
// blob has the contract). Any number of processes may use the directory at
// once.
//
//	ROOT/blobs/jobs,/ID,/artifact   the blob jobs/ID/artifact
//	ROOT/tmp/NAME                   one that is being written
//
// A directory has a comma after its name, which no key has, so that it is never
// taken for a blob. Nothing is reached through a symlink.
package dir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/blob"
	"github.com/agentdock/agentdock/internal/fault"
)

const (
	blobsDir = "blobs"
	tempDir  = "tmp"
)

// Store keeps blobs below a directory. It holds nothing open between calls, so
// a storage that went away and came back, mounted anew, is used again.
type Store struct{ path string }

var _ blob.Store = (*Store)(nil)

// New makes the directory if there is none, and removes what writers that were
// killed have left in it.
func New(path string) (*Store, error) {
	for _, d := range []string{path, path + "/" + blobsDir, path + "/" + tempDir} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("cannot make the directory for blobs: %w", err)
		}
	}
	s := &Store{path: path}
	if err := s.sweep(); err != nil {
		return nil, fmt.Errorf("cannot remove what is left in %s/%s: %w", path, tempDir, err)
	}
	return s, nil
}

// Put writes a file of its own and renames it when it is whole and on the disk.
func (s *Store) Put(ctx context.Context, key string, r io.Reader, size int64) (blob.Info, error) {
	if err := blob.ValidateKey(key); err != nil {
		return blob.Info{}, err
	}
	p, err := s.newPart()
	if err != nil {
		return blob.Info{}, storageError(err, "cannot begin blob %s", key)
	}
	defer p.discard()
	n, err := p.fill(ctx, r, size)
	var reading *readError
	switch {
	case errors.As(err, &reading):
		return blob.Info{}, fmt.Errorf("cannot read what blob %s is to hold: %w", key, reading.cause)
	case err != nil:
		return blob.Info{}, storageError(err, "cannot write blob %s", key)
	case size >= 0 && n != size:
		return blob.Info{}, fault.New(fault.Invalid, "cannot keep blob %s: it was to have %d bytes and has another number", key, size)
	}
	if err := s.keep(p, key); err != nil {
		return blob.Info{}, storageError(err, "cannot keep blob %s", key)
	}
	return blob.Info{Key: key, Bytes: n}, nil
}

// Open opens the file. What is read stays the same when the key is replaced or
// deleted meanwhile.
func (s *Store) Open(_ context.Context, key string) (io.ReadCloser, blob.Info, error) {
	if err := blob.ValidateKey(key); err != nil {
		return nil, blob.Info{}, err
	}
	dirs, name := fileOf(key)
	f, err := s.openFile(dirs, name)
	if errors.Is(err, errNoBlob) {
		return nil, blob.Info{}, fault.New(fault.NotFound, "blob %s does not exist", key)
	}
	if err != nil {
		return nil, blob.Info{}, storageError(err, "cannot open blob %s", key)
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, blob.Info{}, storageError(err, "cannot open blob %s", key)
	}
	return f, blob.Info{Key: key, Bytes: info.Size()}, nil
}

var errNoBlob = errors.New("no such file")

func (s *Store) openFile(dirs []string, name string) (*os.File, error) {
	top, err := s.top(blobsDir)
	if err != nil {
		return nil, err
	}
	at, err := descend(top, dirs, false)
	if err != nil {
		return nil, missing(err)
	}
	defer at.Close()
	fd, err := unix.Openat(int(at.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, missing(err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// missing tells a blob that does not exist from a storage that does not.
func missing(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return errNoBlob
	}
	return err
}

// Delete removes the file, and the directories that are empty then.
func (s *Store) Delete(_ context.Context, key string) error {
	if err := blob.ValidateKey(key); err != nil {
		return err
	}
	dirs, name := fileOf(key)
	if err := s.remove(dirs, name); err != nil {
		return storageError(err, "cannot delete blob %s", key)
	}
	return nil
}

// DeletePrefix removes a directory with all that is in it. When it fails, some
// of it may be gone.
func (s *Store) DeletePrefix(_ context.Context, prefix string) error {
	if err := blob.ValidatePrefix(prefix); err != nil {
		return err
	}
	dirs, name := fileOf(strings.TrimSuffix(prefix, "/"))
	if err := s.remove(dirs, name+","); err != nil {
		return storageError(err, "cannot delete blobs below %s", prefix)
	}
	return nil
}

func (s *Store) remove(dirs []string, name string) error {
	top, err := s.top(blobsDir)
	if err != nil {
		return err
	}
	at, err := descend(top, dirs, false)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer at.Close()
	if err := removeTree(at, name); err != nil {
		return err
	}
	if err := at.Sync(); err != nil {
		return err
	}
	return s.prune(dirs)
}

// Ping writes, as far as a disk that is full or read-only would notice.
func (s *Store) Ping(context.Context) error {
	p, err := s.newPart()
	if err != nil {
		return storageError(err, "cannot use the directory for blobs")
	}
	defer p.discard()
	if _, err := p.file.Write(make([]byte, 4096)); err != nil {
		return storageError(err, "cannot write to the directory for blobs")
	}
	return nil
}

// fileOf is where a key's file is: its directories and its name.
func fileOf(key string) (dirs []string, name string) {
	names := strings.Split(key, "/")
	for _, d := range names[:len(names)-1] {
		dirs = append(dirs, d+",")
	}
	return dirs, names[len(names)-1]
}

// storageError says what a caller can do about it: free something, or wait
// until the storage is back.
func storageError(err error, format string, args ...any) error {
	code := fault.Unavailable
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		code = fault.Exhausted
		format += ": the storage is full"
	}
	return fault.Wrap(code, err, format, args...)
}
