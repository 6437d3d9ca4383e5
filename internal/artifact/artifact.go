// Package artifact writes what comes out of a sandbox to a directory of the
// host. The archive is hostile: a name in it is a claim, never a path that is
// followed. Whatever arrives, nothing outside the directory is written, read or
// linked to, and no more is written than the limits allow.
package artifact

import (
	"archive/tar"
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

	"github.com/bmatcuk/doublestar/v4"

	"github.com/agentdock/agentdock/internal/fault"
)

// Artifact is a file that was collected.
type Artifact struct {
	Path   string `json:"path"` // below the directory, with slashes
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Limits bound what is collected.
type Limits struct {
	Files      int
	FileBytes  int64
	TotalBytes int64
}

// DefaultLimits is what applies unless a caller asks for something else.
func DefaultLimits() Limits {
	return Limits{Files: 10_000, FileBytes: 256 << 20, TotalBytes: 256 << 20}
}

// entriesPerFile bounds entries that are not kept, as a multiple of Files: a
// stream of nothing but directories must end too.
const entriesPerFile = 20

// Collect reads a tar stream and writes its regular files below dir; all else
// in it is left out. Patterns are those the sandbox was asked for: it is not
// trusted to have kept to them. A file is complete under its name or not
// there. A file of that name that exists is replaced, never written through.
//
// It returns the files that are complete, also when it fails.
func Collect(r io.Reader, dir *os.Root, patterns []string, limits Limits) ([]Artifact, error) {
	c := &collector{
		top: dir, patterns: patterns, limits: limits,
		names: map[string]bool{}, files: map[file]string{}, buf: make([]byte, 128<<10),
	}
	defer c.leave()
	in := tar.NewReader(r)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return c.got, nil
		}
		if err != nil {
			return c.got, fault.Wrap(fault.Invalid, err, "cannot read the archive of artifacts")
		}
		if err := c.entry(h, in); err != nil {
			return c.got, err
		}
	}
}

// file identifies a file on the host.
type file struct{ dev, ino uint64 }

type collector struct {
	top      *os.Root
	patterns []string
	limits   Limits

	entries int
	bytes   int64
	got     []Artifact
	names   map[string]bool
	files   map[file]string
	buf     []byte

	// The directory the last file went to: files of one come together.
	at     *os.Root
	atName string
}

func (c *collector) entry(h *tar.Header, r io.Reader) error {
	if c.entries++; c.entries > c.limits.Files*entriesPerFile {
		return fault.New(fault.Exhausted, "cannot collect artifacts: the archive has more than %d entries; ask for less", c.entries-1)
	}
	name, err := checkName(h.Name)
	if err != nil {
		return err
	}
	if h.Typeflag != tar.TypeReg {
		return nil // a link would lead where the sandbox wants
	}
	if !c.asked(name) {
		return fault.New(fault.Invalid, "cannot collect artifact %q: it matches no pattern that was asked for", clip(name))
	}
	if c.names[name] {
		return fault.New(fault.Invalid, "cannot collect artifact %q: the archive holds it twice", clip(name))
	}
	switch {
	case len(c.got) >= c.limits.Files:
		return fault.New(fault.Exhausted, "cannot collect artifacts: there are more than %d; ask for less", c.limits.Files)
	case h.Size > c.limits.FileBytes:
		return fault.New(fault.Exhausted, "cannot collect artifact %q: %d bytes are more than %d; raise the limit or ask for less", clip(name), h.Size, c.limits.FileBytes)
	case h.Size > c.limits.TotalBytes-c.bytes:
		return fault.New(fault.Exhausted, "cannot collect artifact %q: all together are more than %d bytes; raise the limit or ask for less", clip(name), c.limits.TotalBytes)
	}
	c.bytes += h.Size
	c.names[name] = true
	sum, err := c.write(name, h, r)
	if err != nil {
		var f *fault.Error
		if errors.As(err, &f) {
			return err
		}
		return fault.Wrap(fault.Invalid, err, "cannot collect artifact %q", clip(name))
	}
	c.got = append(c.got, Artifact{Path: name, Bytes: h.Size, SHA256: sum})
	return nil
}

// checkName refuses every name that could lead out of the directory, or is
// written so that it might look different to somebody else.
func checkName(name string) (string, error) {
	bad := func(why string) error {
		return fault.New(fault.Invalid, "cannot collect artifacts: the name %q %s", clip(name), why)
	}
	switch {
	case len(name) > 4096:
		return "", bad("is too long")
	case strings.HasPrefix(name, "/"):
		return "", bad("is absolute")
	case strings.IndexByte(name, 0) >= 0:
		return "", bad("holds a NUL byte")
	}
	for _, elem := range strings.Split(name, "/") {
		if elem == ".." {
			return "", bad("holds '..'")
		}
		if len(elem) > 255 {
			return "", bad("is too long")
		}
	}
	return path.Clean(name), nil
}

// asked reports whether a pattern matches the name or a directory it is in.
func (c *collector) asked(name string) bool {
	if len(c.patterns) == 0 {
		return name != "."
	}
	for n := name; n != "."; n = path.Dir(n) {
		for _, p := range c.patterns {
			if ok, err := doublestar.Match(path.Clean(p), n); ok && err == nil {
				return true
			}
		}
	}
	return false
}

// write makes the file beside its final name and renames it there: that
// replaces a link instead of following it, and never shows half a file.
func (c *collector) write(name string, h *tar.Header, r io.Reader) (string, error) {
	dirName, base := path.Split(name)
	if err := c.enter(path.Clean(dirName)); err != nil {
		return "", err
	}
	mode := fs.FileMode(0o644)
	if h.Mode&0o111 != 0 {
		mode = 0o755
	}
	part := ".agentdock-" + rand.Text()
	f, err := c.at.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	sum, id, err := c.fill(f, h.Size, mode, r)
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
		return errors.New("a directory of that name is in the way")
	}
	// On a file system that ignores case, two names are one file.
	if other, ok := c.files[identify(info)]; ok {
		return fmt.Errorf("its name is the same as that of %q on this file system", clip(other))
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
		return nil, fmt.Errorf("%q is in the way: it is not a directory", clip(elem))
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

// clip keeps hostile names in messages short.
func clip(s string) string {
	if len(s) > 80 {
		return strings.ToValidUTF8(s[:80], "") + "…"
	}
	return s
}
