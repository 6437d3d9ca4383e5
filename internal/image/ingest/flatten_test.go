package ingest

import (
	"archive/tar"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// listing is a tree as path → what is there.
func listing(t testing.TB, f *flattener) map[string]string {
	t.Helper()
	out := map[string]string{}
	var walk func(n *node, path string)
	walk = func(n *node, path string) {
		for name, c := range n.children {
			at := join(path, name)
			switch c.kind {
			case directory:
				out[at] = "dir"
				walk(c, at)
			case symlink:
				out[at] = "-> " + c.target
			case regular:
				data, err := f.spool.read(c.inode, 1<<20)
				if err != nil {
					t.Fatal(err)
				}
				out[at] = string(data)
			}
		}
	}
	walk(f.root, "")
	return out
}

func TestFlattening(t *testing.T) {
	base := archive(t, dir("a"), file("a/1", "one"), file("a/2", "two"), file("b/c/d", "deep"), symlinkTo("s", "a"))
	for name, c := range map[string]struct {
		layers [][]byte
		want   map[string]string
	}{
		"whiteout": {
			[][]byte{base, archive(t, file("a/.wh.1", ""), file(".wh.b", ""))},
			map[string]string{"a": "dir", "a/2": "two", "s": "-> a"},
		},
		"whiteout spares its own layer, before and after": {
			[][]byte{base, archive(t, file("a/1", "new"), file("a/.wh.1", ""), file("a/.wh.2", ""), file("a/2", "new"))},
			map[string]string{"a": "dir", "a/1": "new", "a/2": "new", "b": "dir", "b/c": "dir", "b/c/d": "deep", "s": "-> a"},
		},
		"opaque directory, mark last": {
			[][]byte{base, archive(t, dir("a"), file("a/3", "three"), file("a/.wh..wh..opq", ""))},
			map[string]string{"a": "dir", "a/3": "three", "b": "dir", "b/c": "dir", "b/c/d": "deep", "s": "-> a"},
		},
		"opaque root": {
			[][]byte{base, archive(t, file(".wh..wh..opq", ""), file("x", "x"))},
			map[string]string{"x": "x"},
		},
		"whiteout of what never was": {
			[][]byte{archive(t, file("x", "x")), archive(t, file("no/.wh.thing", ""))},
			map[string]string{"x": "x", "no": "dir"},
		},
		"file replaces directory, directory replaces symlink": {
			[][]byte{base, archive(t, file("b", "file"), dir("s"), file("s/x", "x"))},
			map[string]string{"a": "dir", "a/1": "one", "a/2": "two", "b": "file", "s": "dir", "s/x": "x"},
		},
		"hard link into a lower layer outlives its target": {
			[][]byte{base, archive(t, link("kept", "a/1"), file(".wh.a", ""), file(".wh.b", ""), file(".wh.s", ""))},
			map[string]string{"kept": "one"},
		},
		"book-keeping of old storage drivers": {
			[][]byte{base, archive(t, dir(".wh..wh.plnk"), file(".wh..wh.aufs", ""), file(".wh..wh..opq", ""))},
			map[string]string{},
		},
		"directory named twice": {
			[][]byte{archive(t, dir("a"), file("a/1", "x"), dir("a/"))},
			map[string]string{"a": "dir", "a/1": "x"},
		},
		"names in other spellings": {
			[][]byte{archive(t, dir("./"), file("./x//y/./z", "z"), &tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "c"}})},
			map[string]string{"x": "dir", "x/y": "dir", "x/y/z": "z"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := testFlattener(t, Limits{})
			for _, l := range c.layers {
				if err := flatten(f, l); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(c.want, listing(t, f)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestFlatteningAgreesWithModel puts random layers on top of each other and
// compares with a model of a few lines: a map from path to contents.
func TestFlatteningAgreesWithModel(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		f := testFlattener(t, Limits{})
		model := map[string]string{}
		var story []string
		for layer := range 1 + rng.IntN(4) {
			entries, upper := randomLayer(rng, layer)
			for _, e := range entries {
				story = append(story, fmt.Sprintf("%d:%c:%s", layer, e.Typeflag, e.Name))
			}
			if err := flatten(f, archive(t, entries...)); err != nil {
				t.Fatalf("seed %d: %v\n%s", seed, err, story)
			}
			applyModel(model, upper)
		}
		if diff := cmp.Diff(model, listing(t, f)); diff != "" {
			t.Fatalf("seed %d: %s\n%s", seed, diff, story)
		}
		// Nothing is spooled that no name needs.
		spooled, err := f.spool.dir.Open(".")
		if err != nil {
			t.Fatal(err)
		}
		names, err := spooled.Readdirnames(-1)
		spooled.Close()
		contents := 0
		for _, v := range model {
			if v != "dir" {
				contents++
			}
		}
		if err != nil || len(names) != contents {
			t.Fatalf("seed %d: %d files spooled for %d, %v", seed, len(names), contents, err)
		}
	}
}

// modelLayer is a layer as a person would describe it.
type modelLayer struct {
	opaque    []string
	whiteouts []string
	content   map[string]string
}

var letters = []string{"a", "b", "c"}

// randomLayer makes a consistent layer in random order. Directories are d*,
// files f*, so that only directories are passed through.
func randomLayer(rng *rand.Rand, layer int) ([]*tar.Header, modelLayer) {
	m := modelLayer{content: map[string]string{}}
	randomDir := func() string {
		var parts []string
		for range rng.IntN(3) {
			parts = append(parts, "d"+letters[rng.IntN(3)])
		}
		return strings.Join(parts, "/")
	}
	addDirs := func(d string) {
		for at := d; at != ""; {
			m.content[at] = "dir"
			i := strings.LastIndexByte(at, '/')
			at = at[:max(i, 0)]
		}
	}
	var entries []*tar.Header
	for range 1 + rng.IntN(6) {
		d := randomDir()
		switch rng.IntN(5) {
		case 0:
			addDirs(d)
			if d != "" {
				entries = append(entries, dir(d))
			}
		case 1:
			addDirs(d)
			victim := []string{"d", "f"}[rng.IntN(2)] + letters[rng.IntN(3)]
			m.whiteouts = append(m.whiteouts, join(d, victim))
			entries = append(entries, file(join(d, ".wh."+victim), ""))
		case 2:
			addDirs(d)
			m.opaque = append(m.opaque, d)
			entries = append(entries, file(join(d, ".wh..wh..opq"), ""))
		default:
			at := join(d, "f"+letters[rng.IntN(3)])
			if _, twice := m.content[at]; twice {
				continue
			}
			addDirs(d)
			m.content[at] = fmt.Sprintf("layer %d %s", layer, at)
			entries = append(entries, file(at, m.content[at]))
		}
	}
	// Whiteouts make duplicates of themselves, which are no entries twice.
	rng.Shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
	return entries, m
}

func applyModel(model map[string]string, l modelLayer) {
	below := func(path, dir string) bool { return dir == "" || strings.HasPrefix(path, dir+"/") }
	for path := range maps.Clone(model) {
		hidden := slices.ContainsFunc(l.opaque, func(d string) bool { return below(path, d) }) ||
			slices.ContainsFunc(l.whiteouts, func(w string) bool { return path == w || below(path, w) })
		if hidden {
			delete(model, path)
		}
	}
	maps.Copy(model, l.content)
}
