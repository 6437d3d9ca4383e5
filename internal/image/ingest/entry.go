package ingest

import (
	"archive/tar"
	"fmt"
	"maps"
	"math"
	"strings"
	"time"
)

// badEntry says what is wrong with one entry of an archive.
type badEntry struct {
	name   string
	reason string
}

func (e *badEntry) Error() string {
	if e.name == "" {
		return e.reason
	}
	return fmt.Sprintf("entry %.300q: %s", e.name, e.reason)
}

func refuse(name, reason string, args ...any) error {
	return &badEntry{name: name, reason: fmt.Sprintf(reason, args...)}
}

// clean turns a name from an archive into components joined by "/", without
// "." and empty ones; the root is "". It refuses every name that could mean
// something outside the root, and charges the name to the budget.
func (f *flattener) clean(name string) (string, error) {
	if f.names += int64(len(name)); f.names > f.limits.IndexBytes {
		return "", refuse(name, "the image's names and link targets have more than %d bytes", f.limits.IndexBytes)
	}
	switch {
	case name == "":
		return "", refuse(name, "it has no name")
	case strings.IndexByte(name, 0) >= 0:
		return "", refuse(name, "its name holds a NUL byte")
	case name[0] == '/':
		return "", refuse(name, "its name is absolute")
	case len(name) > f.limits.PathBytes:
		return "", refuse(name, "its name has more than %d bytes", f.limits.PathBytes)
	}
	parts := make([]string, 0, 8)
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "" || part == ".":
			continue
		case part == "..":
			return "", refuse(name, "its name holds \"..\"")
		case len(part) > f.limits.NameBytes:
			return "", refuse(name, "a part of its name has more than %d bytes", f.limits.NameBytes)
		}
		parts = append(parts, part)
	}
	if len(parts) > f.limits.Depth {
		return "", refuse(name, "it is more than %d directories deep", f.limits.Depth)
	}
	return strings.Join(parts, "/"), nil
}

// masked says whether an entry is below a directory that the runtime covers
// with its own. Nothing there can ever be seen, and ordinary root archives
// have device nodes in dev, so such entries are left out whatever they are.
func masked(path string) bool {
	top, _, below := strings.Cut(path, "/")
	if !below {
		return false
	}
	switch top {
	case "dev", "proc", "sys", ".agentdock":
		return true
	}
	return false
}

// maxTarget is the kernel's limit for a symlink.
const maxTarget = 4095

// maxID keeps user and group ids positive in every type they pass through,
// and away from the value that means "leave as it is" to chown.
const maxID = math.MaxInt32 - 1

// check refuses headers that describe what an image cannot have.
func check(hdr *tar.Header) error {
	switch hdr.Typeflag {
	case tar.TypeReg, tar.TypeDir, tar.TypeLink:
	case tar.TypeSymlink:
		switch {
		case hdr.Linkname == "":
			return refuse(hdr.Name, "it is a symbolic link to nothing")
		case len(hdr.Linkname) > maxTarget:
			return refuse(hdr.Name, "its link target has more than %d bytes", maxTarget)
		case strings.IndexByte(hdr.Linkname, 0) >= 0:
			return refuse(hdr.Name, "its link target holds a NUL byte")
		}
	case tar.TypeChar, tar.TypeBlock:
		return refuse(hdr.Name, "it is a device; an image cannot have devices outside /dev")
	case tar.TypeFifo:
		return refuse(hdr.Name, "it is a named pipe; an image can have files, directories and links only")
	case tar.TypeGNUSparse:
		return refuse(hdr.Name, "it is a sparse file; pack the archive without --sparse")
	default:
		return refuse(hdr.Name, "its type %q is unknown; an image can have files, directories and links only", hdr.Typeflag)
	}
	for key := range maps.Keys(hdr.PAXRecords) {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return refuse(hdr.Name, "it is a sparse file; pack the archive without --sparse")
		}
	}
	if hdr.Size < 0 || hdr.Typeflag != tar.TypeReg && hdr.Size != 0 {
		return refuse(hdr.Name, "its size %d makes no sense", hdr.Size)
	}
	if hdr.Uid < 0 || hdr.Uid > maxID || hdr.Gid < 0 || hdr.Gid > maxID {
		return refuse(hdr.Name, "its owner %d:%d makes no sense", hdr.Uid, hdr.Gid)
	}
	return nil
}

// mode keeps the permissions and a directory's sticky bit. Set-user-ID and
// set-group-ID are dropped: they have no effect in a sandbox, which sets
// no_new_privs, and without them nobody has to rely on that. For the same
// reason extended attributes, file capabilities among them, are not read at
// all.
func mode(hdr *tar.Header) uint32 {
	m := uint32(hdr.Mode & 0o777)
	if hdr.Typeflag == tar.TypeDir {
		m |= uint32(hdr.Mode & 0o1000)
	}
	return m
}

// mtime keeps whole seconds, which is what a plain archive holds. It is kept
// at all because compiled Python files are only used while their source has
// the time they were compiled for. What does not fit in 32 bits becomes the
// epoch, so that no tool behind us sees an odd value.
func mtime(hdr *tar.Header) time.Time {
	s := hdr.ModTime.Unix()
	if s < 0 || s > math.MaxInt32 {
		return epoch
	}
	return time.Unix(s, 0)
}
