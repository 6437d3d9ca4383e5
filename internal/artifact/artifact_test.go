package artifact

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentdock/agentdock/internal/fault"
)

type entry struct {
	kind byte
	name string
	body string // or the target
	mode int64
	size int64 // claimed, if not that of body
}

func archive(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Typeflag: e.kind, Name: e.name, Mode: e.mode, Format: tar.FormatPAX}
		if e.kind == tar.TypeReg {
			h.Size = int64(len(e.body))
		} else {
			h.Linkname = e.body
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if e.kind == tar.TypeReg {
			if _, err := io.WriteString(w, e.body); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func reg(name, body string) entry {
	return entry{kind: tar.TypeReg, name: name, body: body, mode: 0o644}
}
func link(name, target string) entry  { return entry{kind: tar.TypeSymlink, name: name, body: target} }
func other(kind byte, n string) entry { return entry{kind: kind, name: n, body: "x"} }

// bed is a directory with a place to collect into and a file beside it that
// must stay as it is.
func bed(t *testing.T) (out string, root *os.Root) {
	t.Helper()
	top := t.TempDir()
	out = top + "/out"
	if err := os.Mkdir(out, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(top+"/victim", []byte("untouched"), 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(out)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		root.Close()
		data, err := os.ReadFile(top + "/victim")
		if err != nil || string(data) != "untouched" {
			t.Errorf("the file outside is %q, %v", data, err)
		}
		names, _ := os.ReadDir(top)
		if len(names) != 2 {
			t.Errorf("outside there are now %v", names)
		}
		// What is left half-done would be taken for an artifact.
		_ = filepath.WalkDir(out, func(p string, _ fs.DirEntry, _ error) error {
			if strings.HasPrefix(filepath.Base(p), ".agentdock-") {
				t.Errorf("%s is left", p)
			}
			return nil
		})
	})
	return out, root
}

func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	got := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		if d.Type() != 0 {
			got[rel] = d.Type().String()
			return nil
		}
		data, err := os.ReadFile(p)
		got[rel] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func want(t *testing.T, got map[string]string, want map[string]string) {
	t.Helper()
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%q is %q, want %q", k, got[k], v)
		}
	}
	if len(got) != len(want) {
		t.Errorf("there are %d files, want %d: %q", len(got), len(want), got)
	}
}

