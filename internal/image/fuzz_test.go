package image

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzIndex: whatever the index holds, an image's file is one of the store's.
func FuzzIndex(f *testing.F) {
	d := "sha256:" + strings.Repeat("ab", 32)
	f.Add([]byte(`{"version":1,"images":[{"name":"a","digest":"` + d + `"},{"digest":"` + d + `"}]}`))
	f.Add([]byte(`{"version":1,"images":[{"name":"a","digest":"sha256:../../etc/passwd"}]}`))
	f.Add([]byte(`{"version":2}`))
	f.Add([]byte(`{"version":1,"images":[null,{"name":"x","path":"/etc/passwd","digest":"` + strings.ToUpper(d) + `"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		own := t.TempDir()
		if err := os.WriteFile(filepath.Join(own, indexFile), data, 0o600); err != nil {
			t.Fatal(err)
		}
		s := &Store{dir: own}
		ix, err := s.load()
		if err != nil {
			return
		}
		for _, img := range ix.Images {
			if filepath.Dir(img.Path) != filepath.Join(own, blobDir) || filepath.Clean(img.Path) != img.Path {
				t.Fatalf("the file of %q is %q", img.Digest, img.Path)
			}
			if found, ok := ix.find(img.Digest); !ok || found.Digest != img.Digest {
				t.Fatalf("%q is in the index and is not found", img.Digest)
			}
		}
	})
}
