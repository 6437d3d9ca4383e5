// Package backing keeps the contents of workspaces that are larger than memory:
// one file of the host for each sandbox, which has no name and is gone when the
// last process that has it open is.
//
// The file is set aside in full before a program runs, so that a host that has
// no room refuses the sandbox and does not fail its programs, and what all
// files may take together is bounded.
package backing

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/fault"
)

// Config says where files are and how much they may take.
type Config struct {
	// Dir is a directory on a disk. It is made if it is missing.
	Dir string
	// Total bounds what all files of this Store may take together; 0 leaves it
	// to KeepFree.
	Total int64
	// KeepFree is what the file system must still have free after a file was
	// set aside.
	KeepFree int64
}

// Store hands out files.
type Store struct {
	cfg Config

	mu    sync.Mutex
	files map[*File]struct{}
}

// Open looks whether files can be kept in the directory.
func Open(cfg Config) (*Store, error) {
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("cannot keep workspaces on disk: %w", err)
	}
	s := &Store{cfg: cfg, files: map[*File]struct{}{}}
	var st unix.Statfs_t
	if err := unix.Statfs(cfg.Dir, &st); err != nil {
		return nil, fmt.Errorf("cannot keep workspaces in %s: %w", cfg.Dir, err)
	}
	switch st.Type {
	case unix.TMPFS_MAGIC, unix.RAMFS_MAGIC:
		return nil, fmt.Errorf("cannot keep workspaces in %s: it is in memory, not on a disk", cfg.Dir)
	}
	if st.Flags&unix.ST_NOEXEC != 0 {
		return nil, fmt.Errorf("cannot keep workspaces in %s: it is mounted noexec, so that no program in a workspace could run", cfg.Dir)
	}
	// Not all file systems can do what a File needs.
	f, err := s.unnamed()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for _, mode := range []uint32{unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_KEEP_SIZE | unix.FALLOC_FL_PUNCH_HOLE} {
		if err := unix.Fallocate(int(f.Fd()), mode, 0, int64(os.Getpagesize())); err != nil {
			return nil, fmt.Errorf("cannot keep workspaces in %s: its file system cannot set room aside and give it back: %w", cfg.Dir, err)
		}
	}
	return s, nil
}

func (s *Store) unnamed() (*os.File, error) {
	fd, err := unix.Open(s.cfg.Dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot make a file without a name in %s: %w", s.cfg.Dir, err)
	}
	return os.NewFile(uintptr(fd), filepath.Join(s.cfg.Dir, "workspace")), nil
}

// File holds the contents of one sandbox's files.
type File struct {
	*os.File
	store *Store
	bytes int64
	// held says that the room is the file's. It is guarded by store.mu.
	held bool
}

// Take makes a file for which there is room. It fails with Exhausted while others
// have the room, and with Unsupported if there would not be enough without them
// either. The caller has it emptied by whoever is to write to it, calls Hold then,
// and Close in the end.
func (s *Store) Take(bytes int64) (*File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	disk, err := s.room()
	if err != nil {
		return nil, err
	}
	// Whoever is told to wait would wait for ever for these.
	if s.cfg.Total > 0 && bytes > s.cfg.Total {
		return nil, fault.New(fault.Unsupported, "a workspace of %d bytes can never fit here: this service's limit for all workspaces on disk is %d; lower --disk",
			bytes, s.cfg.Total)
	}
	if bytes > disk.whole-s.cfg.KeepFree {
		return nil, fault.New(fault.Unsupported, "a workspace of %d bytes can never fit here: the host's disk has %d in all, of which %d are kept free; lower --disk",
			bytes, disk.whole, s.cfg.KeepFree)
	}
	given, promised := bytes, bytes
	for f := range s.files {
		given += f.bytes
		if !f.held {
			promised += f.bytes
		}
	}
	if s.cfg.Total > 0 && given > s.cfg.Total {
		return nil, fault.New(fault.Exhausted, "the workspaces on disk would take %d bytes together, more than this service's limit of %d; destroy sandboxes or lower --disk",
			given, s.cfg.Total)
	}
	if disk.free-promised < s.cfg.KeepFree {
		// Where workspaces are, and how full it is there, is the operator's business.
		return nil, fault.Wrap(fault.Exhausted,
			fmt.Errorf("%s has %d free, of which %d are for sandboxes that are starting and %d are kept free", s.cfg.Dir, disk.free, promised-bytes, s.cfg.KeepFree),
			"the host has no room for a workspace of %d bytes; make room or lower --disk", bytes)
	}
	file, err := s.unnamed()
	if err != nil {
		return nil, err
	}
	f := &File{File: file, store: s, bytes: bytes}
	s.files[f] = struct{}{}
	return f, nil
}