func TestCollect(t *testing.T) {
	out, root := bed(t)
	got, err := Collect(bytes.NewReader(archive(t,
		other(tar.TypeDir, "dist/"), reg("dist/report.json", "{}"), entry{tar.TypeReg, "dist/tool", "bin", 0o4755, 0},
		reg("dist/sub/deep/a\nb", "n"), reg("dist/\xff", "u"), reg("./log.txt", "l"), reg("dist/empty", ""),
	)), root, []string{"dist/**", "./*.txt"}, DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	want(t, files(t, out), map[string]string{
		"dist/report.json": "{}", "dist/tool": "bin", "dist/sub/deep/a\nb": "n", "dist/\xff": "u", "log.txt": "l", "dist/empty": "",
	})
	sum := sha256.Sum256([]byte("{}"))
	if len(got) != 6 || got[0] != (Artifact{Path: "dist/report.json", Bytes: 2, SHA256: hex.EncodeToString(sum[:])}) {
		t.Errorf("got %+v", got)
	}
	for name, mode := range map[string]fs.FileMode{"dist/tool": 0o755, "dist/report.json": 0o644} {
		if info, err := os.Stat(filepath.Join(out, name)); err != nil || info.Mode() != mode {
			t.Errorf("%s has mode %v, %v; want %v", name, info.Mode(), err, mode)
		}
	}
}

func TestHostileArchives(t *testing.T) {
	for name, tc := range map[string]struct {
		entries []entry
		code    fault.Code // "" if what is hostile is left out
		says    string
		left    map[string]string
	}{
		"parent":              {[]entry{reg("../victim", "!")}, fault.Invalid, "'..'", nil},
		"parent in between":   {[]entry{reg("a/../../victim", "!")}, fault.Invalid, "'..'", nil},
		"parent that cancels": {[]entry{reg("a/../b", "!")}, fault.Invalid, "'..'", nil},
		"parent directory":    {[]entry{other(tar.TypeDir, "../d/")}, fault.Invalid, "'..'", nil},
		"absolute":            {[]entry{reg("/tmp/agentdock-victim", "!")}, fault.Invalid, "absolute", nil},
		"no name":             {[]entry{reg(".", "!")}, fault.Invalid, "no pattern", nil},
		"symlink, then through it": {[]entry{link("d", ".."), reg("d/victim", "!")}, "", "",
			map[string]string{"d/victim": "!"}}, // a real directory named d
		"symlink, then over it": {[]entry{link("f", "../victim"), reg("f", "!")}, "", "", map[string]string{"f": "!"}},
		"hard link to outside":  {[]entry{other(tar.TypeLink, "h"), reg("ok", "y")}, "", "", map[string]string{"ok": "y"}},
		"devices and fifos":     {[]entry{other(tar.TypeChar, "c"), other(tar.TypeBlock, "b"), other(tar.TypeFifo, "f"), reg("ok", "y")}, "", "", map[string]string{"ok": "y"}},
		"twice":                 {[]entry{reg("a", "1"), reg("a", "2")}, fault.Invalid, "twice", map[string]string{"a": "1"}},
		"twice, other spelling": {[]entry{reg("a", "1"), reg("./a", "2")}, fault.Invalid, "twice", map[string]string{"a": "1"}},
		"file, then below it":   {[]entry{reg("a", "1"), reg("a/b", "2")}, fault.Invalid, "in the way", map[string]string{"a": "1"}},
		"below it, then file":   {[]entry{reg("a/b", "1"), reg("a", "2")}, fault.Invalid, "in the way", map[string]string{"a/b": "1"}},
		"in the way of one":     {[]entry{reg("a", "1"), reg("a/b", "2"), reg("c", "3")}, fault.Invalid, `"a/b"`, map[string]string{"a": "1", "c": "3"}},
		"in the way of two":     {[]entry{reg("a", "1"), reg("a/b", "2"), reg("a/c", "2"), reg("d", "3")}, fault.Invalid, `2 artifacts were left out; the first: cannot collect artifact "a/b"`, map[string]string{"a": "1", "d": "3"}},
		"other case":            {[]entry{reg("A", "1"), reg("a", "2")}, "", "", map[string]string{"A": "1", "a": "2"}},
		"long element":          {[]entry{reg(strings.Repeat("n", 256), "!")}, fault.Invalid, "too long", nil},
		"long name":             {[]entry{reg(strings.Repeat("n/", 3000)+"f", "!")}, fault.Invalid, "too long", nil},
		"too large":             {[]entry{reg("ok", "y"), reg("big", strings.Repeat("x", 101))}, fault.Exhausted, "101 bytes", map[string]string{"ok": "y"}},
		"too large together":    {[]entry{reg("a", strings.Repeat("x", 90)), reg("b", strings.Repeat("x", 90)), reg("c", strings.Repeat("x", 90))}, fault.Exhausted, "all together", map[string]string{"a": strings.Repeat("x", 90), "b": strings.Repeat("x", 90)}},
		"too many":              {[]entry{reg("1", ""), reg("2", ""), reg("3", ""), reg("4", ""), reg("5", "")}, fault.Exhausted, "more than 4", map[string]string{"1": "", "2": "", "3": "", "4": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			out, root := bed(t)
			_, err := Collect(bytes.NewReader(archive(t, tc.entries...)), root, nil, Limits{Files: 4, FileBytes: 100, TotalBytes: 200})
			if fault.CodeOf(err) != tc.code || tc.code != "" && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("Collect = %v, want %q saying %q", err, tc.code, tc.says)
			}
			if tc.left == nil {
				tc.left = map[string]string{}
			}
			want(t, files(t, out), tc.left)
		})
	}
}

