package dirpack

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/fault"
)

func write(t *testing.T, path, data string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, path string) *Dir {
	t.Helper()
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// unpack reads an archive into name → "type:content or target".
func unpack(t *testing.T, r io.Reader) map[string]string {
	t.Helper()
	got := map[string]string{}
	in := tar.NewReader(r)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Uname != "" {
			t.Errorf("%q names its owner: %d %q", h.Name, h.Uid, h.Uname)
		}
		data, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := got[h.Name]; ok {
			t.Errorf("%q is in the archive twice", h.Name)
		}
		got[h.Name] = string(h.Typeflag) + ":" + string(data) + h.Linkname
	}
}

func pack(t *testing.T, d *Dir) map[string]string {
	t.Helper()
	var b bytes.Buffer
	if err := d.Pack(context.Background(), &b); err != nil {
		t.Fatal(err)
	}
	return unpack(t, &b)
}

func same2(t *testing.T, got, want map[string]string) {
	t.Helper()
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%.60q is %.60q, want %.60q", k, got[k], v)
		}
	}
	for k := range got {
		if _, ok := want[k]; !ok {
			t.Errorf("%.60q is in the archive as well", k)
		}
	}
}

func TestOddTree(t *testing.T) {
	dir := t.TempDir()
	long := strings.Repeat("n", 250)
	deep := strings.Repeat("d/", 200) + "file"
	write(t, dir+"/plain", "x")
	write(t, dir+"/empty/.hidden", "")
	write(t, dir+"/new\nline", "n")
	write(t, dir+"/bad\xff\xfeutf8", "u")
	write(t, dir+"/-rf", "")
	write(t, dir+"/ümläut", "")
	write(t, dir+"/"+long+"/"+long, "long")
	write(t, filepath.Join(dir, deep), "deep")
	for link, target := range map[string]string{
		"loop": "loop", "a": "b", "b": "a", "out": "/etc/passwd", "up": "../../..", "dirlink": "empty", "dangling": "nowhere\xff",
	} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(dir+"/plain", dir+"/hard"); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(dir+"/fifo", 0o644); err != nil {
		t.Fatal(err)
	}
	for i := range 12 {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		if err := unix.Bind(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("%s/sock%d", dir, i)}); err != nil {
			t.Fatal(err)
		}
	}
	d := open(t, dir)
	s, err := d.Survey(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if s.Unsent != 13 || len(s.Skipped) != 10 || s.Skipped[0] != `"fifo" is a fifo` || s.Skipped[1] != `"sock0" is a socket` {
		t.Errorf("skipped %d: %q", s.Unsent, s.Skipped)
	}
	want := map[string]string{
		"plain": "0:x", "hard": "0:x", "empty/": "5:", "empty/.hidden": "0:", "new\nline": "0:n", "bad\xff\xfeutf8": "0:u",
		"-rf": "0:", "ümläut": "0:", long + "/": "5:", long + "/" + long: "0:long", deep: "0:deep",
		"loop": "2:loop", "a": "2:b", "b": "2:a", "out": "2:/etc/passwd", "up": "2:../../..", "dirlink": "2:empty", "dangling": "2:nowhere\xff",
	}
	for i := range 200 {
		want[strings.Repeat("d/", i+1)] = "5:"
	}
	same2(t, pack(t, d), want)
	if int(s.Entries) != len(want) {
		t.Errorf("the survey counts %d entries of %d", s.Entries, len(want))
	}
}

func TestRootMayBeASymlink(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/real/file", "x")
	if err := os.Symlink("real", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	same2(t, pack(t, open(t, dir+"/link")), map[string]string{"file": "0:x"})
}

func TestWhatCannotBeSent(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/file", "x")
	if err := os.Symlink("loop", dir+"/loop"); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"missing": "does not exist", "file": "is not a directory", "loop": "leads to itself", "": "does not exist",
	} {
		if path != "" {
			path = dir + "/" + path
		}
		_, err := Open(path)
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("Open(%q) = %v, want it to say %q", path, err, want)
		}
	}
}

// Root reads everything, so the file system has to say no. One in a directory
// of another user is denied to a process that gave up its rights; those go by
// thread, and a locked thread is thrown away with its goroutine.
func TestUnreadableIsNamed(t *testing.T) {
	for name, makeIt := range map[string]func(dir string) error{
		"secret-file": func(dir string) error { return os.WriteFile(dir+"/secret-file", []byte("x"), 0) },
		"secret-dir":  func(dir string) error { return os.Mkdir(dir+"/secret-dir", 0) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o755), makeIt(dir)); err != nil {
				t.Fatal(err)
			}
			d := open(t, dir)
			var surveyed, packed error
			asNobody(t, func() {
				_, surveyed = d.Survey(context.Background())
				packed = d.Pack(context.Background(), io.Discard)
			})
			for _, err := range []error{surveyed, packed} {
				if !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), `"`+name+`"`) {
					t.Errorf("got %v, want a denial that names %s", err, name)
				}
			}
		})
	}
}