// TakeGrowing makes a file that takes room as it is written, each byte after Grow
// has found that there is room for it.
func (s *Store) TakeGrowing() (*File, error) {
	file, err := s.unnamed()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &File{File: file, store: s, held: true}
	s.files[f] = struct{}{}
	return f, nil
}

// Grow makes room for bytes that are to be written now. It fails with Exhausted.
func (f *File) Grow(bytes int64) error {
	s := f.store
	s.mu.Lock()
	defer s.mu.Unlock()
	disk, err := s.room()
	if err != nil {
		return err
	}
	given, promised := bytes, bytes
	for other := range s.files {
		given += other.bytes
		if !other.held {
			promised += other.bytes
		}
	}
	if s.cfg.Total > 0 && given > s.cfg.Total {
		return fault.New(fault.Exhausted, "workspaces and paused sandboxes on disk would take %d bytes together, more than this service's limit of %d; destroy sandboxes",
			given, s.cfg.Total)
	}
	if disk.free-promised < s.cfg.KeepFree {
		return fault.New(fault.Exhausted, "the host has no room on disk")
	}
	f.bytes += bytes
	return nil
}

// Size is how much was set aside.
func (f *File) Size() int64 {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	return f.bytes
}

// room is what a file system has, empty and now, for those who are not root of
// the host: what it keeps back for root is not handed out.
type room struct{ whole, free int64 }

func (s *Store) room() (room, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(s.cfg.Dir, &st); err != nil {
		return room{}, fmt.Errorf("cannot see how full %s is: %w", s.cfg.Dir, err)
	}
	kept := max(int64(st.Bfree)-int64(st.Bavail), 0)
	return room{whole: (int64(st.Blocks) - kept) * st.Frsize, free: int64(st.Bavail) * st.Frsize}, nil
}

// Hold sets the room aside: from here on it is missing for everybody else.
func (f *File) Hold() error {
	if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, f.bytes); err != nil {
		err = &os.PathError{Op: "fallocate", Path: f.store.cfg.Dir, Err: err}
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
			return fault.Wrap(fault.Exhausted, err, "the host has no room for a workspace of %d bytes", f.bytes)
		}
		return err
	}
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	f.held = true
	return nil
}

// mostSlack is how much more a file may take than was set aside for it while the
// host has room. What is set aside lies at the front, and a file in which much
// was written and removed again is used further on too, at most once more;
// what was removed is given back in the background.
func (f *File) mostSlack() int64 { return f.bytes + 256<<20 }

// Overdrawn says why the file must go: it takes more than was set aside for it,
// and either that is more than a sandbox could need or the host has no room for
// it. It returns "" if it may stay.
func (f *File) Overdrawn() string {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fmt.Sprintf("cannot see how large its workspace is: %v", err)
	}
	over := st.Blocks*512 - f.bytes
	if over <= f.bytes/64+1<<20 { // the file system's own notes about where it is
		return ""
	}
	if over > f.mostSlack() {
		return fmt.Sprintf("its workspace takes %d bytes of the host's disk more than the %d set aside for it", over, f.bytes)
	}
	if disk, err := f.store.room(); err == nil && disk.free < f.store.cfg.KeepFree {
		return fmt.Sprintf("its workspace takes %d bytes of the host's disk more than the %d set aside for it, and only %d are free", over, f.bytes, disk.free)
	}
	return ""
}

// Close gives the room back, once no other process has the file open.
func (f *File) Close() error {
	f.store.mu.Lock()
	delete(f.store.files, f)
	f.store.mu.Unlock()
	return f.File.Close()
}
