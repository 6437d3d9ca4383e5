package image_test

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/image"
)

func writer(t *testing.T, dir string) *image.Writer {
	t.Helper()
	w, err := image.OpenWriter(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func add(t *testing.T, w *image.Writer, name, content string) image.Image {
	t.Helper()
	img, err := tryAdd(t.Context(), w, name, content)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func tryAdd(ctx context.Context, w *image.Writer, name, content string) (img image.Image, err error) {
	s, err := w.Stage()
	if err != nil {
		return image.Image{}, err
	}
	defer func() {
		if cerr := s.Close(); err == nil {
			err = cerr
		}
	}()
	path := filepath.Join(s.Dir(), "image")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		return image.Image{}, err
	}
	return w.Add(ctx, path, image.Image{Name: name, Config: image.Config{Env: map[string]string{"FROM": name}}})
}

// files lists what is in a store, except for the lock.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var list []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && d.Name() != "lock" {
			list = append(list, strings.TrimPrefix(path, dir+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestResolve(t *testing.T) {
	dir := t.TempDir()
	w := writer(t, dir)
	img := add(t, w, "a", "first")
	for _, key := range []string{"a", img.Digest} {
		got, err := w.Resolve(key)
		if err != nil {
			t.Fatal(err)
		}
		if got.Digest != img.Digest || got.Config.Env["FROM"] != "a" || !filepath.IsAbs(got.Path) || got.Bytes != 5 {
			t.Errorf("Resolve(%q) = %+v", key, got)
		}
		if data, err := os.ReadFile(got.Path); err != nil || string(data) != "first" {
			t.Errorf("the file holds %q, %v", data, err)
		}
	}
}

func TestResolveUnknownSaysWhatToDo(t *testing.T) {
	s, err := image.Open(filepath.Join(t.TempDir(), "not-there-yet"))
	if err != nil {
		t.Fatal(err)
	}
	for name, hint := range map[string]string{
		image.Default:                       "agentdock image build",
		"other":                             "agentdock image import",
		"":                                  "agentdock image list",
		"sha256:" + strings.Repeat("0", 64): "agentdock image list",
		"sha256:../../../etc/passwd":        "agentdock image list",
		"../../etc/passwd":                  "agentdock image list",
	} {
		_, err := s.Resolve(name)
		if !fault.Is(err, fault.NotFound) || !strings.Contains(fault.Public(err), hint) {
			t.Errorf("Resolve(%q): %v", name, err)
		}
	}
	if _, err := os.Stat(s.Dir()); err == nil {
		t.Error("a reader made the store's directory")
	}
}

func TestReplacedImageStaysUntilPruned(t *testing.T) {
	w := writer(t, t.TempDir())
	old := add(t, w, "a", "old")
	now := add(t, w, "a", "new")
	if got, err := w.Resolve("a"); err != nil || got.Digest != now.Digest {
		t.Fatalf("%+v, %v", got, err)
	}
	if _, err := w.Resolve(old.Digest); err != nil {
		t.Errorf("work pinned to the old digest fails: %v", err)
	}
	pruned, err := w.Prune(t.Context())
	if err != nil || len(pruned) != 1 || pruned[0].Digest != old.Digest {
		t.Fatalf("pruned %+v, %v", pruned, err)
	}
	if _, err := w.Resolve(old.Digest); !fault.Is(err, fault.NotFound) {
		t.Errorf("pruned image: %v", err)
	}
	if _, err := w.Resolve("a"); err != nil {
		t.Errorf("pruning took the named image: %v", err)
	}
}

func TestSameContentsUnderTwoNames(t *testing.T) {
	dir := t.TempDir()
	w := writer(t, dir)
	a, b := add(t, w, "a", "same"), add(t, w, "b", "same")
	if a.Path != b.Path {
		t.Errorf("stored twice: %s %s", a.Path, b.Path)
	}
	if err := w.Remove(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if got, err := w.Resolve("b"); err != nil || got.Config.Env["FROM"] != "b" {
		t.Errorf("%+v, %v", got, err)
	}
	if err := w.Remove(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if got := files(t, dir); !slices.Equal(got, []string{"index.json"}) {
		t.Errorf("left behind: %q", got)
	}
	if err := w.Remove(t.Context(), "b"); !fault.Is(err, fault.NotFound) {
		t.Errorf("removing again: %v", err)
	}
}

func TestRemovedImageStaysWithItsUsers(t *testing.T) {
	w := writer(t, t.TempDir())
	img := add(t, w, "a", "in use")
	f, err := os.Open(img.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := w.Remove(t.Context(), img.Digest); err != nil {
		t.Fatal(err)
	}
	if data, err := io.ReadAll(f); err != nil || string(data) != "in use" {
		t.Errorf("%q, %v", data, err)
	}
}

func TestBadNamesAreRefused(t *testing.T) {
	w := writer(t, t.TempDir())
	for _, name := range []string{"", "-x", "../a", "a b", "sha256:" + strings.Repeat("0", 64), "a\x00", strings.Repeat("a", 300)} {
		if _, err := tryAdd(t.Context(), w, name, "x"); !fault.Is(err, fault.Invalid) {
			t.Errorf("name %q: %v", name, err)
		}
	}
}

func TestDamageIsSaid(t *testing.T) {
	dir := t.TempDir()
	w := writer(t, dir)
	img := add(t, w, "a", "whole")
	if err := w.Verify(t.Context(), img); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(img.Path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(img.Path, []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.Verify(t.Context(), img); err == nil {
		t.Error("a changed file verifies")
	}
	if img = add(t, w, "a", "whole"); w.Verify(t.Context(), img) != nil {
		t.Error("adding the contents again did not mend the file")
	}
	if err := os.Remove(img.Path); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Resolve("a"); !fault.Is(err, fault.NotFound) {
		t.Errorf("missing file: %v", err)
	}
	for _, text := range []string{"{", `{"version":99}`, `{"version":1,"images":[{"name":"a","digest":"sha256:../x"}]}`} {
		if err := os.WriteFile(filepath.Join(dir, "index.json"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Resolve("a"); err == nil || fault.Is(err, fault.NotFound) {
			t.Errorf("index %q: %v", text, err)
		}
	}
}

func TestConcurrentWritersLoseNothing(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			w, err := image.OpenWriter(t.Context(), dir) // each its own, as processes have
			if err == nil {
				_, err = tryAdd(t.Context(), w, fmt.Sprintf("image-%d", i), fmt.Sprint(i%4))
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	images, err := writer(t, dir).List()
	if err != nil || len(images) != 8 {
		t.Fatalf("%d images, %v", len(images), err)
	}
	if got := files(t, dir); len(got) != 1+4 {
		t.Errorf("files: %q", got)
	}
}
