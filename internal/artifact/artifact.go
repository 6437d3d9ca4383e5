// Package artifact takes what comes out of a sandbox: an archive that is hostile.
// A name in it is a claim, never a path that is followed, and no more is taken
// than the limits allow. Collect writes to a directory of the host, and nothing
// outside that directory is written, read or linked to.
package artifact

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/agentdock/agentdock/internal/fault"
)

// Artifact is a file that was collected.
type Artifact struct {
	Path   string `json:"path"` // below the directory, with slashes
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Collect reads a tar stream and writes its regular files below dir; all else
// in it is left out. Patterns are those the sandbox was asked for: it is not
// trusted to have kept to them. A file is complete under its name or not
// there. A file of that name that exists is replaced, never written through.
//
// What is in the way of one file on the host, such as a directory of its name,
// stops that one only; the error names it. Collect returns the files that are
// complete, also when it fails.
func Collect(r io.Reader, dir *os.Root, patterns []string, limits Limits) ([]Artifact, error) {
	c := &collector{top: dir, files: map[file]string{}, buf: make([]byte, 128<<10)}
	defer c.leave()
	_, err := Scan(r, patterns, limits, c.keep)
	if err == nil {
		err = c.left()
	}
	return c.got, err
}

// obstacle is something of the host that is in the way of one file.
type obstacle struct{ error }

// file identifies a file on the host.
type file struct{ dev, ino uint64 }

type collector struct {
	top   *os.Root
	got   []Artifact
	files map[file]string
	buf   []byte
	// obstacle is the first there was, and obstacles is how many.
	obstacle  error
	obstacles int

	// The directory the last file went to: files of one come together.
	at     *os.Root
	atName string
}

func (c *collector) keep(f File, r io.Reader) error {
	sum, err := c.write(f, r)
	if in, ok := errors.AsType[obstacle](err); ok {
		if c.obstacles++; c.obstacle == nil {
			c.obstacle = fault.Wrap(fault.Invalid, in, "cannot collect artifact %q", clip(f.Path))
		}
		return nil
	}
	if err != nil {
		return err
	}
	c.got = append(c.got, Artifact{Path: f.Path, Bytes: f.Bytes, SHA256: sum})
	return nil
}

// left says which files were left out.
func (c *collector) left() error {
	if c.obstacles < 2 {
		return c.obstacle
	}
	return fault.Wrap(fault.Invalid, c.obstacle, "%d artifacts were left out; the first: %s", c.obstacles, fault.Public(c.obstacle))
}

// write makes the file beside its final name and renames it there: that
// replaces a link instead of following it, and never shows half a file.
func (c *collector) write(of File, r io.Reader) (string, error) {
	name := of.Path
	dirName, base := path.Split(name)
	if err := c.enter(path.Clean(dirName)); err != nil {
		return "", err
	}
	mode := fs.FileMode(0o644)
	if of.Executable {
		mode = 0o755
	}
	part := ".agentdock-" + rand.Text()
	f, err := c.at.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	sum, id, err := c.fill(f, of.Bytes, mode, r)
	if err == nil {
		err = c.vacate(base, name)
	}
	if err == nil {
		err = c.at.Rename(part, base)
	}
	if err != nil {
		return "", errors.Join(err, c.at.Remove(part))
	}
	c.files[id] = name
	return sum, nil
}

func (c *collector) fill(f *os.File, size int64, mode fs.FileMode, r io.Reader) (sum string, id file, err error) {
	defer func() { err = errors.Join(err, f.Close()) }()
	hash := sha256.New()
	n, err := io.CopyBuffer(io.MultiWriter(f, hash), io.LimitReader(r, size), c.buf)
	if err != nil {
		return "", id, err
	}
	if n != size {
		return "", id, io.ErrUnexpectedEOF
	}
	if err := f.Chmod(mode); err != nil {
		return "", id, err
	}
	info, err := f.Stat()
	if err != nil {
		return "", id, err
	}
	return hex.EncodeToString(hash.Sum(nil)), identify(info), nil
}

// vacate says whether base may be replaced.
func (c *collector) vacate(base, name string) error {
	info, err := c.at.Lstat(base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.IsDir() {
		return obstacle{errors.New("a directory of that name is in the way")}
	}
	// On a file system that ignores case, two names are one file.
	if other, ok := c.files[identify(info)]; ok {
		return obstacle{fmt.Errorf("its name is the same as that of %q on this file system", clip(other))}
	}
	return nil
}

func identify(info fs.FileInfo) file {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return file{}
	}
	return file{dev: uint64(st.Dev), ino: st.Ino}
}

// enter opens a directory below the top, making what is missing. It goes step
// by step: os.Root keeps inside, but would follow a symlink that stays there.
func (c *collector) enter(name string) error {
	if c.at != nil && c.atName == name {
		return nil
	}
	c.leave()
	at, err := c.top.OpenRoot(".")
	if err != nil {
		return err
	}
	for _, elem := range strings.Split(name, "/") {
		if elem == "." {
			continue
		}
		next, err := step(at, elem)
		at.Close()
		if err != nil {
			return fmt.Errorf("cannot use directory %q: %w", clip(name), err)
		}
		at = next
	}
	c.at, c.atName = at, name
	return nil
}

func step(at *os.Root, elem string) (*os.Root, error) {
	if err := at.Mkdir(elem, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	seen, err := at.Lstat(elem)
	if err != nil {
		return nil, err
	}
	if !seen.IsDir() {
		return nil, obstacle{fmt.Errorf("%q is in the way: it is not a directory", clip(elem))}
	}
	next, err := at.OpenRoot(elem)
	if err != nil {
		return nil, err
	}
	if now, err := next.Stat("."); err != nil || !os.SameFile(seen, now) {
		next.Close()
		return nil, fmt.Errorf("%q was replaced meanwhile", clip(elem))
	}
	return next, nil
}

func (c *collector) leave() {
	if c.at != nil {
		c.at.Close()
		c.at = nil
	}
}
