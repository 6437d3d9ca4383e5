package guest

import (
	"archive/tar"
	"bytes"
	"encoding/base64"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/agentdock/agentdock/internal/execenv"
)

func archiveOf(t testing.TB, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		h.Mode = 0o644
		body := []byte("x")
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(body))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			_, _ = w.Write(body)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// FuzzUnpack: whatever the archive is, nothing outside the directory changes,
// and what was unpacked can be packed, and unpacked again.
func FuzzUnpack(f *testing.F) {
	reg := func(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeReg} }
	sym := func(name, to string) tar.Header {
		return tar.Header{Name: name, Linkname: to, Typeflag: tar.TypeSymlink}
	}
	link := func(name, to string) tar.Header { return tar.Header{Name: name, Linkname: to, Typeflag: tar.TypeLink} }
	f.Add(archiveOf(f, reg("a/b"), tar.Header{Name: "a/", Typeflag: tar.TypeDir}, link("c", "a/b")))
	f.Add(archiveOf(f, sym("l", ".."), reg("l/victim")))
	f.Add(archiveOf(f, sym("l", "../victim"), link("h", "l"), reg("h")))
	f.Add(archiveOf(f, link("h", "../victim"), reg("../victim"), reg("/victim")))
	f.Add(archiveOf(f, sym("d", "../outside"), tar.Header{Name: "d/", Typeflag: tar.TypeDir}))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 64<<10 {
			return
		}
		root := t.TempDir()
		workspace := filepath.Join(root, "workspace")
		mustDo(t, os.MkdirAll(filepath.Join(root, "outside"), 0o700), os.Mkdir(workspace, 0o700),
			os.WriteFile(filepath.Join(root, "victim"), []byte("untouched"), 0o400))
		before := outside(t, root)
		err := Unpack(workspace, "in", bytes.NewReader(data))
		if after := outside(t, root); !slices.Equal(before, after) {
			t.Fatalf("outside was %q and is %q", before, after)
		}
		if err != nil {
			return
		}
		var packed bytes.Buffer
		if err := Pack(workspace, "in", nil, 1<<20, &packed); err != nil {
			return // a name may be as long as the file system takes, and tar's need not
		}
		for r := tar.NewReader(bytes.NewReader(packed.Bytes())); ; {
			h, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("what was packed is no archive: %v", err)
			}
			if h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeDir && h.Typeflag != tar.TypeSymlink {
				t.Fatalf("%q is of type %q", h.Name, h.Typeflag)
			}
		}
		if err := Unpack(workspace, "again", bytes.NewReader(packed.Bytes())); err != nil {
			t.Fatalf("what was packed cannot be unpacked: %v", err)
		}
	})
}

// outside lists everything but the workspace, with contents and modes.
func outside(t *testing.T, root string) (all []string) {
	mustDo(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.Name() == "workspace" && d.IsDir() {
			return fs.SkipDir
		}
		info, err := d.Info()
		line := strings.TrimPrefix(path, root) + " " + info.Mode().String()
		if err == nil && info.Mode().IsRegular() {
			var data []byte
			data, err = os.ReadFile(path)
			line += " " + string(data)
		}
		all = append(all, line)
		return err
	}))
	return all
}

func mustDo(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// FuzzCommand: a command comes out as it went in, byte for byte, and nothing
// else is taken for one.
func FuzzCommand(f *testing.F) {
	f.Add("a\xff", "b", "K=\xfe", "/workspace", []byte(`{"Argv":["eA=="]}`))
	f.Add("", "", "", "", []byte(`{"Argv":null}`))
	f.Fuzz(func(t *testing.T, a, b, env, dir string, raw []byte) {
		encoded, err := NewCommand([]string{a, b}, []string{env}, dir)
		if err != nil {
			t.Fatal(err)
		}
		argv, gotEnv, gotDir, err := decode(encoded)
		if err != nil || !slices.Equal(argv, []string{a, b}) || !slices.Equal(gotEnv, []string{env}) || gotDir != dir {
			t.Fatalf("%q %q %q %q came out as %q %q %q, %v", a, b, env, dir, argv, gotEnv, gotDir, err)
		}
		if argv, _, _, err := decode(base64.StdEncoding.EncodeToString(raw)); err == nil && len(argv) == 0 {
			t.Fatal("an empty command was accepted")
		}
		_, _, _, _ = decode(string(raw))
	})
}

// FuzzPattern: a pattern that the port accepts is one that the helper can match.
func FuzzPattern(f *testing.F) {
	for _, p := range []string{"**/*.go", "a/{b,c}/[x-z]?", "[^a]*", "{", "a\\", "{a,{b}", "[!]", strings.Repeat("{a,a,a}", 9)} {
		f.Add(p, "a/b/x1")
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if execenv.ValidatePattern(pattern) != nil || len(pattern) > 64 || len(name) > 256 {
			return
		}
		begun := time.Now()
		if _, err := doublestar.Match(pattern, name); err != nil || !doublestar.ValidatePattern(pattern) {
			t.Fatalf("%q was accepted and means nothing: %v", pattern, err)
		}
		if d := time.Since(begun); d > time.Second {
			t.Fatalf("matching %q with %q took %v", pattern, name, d)
		}
	})
}
