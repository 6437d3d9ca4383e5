// Package testenv starts the real parts that tests need, on private sockets and
// directories, and looks for what they leave behind.
package testenv

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/agentdock/agentdock/internal/image"
)

// Names of the images that BareStore holds: one that boots and has nothing to
// run, one that does not boot.
const (
	BareImage    = "bare"
	CorruptImage = "corrupt"
)

// BareStore makes an image store with the two images in it.
func BareStore(t testing.TB) (dir string) {
	t.Helper()
	dir = t.TempDir()
	ctx := context.Background()
	w, err := image.OpenWriter(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	stage, err := w.Stage()
	if err != nil {
		t.Fatal(err)
	}
	defer stage.Close()
	file := filepath.Join(stage.Dir(), "bare.erofs")
	if err := image.WriteBare(file); err != nil {
		t.Fatal(fmt.Errorf("cannot make the bare image: %w", err))
	}
	corrupt := filepath.Join(stage.Dir(), "corrupt.erofs")
	if err := os.WriteFile(corrupt, make([]byte, 1<<16), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{BareImage: file, CorruptImage: corrupt} {
		if _, err := w.Add(ctx, path, image.Image{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
