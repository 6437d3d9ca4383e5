package ingest

import (
	"bytes"
	"errors"
	"io/fs"
	"path"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/agentdock/agentdock/internal/fault"
)

// fuzzLimits are small, so that the fuzzer reaches them.
var fuzzLimits = Limits{Bytes: 1 << 20, Entries: 200, Depth: 8, PathBytes: 200, IndexBytes: 8 << 10, ManifestBytes: 16 << 10}

// FuzzLayer: whatever a layer's bytes are, reading them ends in a tree within
// the limits or in an error that blames the layer.
func FuzzLayer(f *testing.F) {
	f.Add(rootfs(f), []byte{})
	f.Add(archive(f, dir("a"), file("a/1", "one"), symlinkTo("s", "a")), archive(f, file("a/.wh.1", ""), file(".wh..wh..opq", ""), link("x", "a/1")))
	f.Add(sparse(f), endlessHeaders(f, 2))
	f.Add(gzipped(f, archive(f, file("f", "x"))), zstded(f, archive(f, file("f/g", "x"))))
	for _, c := range hostileCases(f) {
		if len(c.layer) < 8<<10 {
			f.Add(c.lower, c.layer)
		}
	}
	limits := fuzzLimits.or(DefaultLimits())
	f.Fuzz(func(t *testing.T, lower, upper []byte) {
		fl := testFlattener(t, limits)
		for _, layer := range [][]byte{lower, upper} {
			if err := flatten(fl, layer); err != nil {
				if c := fault.CodeOf(err); c == fault.Internal && !isEnd(err) {
					t.Fatalf("not the layer's fault: %v", err)
				}
				return
			}
		}
		if fl.bytes > limits.Bytes || fl.entries > limits.Entries || fl.names > limits.IndexBytes {
			t.Fatalf("over the limits: %d bytes, %d entries, %d of names", fl.bytes, fl.entries, fl.names)
		}
		if err := furnish(fl.root, fl.spool); err != nil {
			t.Fatal(err)
		}
		checkTree(t, fl.root, "", limits)
	})
}

// isEnd: a compressed stream of no bytes at all cannot even be opened.
func isEnd(err error) bool { return strings.HasSuffix(err.Error(), "EOF") }

// checkTree asserts what materialize relies on.
func checkTree(t *testing.T, n *node, at string, limits Limits) {
	if strings.Count(at, "/") >= limits.Depth {
		t.Fatalf("%q is too deep", at)
	}
	for name, c := range n.children {
		if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") || len(name) > limits.NameBytes {
			t.Fatalf("name %q below %q", name, at)
		}
		if strings.HasPrefix(name, ".wh.") && !strings.HasPrefix(name, ".wh..wh.") {
			t.Fatalf("whiteout %q below %q was kept", name, at)
		}
		if c.mode&^0o1777 != 0 || c.uid < 0 || c.gid < 0 || c.links < 1 {
			t.Fatalf("%q: %+v", join(at, name), c.inode)
		}
		if (c.kind == directory) != (c.children != nil) || c.kind == symlink && c.target == "" {
			t.Fatalf("%q: %+v", join(at, name), c)
		}
		checkTree(t, c, join(at, name), limits)
	}
}

// FuzzInspect: whatever a file is, finding out what it is stays within the
// limits, and what it lists is inside the file.
func FuzzInspect(f *testing.F) {
	f.Add(archive(f, file("manifest.json", "[]"), symlinkTo("a/layer.tar", "../b/layer.tar")))
	f.Add(archive(f, file("oci-layout", "{}"), file("index.json", "{}"), file("blobs/sha256/x", "x")))
	f.Add(rootfs(f))
	limits := fuzzLimits.or(DefaultLimits())
	f.Fuzz(func(t *testing.T, data []byte) {
		_, members, err := inspect(t.Context(), bytes.NewReader(data), limits)
		if err != nil {
			if !fault.Is(err, fault.Invalid) {
				t.Fatal(err)
			}
			return
		}
		parts := tarFiles{archive: bytes.NewReader(data), members: members}
		for name := range members {
			if path.Clean(name) != name {
				t.Fatalf("member %q", name)
			}
			r, size, err := parts.open(name)
			if errors.Is(err, fs.ErrNotExist) {
				continue // a link to nothing
			}
			if err != nil || size < 0 {
				t.Fatalf("member %q: %d bytes, %v", name, size, err)
			}
			r.Close()
		}
	})
}

// FuzzManifest: whatever an image's documents say, they are refused or within
// the limits, and nothing is fetched that is not addressed by a digest.
func FuzzManifest(f *testing.F) {
	d := "sha256:" + strings.Repeat("ab", 32)
	f.Add([]byte(`{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"`+d+`","size":7,"platform":{"os":"linux","architecture":"amd64"}}]}`), "")
	f.Add([]byte(`{"schemaVersion":2,"config":{"digest":"`+d+`","size":-1},"layers":[{"size":9223372036854775807,"digest":"`+d+`"},{"size":1,"urls":["http://x"]}]}`), "a:b")
	f.Add([]byte(`{"os":"linux","architecture":"amd64","rootfs":{"type":"layers","diff_ids":["`+d+`"]},"config":{"Env":["A=b","=","\u0000=x"]}}`), "x")
	platform := v1.Platform{OS: "linux", Architecture: "amd64"}
	limits := fuzzLimits.or(DefaultLimits())
	f.Fuzz(func(t *testing.T, data []byte, tag string) {
		b := &builder{opt: Options{Limits: limits}}
		if index, err := v1.ParseIndexManifest(bytes.NewReader(data)); err == nil {
			_, _ = choose(index, tag, platform)
		}
		if m, err := v1.ParseManifest(bytes.NewReader(data)); err == nil && b.checkManifest(m) == nil {
			total := int64(0)
			for _, l := range m.Layers {
				total += l.Size
			}
			if total < 0 || total > limits.Bytes || len(m.Layers) > limits.Layers {
				t.Fatalf("%d layers of %d bytes were accepted", len(m.Layers), total)
			}
		}
		if _, err := b.config(data, 1, platform); err == nil {
			for name, value := range b.result.Config.Env {
				if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
					t.Fatalf("variable %q=%q", name, value)
				}
			}
		}
	})
}
