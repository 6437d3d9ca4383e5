package execenvtest

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"path"
	"strings"
	"sync"
	"testing"

	"github.com/agentdock/agentdock/internal/execenv"
)

// entry is one member of an archive a case makes or got.
type entry struct {
	kind   byte // tar.TypeReg, …
	name   string
	mode   int64
	body   string
	target string
}

func file(name string, mode int64, body string) entry {
	return entry{kind: tar.TypeReg, name: name, mode: mode, body: body}
}
func dir(name string, mode int64) entry {
	return entry{kind: tar.TypeDir, name: name + "/", mode: mode}
}
func symlink(name, target string) entry {
	return entry{kind: tar.TypeSymlink, name: name, mode: 0o777, target: target}
}
func hardlink(name, target string) entry {
	return entry{kind: tar.TypeLink, name: name, mode: 0o644, target: target}
}
func special(kind byte, name string) entry { return entry{kind: kind, name: name, mode: 0o666} }

// tarOf packs entries as they are, hostile ones included.
func tarOf(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range entries {
		hdr := &tar.Header{Typeflag: e.kind, Name: e.name, Mode: e.mode, Size: int64(len(e.body)), Linkname: e.target}
		if e.kind == tar.TypeChar || e.kind == tar.TypeBlock {
			hdr.Devmajor, hdr.Devminor = 1, 3
		}
		// What no header field holds needs a record of its own.
		if len(e.name) > 100 || strings.ContainsFunc(e.name+e.target, func(r rune) bool { return r > 0x7e || r < 0x20 }) {
			hdr.Format = tar.FormatGNU
		}
		if err := w.WriteHeader(hdr); err != nil {
			t.Fatalf("cannot write the header of %q: %v", e.name, err)
		}
		if _, err := io.WriteString(w, e.body); err != nil {
			t.Fatalf("cannot write %q: %v", e.name, err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatalf("cannot close the archive: %v", err)
	}
	return buf.Bytes()
}

// untar reads a whole archive, by cleaned name. The probe is left out.
func untar(t testing.TB, b []byte) map[string]entry {
	t.Helper()
	all := map[string]entry{}
	r := tar.NewReader(bytes.NewReader(b))
	for {
		hdr, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Errorf("the archive is broken: %v", err)
			return all
		}
		body, err := io.ReadAll(r)
		if err != nil {
			t.Errorf("the archive is broken in %q: %v", hdr.Name, err)
			return all
		}
		if clean := path.Clean(hdr.Name); path.IsAbs(clean) || clean == ".." || strings.HasPrefix(clean, "../") {
			t.Errorf("the archive has an entry %q", hdr.Name)
		}
		name := path.Clean(hdr.Name)
		switch hdr.Typeflag {
		case tar.TypeReg, tar.TypeDir, tar.TypeSymlink:
		default:
			t.Errorf("the archive has %q of type %q", hdr.Name, hdr.Typeflag)
		}
		if _, twice := all[name]; twice {
			t.Errorf("the archive has %q twice", name)
		}
		if name != "." && name != ".probe" {
			all[name] = entry{kind: hdr.Typeflag, name: name, mode: hdr.Mode & 0o777, body: string(body), target: hdr.Linkname}
		}
	}
}

// get packs and reads.
func (b *box) get(req execenv.ArchiveRequest) map[string]entry {
	b.c.Helper()
	var buf bytes.Buffer
	if err := b.GetArchive(b.c.ctx(), req, &buf); err != nil {
		b.c.Errorf("GetArchive %+v: %v", req, err)
		return nil
	}
	return untar(b.c.T, buf.Bytes())
}

func bytesReader(b []byte) io.Reader { return bytes.NewReader(b) }

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// stuckReader blocks its first Read, and stuckWriter its first Write, until
// released.
type stuckReader struct {
	reached, free         chan struct{}
	reachedOnce, freeOnce sync.Once
}

func newStuckReader() *stuckReader {
	return &stuckReader{reached: make(chan struct{}), free: make(chan struct{})}
}

func (r *stuckReader) release() { r.freeOnce.Do(func() { close(r.free) }) }

func (r *stuckReader) Read([]byte) (int, error) {
	r.reachedOnce.Do(func() { close(r.reached) })
	<-r.free
	return 0, errors.New("stuck reader was released")
}

type stuckWriter struct{ stuckReader }

func newStuckWriter() *stuckWriter {
	return &stuckWriter{stuckReader{reached: make(chan struct{}), free: make(chan struct{})}}
}

func (w *stuckWriter) Write([]byte) (int, error) { return w.Read(nil) }
