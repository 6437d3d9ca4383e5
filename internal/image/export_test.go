package image

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/erofs/go-erofs"
)

func TestExport(t *testing.T) {
	path := filepath.Join(t.TempDir(), "image.erofs")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := erofs.Create(f, erofs.WithBuildTime(7, 0), erofs.WithTempDir(t.TempDir()))
	for _, dir := range []string{"/", "/bin"} {
		if err := w.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program, err := w.Create("/bin/program")
	if err != nil {
		t.Fatal(err)
	}
	contents := strings.Repeat("machine code ", 1000)
	if _, err := io.WriteString(program, contents); err != nil {
		t.Fatal(err)
	}
	if err := program.Close(); err != nil {
		t.Fatal(err)
	}
	// Only data: nobody follows it.
	if err := w.Symlink("../../../etc/passwd", "/bin/link"); err != nil {
		t.Fatal(err)
	}
	if err := w.Chown("/bin/program", 10001, 10002); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Export(path, &out); err != nil {
		t.Fatal(err)
	}
	seen := map[string]*tar.Header{}
	for r := tar.NewReader(&out); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		seen[h.Name] = h
		if h.Name != "bin/program" {
			continue
		}
		if data, err := io.ReadAll(r); err != nil || string(data) != contents {
			t.Errorf("the program has %d bytes, %v", len(data), err)
		}
	}
	if h := seen["bin/"]; h == nil || h.Typeflag != tar.TypeDir || h.Mode != 0o755 {
		t.Errorf("the directory is %+v", h)
	}
	if h := seen["bin/program"]; h == nil || h.Uid != 10001 || h.Gid != 10002 || h.Typeflag != tar.TypeReg {
		t.Errorf("the program is %+v", h)
	}
	if h := seen["bin/link"]; h == nil || h.Typeflag != tar.TypeSymlink || h.Linkname != "../../../etc/passwd" {
		t.Errorf("the symlink is %+v", h)
	}
	if len(seen) != 3 {
		t.Errorf("there are %d entries", len(seen))
	}
}

func TestExportOfWhatIsNoImage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none")
	if err := os.WriteFile(path, make([]byte, 1<<16), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Export(path, io.Discard); err == nil {
		t.Error("zeros were exported")
	}
}