func asNobody(t *testing.T, f func()) {
	if os.Getuid() != 0 {
		f()
		return
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked
		if _, _, errno := syscall.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), 65534, ^uintptr(0)); errno != 0 {
			done <- errno
			return
		}
		f()
		done <- nil
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// What happens to a file between being looked at and being read.
func TestFilesThatChange(t *testing.T) {
	big := strings.Repeat("0123456789abcdef", 3<<20/16)
	for name, tc := range map[string]struct {
		before string
		change func(path string) error
		want   string // content; or
		fails  bool
	}{
		"small grows":       {"short", func(p string) error { return os.WriteFile(p, []byte("longer now"), 0o644) }, "longer now", false},
		"small shrinks":     {"rather long", func(p string) error { return os.WriteFile(p, []byte("s"), 0o644) }, "s", false},
		"small becomes big": {"short", func(p string) error { return os.WriteFile(p, []byte(big), 0o644) }, big, false},
		"big shrinks":       {big, func(p string) error { return os.Truncate(p, 2<<20) }, "", true},
		"big grows": {big, func(p string) error {
			f, err := os.OpenFile(p, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.WriteString("more")
			return err
		}, "", true},
		"is deleted once open": {"short", os.Remove, "short", false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := dir + "/the-file"
			write(t, path, tc.before)
			write(t, dir+"/zz-after", "after")
			d := open(t, dir)
			changed := false
			d.reread = func(name string) {
				if name == "the-file" && !changed {
					changed = true
					if err := tc.change(path); err != nil {
						t.Fatal(err)
					}
				}
			}
			var b bytes.Buffer
			err := d.Pack(context.Background(), &b)
			if tc.fails {
				if err == nil || !strings.Contains(err.Error(), `"the-file"`) || !strings.Contains(err.Error(), "changed") {
					t.Fatalf("Pack = %v, want an error that names the file", err)
				}
				if strings.Contains(b.String(), "zz-after") {
					t.Error("the archive goes on after the file that changed")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			same2(t, unpack(t, &b), map[string]string{"the-file": "0:" + tc.want, "zz-after": "0:after"})
		})
	}
}

func TestAFileThatNeverStandsStillIsNamed(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/busy", "x")
	d := open(t, dir)
	n := 0
	d.reread = func(string) { n++; write(t, dir+"/busy", strings.Repeat("x", n+1)) }
	err := d.Pack(context.Background(), io.Discard)
	if err == nil || !strings.Contains(err.Error(), `"busy"`) {
		t.Errorf("Pack = %v, want an error that names the file", err)
	}
}

func TestManyFilesInLittleMemory(t *testing.T) {
	files := 30_000
	if testing.Short() {
		files = 3_000
	}
	dir := t.TempDir()
	for i := range files {
		sub := fmt.Sprintf("%s/%03d", dir, i%200)
		if i < 200 {
			if err := os.Mkdir(sub, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(fmt.Sprintf("%s/%d", sub, i), []byte("content"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	d := open(t, dir)
	s, err := d.Survey(context.Background())
	if err != nil || s.Entries != int64(files+200) || s.Bytes != int64(files*7) {
		t.Fatalf("Survey = %+v, %v", s, err)
	}
	runtime.GC()
	var before, peak runtime.MemStats
	runtime.ReadMemStats(&before)
	most := uint64(0)
	w := &watch{every: 4 << 20, look: func() {
		runtime.GC()
		runtime.ReadMemStats(&peak)
		most = max(most, peak.HeapAlloc)
	}}
	if err := d.Pack(context.Background(), w); err != nil {
		t.Fatal(err)
	}
	if grown := int64(most) - int64(before.HeapAlloc); grown > 16<<20 {
		t.Errorf("packing %d files held %d bytes", files, grown)
	}
}

type watch struct {
	n, every int
	look     func()
}

func (w *watch) Write(p []byte) (int, error) {
	if w.n += len(p); w.n > w.every {
		w.n = 0
		w.look()
	}
	return len(p), nil
}

func TestPackEnds(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a", "x")
	d := open(t, dir)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := d.Pack(ctx, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("Pack after its context ended = %v", err)
	}
	full := errors.New("full")
	if err := d.Pack(context.Background(), failing{full}); !errors.Is(err, full) {
		t.Errorf("Pack into a writer that fails = %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestPackFS(t *testing.T) {
	var a, b bytes.Buffer
	fsys := fstest.MapFS{"dir/__init__.py": {Data: []byte("x")}, ".hidden": {Data: []byte("h")}}
	if err := errors.Join(PackFS(context.Background(), fsys, &a), PackFS(context.Background(), fsys, &b)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Error("the same files give two archives")
	}
	same2(t, unpack(t, &a), map[string]string{"dir/": "5:", "dir/__init__.py": "0:x", ".hidden": "0:h"})
}