// Names that tar's own writer refuses.
func TestNULInNames(t *testing.T) {
	out, root := bed(t)
	raw := archive(t, reg("visible", "x"))
	// In the header itself, with the checksum set right again.
	copy(raw[:100], "a\x00/../../victim")
	sum := 0
	for i, b := range raw[:512] {
		if i >= 148 && i < 156 {
			b = ' '
		}
		sum += int(b)
	}
	copy(raw[148:156], fmt.Sprintf("%06o\x00 ", sum))
	if _, err := Collect(bytes.NewReader(raw), root, nil, DefaultLimits()); err == nil {
		want(t, files(t, out), map[string]string{"a": "x"})
	}
	if _, err := checkName("a\x00b"); err == nil {
		t.Error("a name with NUL is accepted")
	}
}

func TestEndlessDirectories(t *testing.T) {
	_, root := bed(t)
	r, w := io.Pipe()
	go func() {
		out := tar.NewWriter(w)
		for i := 0; ; i++ {
			if out.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: fmt.Sprintf("d%d/", i)}) != nil {
				return
			}
		}
	}()
	_, err := Collect(r, root, nil, Limits{Files: 10, FileBytes: 1, TotalBytes: 1})
	r.Close()
	if !fault.Is(err, fault.Exhausted) {
		t.Errorf("Collect = %v", err)
	}
}

func TestCutArchive(t *testing.T) {
	whole := archive(t, reg("first", "1"), reg("second", strings.Repeat("x", 3000)))
	for _, at := range []int{100, 512, 1300, 2600, 4000} {
		if at >= len(whole) {
			t.Fatalf("the archive has only %d bytes", len(whole))
		}
		out, root := bed(t)
		got, err := Collect(bytes.NewReader(whole[:at]), root, nil, DefaultLimits())
		for name, body := range files(t, out) {
			if name == "second" && len(body) != 3000 {
				t.Errorf("cut at %d: half a file is there", at)
			}
		}
		if len(got) != len(files(t, out)) {
			t.Errorf("cut at %d: %d listed, %d there (%v)", at, len(got), len(files(t, out)), err)
		}
	}
}

// What the user has in the directory already.
func TestExistingFiles(t *testing.T) {
	out, root := bed(t)
	for _, err := range []error{
		os.Symlink("../victim", out+"/sym"),
		os.Link(out+"/../victim", out+"/hard"),
		os.WriteFile(out+"/old", []byte("old and longer"), 0o600),
		os.Mkdir(out+"/inside", 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Collect(bytes.NewReader(archive(t, reg("sym", "1"), reg("hard", "2"), reg("old", "3"))), root, nil, DefaultLimits()); err != nil {
		t.Fatal(err)
	}
	want(t, files(t, out), map[string]string{"sym": "1", "hard": "2", "old": "3"})

	// A directory that is a symlink, to outside and to inside.
	for name, target := range map[string]string{"d1": "..", "d2": "inside"} {
		if err := os.Symlink(target, out+"/"+name); err != nil {
			t.Fatal(err)
		}
		if _, err := Collect(bytes.NewReader(archive(t, reg(name+"/victim", "!"))), root, nil, DefaultLimits()); err == nil {
			t.Errorf("a file was written through the symlink %s", name)
		}
	}
}

// The sandbox sends more than it was asked for.
func TestUnaskedFor(t *testing.T) {
	for name, ok := range map[string]bool{
		"dist/a": true, "dist/sub/a": true, "reports": true, "reports/deep/x": true, "x.log": true,
		".git/hooks/pre-commit": false, "sub/x.log": false, "distx": false, "other/reports": false,
	} {
		_, root := bed(t)
		_, err := Collect(bytes.NewReader(archive(t, reg(name, "x"))), root, []string{"dist/**", "reports", "*.log"}, DefaultLimits())
		if (err == nil) != ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Run it with -fuzzminimizetime 1x: what the file system does differs from run
// to run, and the search for a smaller input would not end.
func FuzzCollect(f *testing.F) {
	var t testing.T
	f.Add(archive(&t, reg("a/b", "x"), link("l", ".."), reg("l/x", "y")))
	f.Add(archive(&t, reg("../a", "x")))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, root := bed(t)
		_, _ = Collect(bytes.NewReader(data), root, nil, Limits{Files: 5, FileBytes: 1 << 12, TotalBytes: 1 << 13})
	})
}
