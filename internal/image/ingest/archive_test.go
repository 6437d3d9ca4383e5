package ingest

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/image"
)

// layered is an image of two layers for a platform; its file "arch" tells
// which it is.
func layered(t testing.TB, arch string) v1.Image {
	t.Helper()
	return imageOf(t, arch,
		archive(t, dir("usr"), file("arch", arch), file("gone", "x")),
		archive(t, file(".wh.gone", ""), file("new", "y")))
}

func imageOf(t testing.TB, arch string, layers ...[]byte) v1.Image {
	t.Helper()
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		OS: "linux", Architecture: arch,
		Config: v1.Config{Env: []string{"LANG=C.UTF-8", "PATH=/usr/bin", "bad name=x", "novalue"}, WorkingDir: "/srv"},
		RootFS: v1.RootFS{Type: "layers"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, data := range layers {
		l, err := tarball.LayerFromReader(bytes.NewReader(data)) //nolint:staticcheck // in memory is what is wanted
		if err != nil {
			t.Fatal(err)
		}
		if img, err = mutate.AppendLayers(img, l); err != nil {
			t.Fatal(err)
		}
	}
	return img
}

// dockerSave writes images as "docker save" does.
func dockerSave(t testing.TB, images map[string]v1.Image) []byte {
	t.Helper()
	refs := map[name.Tag]v1.Image{}
	for tag, img := range images {
		ref, err := name.NewTag(tag)
		if err != nil {
			t.Fatal(err)
		}
		refs[ref] = img
	}
	var buf bytes.Buffer
	if err := tarball.MultiWrite(refs, &buf); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// layoutDir writes an OCI layout with an image for each platform.
func layoutDir(t testing.TB, images ...v1.Image) string {
	t.Helper()
	path := t.TempDir()
	l, err := layout.Write(path, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	for _, img := range images {
		config, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		err = l.AppendImage(img, layout.WithPlatform(v1.Platform{OS: "linux", Architecture: config.Architecture}),
			layout.WithAnnotations(map[string]string{refAnnotation: "app:" + config.Architecture}))
		if err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func tarOf(t testing.TB, path string) []byte {
	t.Helper()
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	if err := tw.AddFS(os.DirFS(path)); err != nil {
		t.Fatal(err)
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func saved(t testing.TB, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "archive")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func importFrom(t testing.TB, w *image.Writer, path, tag string) (image.Image, error) {
	t.Helper()
	return ImportArchive(t.Context(), w, path, ImportOptions{
		Options: Options{Name: "test"}, Platform: "linux/amd64", Tag: tag,
	})
}

func TestImportArchiveFindsOutWhatItIs(t *testing.T) {
	requireReal(t)
	one := layered(t, "amd64")
	save := dockerSave(t, map[string]v1.Image{"app:1": one})
	oci := layoutDir(t, layered(t, "arm64"), one)
	root := archive(t, file("usr/x", ""), file("arch", "amd64"), file("new", "y"))
	for name, c := range map[string]struct{ path, source string }{
		"docker save":             {saved(t, save), "docker-archive app:1"},
		"docker save, gzip":       {saved(t, gzipped(t, save)), "docker-archive app:1"},
		"docker save, zstd":       {saved(t, zstded(t, save)), "docker-archive app:1"},
		"oci directory":           {oci, "oci-layout app:amd64"},
		"oci archive":             {saved(t, tarOf(t, oci)), "oci-layout app:amd64"},
		"oci archive, gzip":       {saved(t, gzipped(t, tarOf(t, oci))), "oci-layout app:amd64"},
		"root file system":        {saved(t, root), "tar"},
		"root file system, gzip":  {saved(t, gzipped(t, root)), "tar"},
		"root without known dirs": {saved(t, archive(t, file("arch", "amd64"), file("new", "y"))), "tar"},
	} {
		t.Run(name, func(t *testing.T) {
			w := testWriter(t)
			img, err := importFrom(t, w, c.path, "")
			if err != nil {
				t.Fatal(err)
			}
			if img.Source != c.source {
				t.Errorf("source %q, want %q", img.Source, c.source)
			}
			if c.source != "tar" && (img.Config.WorkingDir != "/srv" || len(img.Config.Env) != 2 || img.Config.Env["PATH"] != "/usr/bin") {
				t.Errorf("config %+v", img.Config)
			}
			root := mounted(t, img)
			if content(t, filepath.Join(root, "arch")) != "amd64" || content(t, filepath.Join(root, "new")) != "y" {
				t.Error("wrong contents")
			}
			if _, err := os.Stat(filepath.Join(root, "gone")); err == nil {
				t.Error("a whiteout had no effect")
			}
		})
	}
}

func TestSavedImageAsStreamIsRefused(t *testing.T) {
	requireReal(t)
	w := testWriter(t)
	save := dockerSave(t, map[string]v1.Image{"app:1": layered(t, "amd64")})
	_, err := ImportTar(t.Context(), w, bytes.NewReader(save), Options{Name: "x"})
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "write it to a file") {
		t.Errorf("error: %v", err)
	}
	assertEmpty(t, w)
}

func TestImportChoosesByTag(t *testing.T) {
	requireReal(t)
	other := imageOf(t, "amd64", archive(t, file("arch", "other")))
	path := saved(t, dockerSave(t, map[string]v1.Image{"app:1": layered(t, "amd64"), "app:2": other}))
	w := testWriter(t)
	if _, err := importFrom(t, w, path, ""); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "--tag") {
		t.Errorf("no tag: %v", err)
	}
	if _, err := importFrom(t, w, path, "3"); !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "app:2") {
		t.Errorf("wrong tag: %v", err)
	}
	assertEmpty(t, w)
	img, err := importFrom(t, w, path, "2")
	if err != nil {
		t.Fatal(err)
	}
	if got := content(t, filepath.Join(mounted(t, img), "arch")); got != "other" {
		t.Errorf("got image %q", got)
	}
}

// tampered is a saved image in which the largest member was changed.
func tampered(t testing.TB, path string, edit func([]byte) []byte) {
	t.Helper()
	var largest string
	var size int64
	err := filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Size() > size {
			largest, size = p, info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(largest)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(largest, edit(data), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestTamperedArchivesAreRefused(t *testing.T) {
	requireReal(t)
	// The layer is the largest blob because random-looking bytes do not
	// compress.
	noise := imageOf(t, "amd64", archive(t, file("noise", string(damaged(gzipped(t, bytes.Repeat([]byte("0123456789abcdef"), 9)), 0))+strings.Repeat("long", 9)), file("more", strings.Repeat("x", 1<<20))))
	evil := archive(t, file("evil", strings.Repeat("y", 1<<20)))
	for name, c := range map[string]struct {
		path func(t *testing.T) string
		says string
	}{
		"layout, blob replaced": {func(t *testing.T) string {
			dir := layoutDir(t, noise)
			tampered(t, dir, func([]byte) []byte { return gzipped(t, evil) })
			return dir
		}, "replaced"},
		"layout, bits flipped": {func(t *testing.T) string {
			dir := layoutDir(t, noise)
			tampered(t, dir, func(b []byte) []byte { return damaged(b, len(b)/2) })
			return dir
		}, "and the manifest says"},
		"layout, blob truncated": {func(t *testing.T) string {
			dir := layoutDir(t, noise)
			tampered(t, dir, func(b []byte) []byte { return b[:len(b)/2] })
			return dir
		}, "truncated"},
		"layout, manifest replaced": {func(t *testing.T) string {
			dir := layoutDir(t, noise)
			digest, _ := noise.Digest()
			if err := os.WriteFile(filepath.Join(dir, "blobs/sha256", digest.Hex), []byte(`{"schemaVersion":2}`), 0o644); err != nil {
				t.Fatal(err)
			}
			return dir
		}, "its manifest does not have the digest"},
		"layout, blob is a link elsewhere": {func(t *testing.T) string {
			dir := layoutDir(t, noise)
			layers, _ := noise.Layers()
			digest, _ := layers[0].Digest()
			blob := filepath.Join(dir, "blobs/sha256", digest.Hex)
			if err := os.Remove(blob); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("/etc/passwd", blob); err != nil {
				t.Fatal(err)
			}
			return dir
		}, "escapes"},
		"docker save, layer replaced": {func(t *testing.T) string {
			dir := t.TempDir()
			data := dockerSave(t, map[string]v1.Image{"app:1": noise})
			tr := tar.NewReader(bytes.NewReader(data))
			for {
				hdr, err := tr.Next()
				if err != nil {
					break
				}
				member := make([]byte, hdr.Size)
				if _, err := tr.Read(member); err != nil && hdr.Size > 0 && err.Error() != "EOF" {
					t.Fatal(err)
				}
				if strings.HasSuffix(hdr.Name, ".tar.gz") {
					member = gzipped(t, evil)
				}
				if err := os.WriteFile(filepath.Join(dir, hdr.Name), member, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			return saved(t, tarOf(t, dir))
		}, "the configuration says"},
		"docker save, named twice": {func(t *testing.T) string {
			return saved(t, archive(t, file("manifest.json", "[]"), file("./manifest.json", "[]")))
		}, "two members"},
		"docker save, no layers there": {func(t *testing.T) string {
			return saved(t, archive(t, file("manifest.json", `[{"Config":"../../../etc/passwd","Layers":["/etc/passwd"]}]`)))
		}, "cannot read its"},
		"docker save, damaged manifest": {func(t *testing.T) string {
			return saved(t, archive(t, file("manifest.json", `[{"Conf`)))
		}, "damaged"},
		"docker save, no image": {func(t *testing.T) string {
			return saved(t, archive(t, file("manifest.json", `[]`)))
		}, "0 images"},
		"wrong platform": {func(t *testing.T) string {
			return saved(t, dockerSave(t, map[string]v1.Image{"app:1": layered(t, "arm64")}))
		}, "linux/arm64"},
		"layout without the platform": {func(t *testing.T) string { return layoutDir(t, layered(t, "arm64")) }, "no image for linux/amd64"},
		"plain directory":             {func(t *testing.T) string { return t.TempDir() }, "no OCI layout"},
		"no archive": {func(t *testing.T) string {
			return saved(t, bytes.Repeat([]byte("text "), 1000))
		}, "no tar archive"},
		"foreign layer": {func(t *testing.T) string {
			l := static.NewLayer([]byte("x"), types.DockerForeignLayer)
			img, err := mutate.AppendLayers(imageOf(t, "amd64"), l)
			if err != nil {
				t.Fatal(err)
			}
			return layoutDir(t, img)
		}, "not followed"},
	} {
		t.Run(name, func(t *testing.T) {
			w := testWriter(t)
			_, err := importFrom(t, w, c.path(t), "")
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error: %v, want %q", err, c.says)
			}
			assertEmpty(t, w)
		})
	}
}
