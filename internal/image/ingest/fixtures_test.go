package ingest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/image"
)

// requireReal is for tests that need root and mkfs.erofs. CI sets
// AGENTDOCK_TEST_REQUIRE_REAL=1, where skipping is failing.
func requireReal(t testing.TB) {
	t.Helper()
	var missing []string
	if os.Geteuid() != 0 {
		missing = append(missing, "root")
	}
	if _, err := exec.LookPath("mkfs.erofs"); err != nil {
		missing = append(missing, "mkfs.erofs (package erofs-utils)")
	}
	skipFor(t, missing...)
}

func skipFor(t testing.TB, missing ...string) {
	t.Helper()
	if len(missing) == 0 {
		return
	}
	if os.Getenv("AGENTDOCK_TEST_REQUIRE_REAL") == "1" {
		t.Fatalf("must not be skipped, but missing: %s", strings.Join(missing, ", "))
	}
	t.Skipf("missing: %s", strings.Join(missing, ", "))
}

func dir(name string) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755}
}

// file's contents are its Linkname until archive writes it.
func file(name, content string) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Linkname: content, Size: int64(len(content)), ModTime: time.Unix(1e9, 0)}
}

func link(name, target string) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target}
}

func symlinkTo(name, target string) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}
}

func archive(t testing.TB, entries ...*tar.Header) []byte {
	t.Helper()
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	for _, e := range entries {
		h := *e
		var content string
		if h.Typeflag == tar.TypeReg {
			content, h.Linkname = h.Linkname, ""
		}
		if err := tw.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func gzipped(t testing.TB, data []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func zstded(t testing.TB, data []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return w.EncodeAll(data, nil)
}

// testFlattener is one with a spool of its own.
func testFlattener(t testing.TB, limits Limits) *flattener {
	t.Helper()
	sp, err := openSpool(filepath.Join(t.TempDir(), "spool"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sp.Close() })
	return newFlattener(sp, limits.or(DefaultLimits()))
}

func testWriter(t testing.TB) *image.Writer {
	t.Helper()
	w, err := image.OpenWriter(t.Context(), filepath.Join(t.TempDir(), "store"))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// assertEmpty fails if the store holds anything: an image, or what is left of
// making one.
func assertEmpty(t testing.TB, w *image.Writer) {
	t.Helper()
	err := filepath.WalkDir(w.Dir(), func(path string, d fs.DirEntry, err error) error {
		switch rel := strings.TrimPrefix(path, w.Dir()); rel {
		case "", "/blobs", "/blobs/sha256", "/tmp", "/lock":
		default:
			t.Errorf("left behind: %s", rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// mounted mounts an image for looking into it.
func mounted(t testing.TB, img image.Image) string {
	t.Helper()
	point := t.TempDir()
	cmd := exec.Command("mount", "-t", "erofs", "-o", "ro", img.Path, point)
	if out, err := cmd.CombinedOutput(); err != nil {
		skipFor(t, "mounting EROFS images: "+strings.TrimSpace(string(out)))
	}
	t.Cleanup(func() {
		if err := unix.Unmount(point, 0); err != nil {
			t.Error(err)
		}
	})
	return point
}

func content(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
