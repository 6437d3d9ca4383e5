package ingest

import (
	"archive/tar"
	"context"
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

// files are the parts of a saved image, by name. Names are looked up in an
// index or below a directory handle; neither can lead elsewhere.
type files interface {
	open(name string) (io.ReadCloser, int64, error)
}

// dirFiles are the files of an OCI layout directory.
type dirFiles struct{ root *os.Root }

func (d dirFiles) open(name string) (io.ReadCloser, int64, error) {
	// O_NONBLOCK: a named pipe must not make us wait.
	f, err := d.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", name)
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// tarFiles are the members of a plain tar archive, read in place.
type tarFiles struct {
	archive io.ReaderAt
	members map[string]member
}

type member struct {
	offset, size int64
	link         string // the member this one is a link to, if any
}

func (t tarFiles) open(name string) (io.ReadCloser, int64, error) {
	m, ok := t.members[name]
	if ok && m.link != "" {
		// Old archives have equal layers as links to the first. One hop is
		// all there is; a chain is not followed.
		m, ok = t.members[m.link]
		ok = ok && m.link == ""
	}
	if !ok {
		return nil, 0, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return io.NopCloser(io.NewSectionReader(t.archive, m.offset, m.size)), m.size, nil
}

// shape is what an archive turned out to be.
type shape int

const (
	rootArchive shape = iota
	dockerArchive
	ociLayout
)

// rootNames are directories that only a root file system has at its top.
var rootNames = map[string]bool{
	"bin": true, "boot": true, "dev": true, "etc": true, "home": true, "lib": true, "opt": true, "proc": true,
	"root": true, "run": true, "sbin": true, "sys": true, "tmp": true, "usr": true, "var": true,
}

// inspect reads the headers of an archive to find out what it is. With seek
// it also says where its members are; it ends early at the first sign of a
// root file system.
func inspect(ctx context.Context, r io.Reader, limits Limits) (shape, map[string]member, error) {
	seeker, _ := r.(io.Seeker)
	tr := tar.NewReader(r)
	members := map[string]member{}
	names := int64(0)
	for {
		if err := context.Cause(ctx); err != nil {
			return 0, nil, err
		}
		hdr, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			if len(members) == 0 {
				return 0, nil, fault.Wrap(fault.Invalid, err, "cannot read the archive: it is no tar archive, plain or compressed with gzip or zstd")
			}
			return 0, nil, fault.Wrap(fault.Invalid, err, "cannot read the archive: it is damaged or truncated")
		}
		name := strings.TrimPrefix(path.Clean(hdr.Name), "/")
		if top, _, _ := strings.Cut(name, "/"); rootNames[top] {
			return rootArchive, nil, nil
		}
		names += int64(len(name) + len(hdr.Linkname))
		if len(members) >= limits.Entries || names > limits.IndexBytes {
			return 0, nil, fault.New(fault.Invalid, "cannot read the archive: it has too many entries")
		}
		m := member{size: hdr.Size}
		switch hdr.Typeflag {
		case tar.TypeReg:
		case tar.TypeSymlink:
			m.link = path.Join(path.Dir(name), hdr.Linkname)
		case tar.TypeLink:
			m.link = path.Clean(hdr.Linkname)
		default:
			continue
		}
		for key := range hdr.PAXRecords {
			if strings.HasPrefix(key, "GNU.sparse.") {
				return 0, nil, fault.New(fault.Invalid, "cannot read the archive: member %.300q is a sparse file", name)
			}
		}
		if _, twice := members[name]; twice {
			return 0, nil, fault.New(fault.Invalid, "cannot read the archive: it has two members named %.300q", name)
		}
		if seeker != nil {
			if m.offset, err = seeker.Seek(0, io.SeekCurrent); err != nil {
				return 0, nil, err
			}
		}
		members[name] = m
	}
	_, layout := members["oci-layout"]
	_, index := members["index.json"]
	_, manifest := members["manifest.json"]
	switch {
	case layout && index:
		return ociLayout, members, nil
	case manifest:
		return dockerArchive, members, nil
	}
	return rootArchive, nil, nil
}
