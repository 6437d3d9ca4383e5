package artifact

import (
	"archive/tar"
	"errors"
	"io"
	"path"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/agentdock/agentdock/internal/fault"
)

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

// File is a regular file in an archive. Its path is clean, relative, and below
// the top.
type File struct {
	Path       string
	Bytes      int64
	Executable bool
}

// Scan reads a tar stream and hands its regular files to keep, one after the
// other, each with a reader of its contents. Patterns are those the sandbox was
// asked for: it is not trusted to have kept to them. Whatever matches them and
// is no regular file or directory, a link above all, would lead where the
// sandbox wants; it is counted as skipped.
func Scan(r io.Reader, patterns []string, limits Limits, keep func(f File, r io.Reader) error) (skipped int, err error) {
	s := &scan{patterns: patterns, limits: limits, keep: keep, names: map[string]bool{}}
	in := tar.NewReader(r)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return s.skipped, nil
		}
		if err != nil {
			return s.skipped, fault.Wrap(fault.Invalid, err, "cannot read the archive of artifacts")
		}
		if err := s.entry(h, in); err != nil {
			return s.skipped, err
		}
	}
}

type scan struct {
	patterns []string
	limits   Limits
	keep     func(File, io.Reader) error

	entries, skipped int
	bytes            int64
	names            map[string]bool
}

func (s *scan) entry(h *tar.Header, r io.Reader) error {
	if s.entries++; s.entries > s.limits.Files*entriesPerFile {
		return fault.New(fault.Exhausted, "cannot collect artifacts: the archive has more than %d entries; ask for less", s.entries-1)
	}
	name, err := checkName(h.Name)
	if err != nil {
		return err
	}
	if h.Typeflag != tar.TypeReg {
		if h.Typeflag != tar.TypeDir && s.asked(name) {
			s.skipped++
		}
		return nil
	}
	if !s.asked(name) {
		return fault.New(fault.Invalid, "cannot collect artifact %q: it matches no pattern that was asked for", clip(name))
	}
	if s.names[name] {
		return fault.New(fault.Invalid, "cannot collect artifact %q: the archive holds it twice", clip(name))
	}
	switch {
	case len(s.names) >= s.limits.Files:
		return fault.New(fault.Exhausted, "cannot collect artifacts: there are more than %d; ask for less", s.limits.Files)
	case h.Size > s.limits.FileBytes:
		return fault.New(fault.Exhausted, "cannot collect artifact %q: %d bytes are more than %d; raise the limit or ask for less", clip(name), h.Size, s.limits.FileBytes)
	case h.Size > s.limits.TotalBytes-s.bytes:
		return fault.New(fault.Exhausted, "cannot collect artifact %q: all together are more than %d bytes; raise the limit or ask for less", clip(name), s.limits.TotalBytes)
	}
	s.bytes += h.Size
	s.names[name] = true
	err = s.keep(File{Path: name, Bytes: h.Size, Executable: h.Mode&0o111 != 0}, io.LimitReader(r, h.Size))
	var f *fault.Error
	if err == nil || errors.As(err, &f) {
		return err
	}
	return fault.Wrap(fault.Invalid, err, "cannot collect artifact %q", clip(name))
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
func (s *scan) asked(name string) bool {
	if len(s.patterns) == 0 {
		return name != "."
	}
	for n := name; n != "."; n = path.Dir(n) {
		for _, p := range s.patterns {
			if ok, err := doublestar.Match(path.Clean(p), n); ok && err == nil {
				return true
			}
		}
	}
	return false
}

// clip keeps hostile names in messages short.
func clip(s string) string {
	if len(s) > 80 {
		return strings.ToValidUTF8(s[:80], "") + "…"
	}
	return s
}
