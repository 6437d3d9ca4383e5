package livefiles_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/guest/filewire"
	"github.com/agentdock/agentdock/internal/livefiles"
)

// TestFiles does what callers do, in one real sandbox.
func TestFiles(t *testing.T) {
	w := newWorld(t, nil)
	for _, c := range []struct {
		name string
		run  func(*world)
	}{
		{"write_and_read", writeAndRead},
		{"a_part", aPart},
		{"no_byte_is_lost", noByteIsLost},
		{"names_are_bytes", namesAreBytes},
		{"stat", stat},
		{"list", list},
		{"list_in_several_runs", listInSeveralRuns},
		{"make_directory", makeDirectory},
		{"move", move},
		{"remove", remove},
		{"symlinks", symlinks},
		{"modes_are_kept", modesAreKept},
		{"other_places", otherPlaces},
		{"bad_paths", badPaths},
		{"what_is_no_file", whatIsNoFile},
		{"a_cut_write_changes_nothing", aCutWriteChangesNothing},
		{"a_full_disk", aFullDisk},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := w.in(t)
			c.run(w)
			// Whatever happened, the sandbox works.
			w.write("/workspace/after", c.name)
			if got := w.read("/workspace/after"); got != c.name {
				t.Errorf("afterwards: %q", got)
			}
		})
	}
}

func writeAndRead(w *world) {
	e := w.write("deep/down/hello.txt", "Grüße\n")
	if e.Path != "/workspace/deep/down/hello.txt" || e.Size != 8 || e.Kind != livefiles.File || e.Mode != 0o644 || e.UID != execenv.UID {
		w.Errorf("%+v", e)
	}
	if got := w.read("/workspace/deep/down/hello.txt"); got != "Grüße\n" {
		w.Errorf("%q", got)
	}
	w.write("deep/down/hello.txt", "")
	if got := w.read("deep/down/hello.txt"); got != "" {
		w.Errorf("%q", got)
	}
}

func aPart(w *world) {
	w.write("digits", "0123456789")
	for _, c := range []struct {
		part livefiles.Part
		want string
	}{
		{livefiles.Part{Offset: 3}, "3456789"},
		{livefiles.Part{Offset: 3, Length: 4}, "3456"},
		{livefiles.Part{Length: 100}, "0123456789"},
		{livefiles.Part{Offset: 10}, ""},
		{livefiles.Part{Offset: 1000, Length: 5}, ""},
	} {
		got, err := w.part("digits", c.part)
		if err != nil || got != c.want {
			w.Errorf("%+v: %q, %v", c.part, got, err)
		}
	}
	_, err := w.part("digits", livefiles.Part{Offset: -1})
	w.wantCode("a negative offset", err, fault.Invalid)
}

// noByteIsLost: more than one run of the helper can answer.
func noByteIsLost(w *world) {
	data := make([]byte, 9<<20+1)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(data)
	if _, err := w.Write(w.ctx(), "big", 0, bytes.NewReader(data)); err != nil {
		w.Fatal(err)
	}
	got := sha256.New()
	err := w.Files.Read(w.ctx(), "big", livefiles.Part{}, func(e livefiles.Entry) (io.Writer, error) {
		if e.Size != int64(len(data)) {
			w.Errorf("size %d", e.Size)
		}
		return got, nil
	})
	if want := sha256.Sum256(data); err != nil || !bytes.Equal(got.Sum(nil), want[:]) {
		w.Errorf("the file is not what was written (%v)", err)
	}
	if err := w.Remove(w.ctx(), "big"); err != nil {
		w.Error(err)
	}
}

func namesAreBytes(w *world) {
	for _, name := range []string{"with space", "üñí", "-rf", "new\nline", "\xff\xfe", `quo"te\`, "*", strings.Repeat("n", 255)} {
		w.write("names/"+name, name)
		if got := w.read("names/" + name); got != name {
			w.Errorf("%q: %q", name, got)
		}
	}
	if got := w.names("names", 1); len(got) != 8 || got[7] != "file /workspace/names/\xff\xfe" && got[6] != "file /workspace/names/üñí" {
		w.Errorf("%q", got)
	}
}

func stat(w *world) {
	e, err := w.Stat(w.ctx(), "/")
	if err != nil || e.Kind != livefiles.Directory || e.Path != "/" || e.UID != 0 {
		w.Errorf("%+v, %v", e, err)
	}
	e, err = w.Stat(w.ctx(), "")
	if err != nil || e.Path != "/workspace" || e.UID != execenv.UID {
		w.Errorf("%+v, %v", e, err)
	}
	_, err = w.Stat(w.ctx(), "none")
	w.wantCode("what does not exist", err, fault.NotFound)
}

func list(w *world) {
	w.write("list/b/c/d", "")
	w.write("list/a", "")
	w.write("list/b.txt", "")
	want := []string{"file /workspace/list/a", "dir /workspace/list/b", "file /workspace/list/b.txt"}
	if diff := cmp.Diff(want, w.names("list", 1)); diff != "" {
		w.Error(diff)
	}
	want = []string{"file /workspace/list/a", "dir /workspace/list/b", "dir /workspace/list/b/c", "file /workspace/list/b.txt"}
	if diff := cmp.Diff(want, w.names("/workspace/./list/", 2)); diff != "" {
		w.Error(diff)
	}
	_, err := w.List(w.ctx(), "list/a", 1)
	w.wantCode("a list of a file", err, fault.Invalid)
	_, err = w.List(w.ctx(), "none", 1)
	w.wantCode("a list of nothing", err, fault.NotFound)
	for _, depth := range []int{0, -1, 65} {
		_, err = w.List(w.ctx(), "list", depth)
		w.wantCode(fmt.Sprint("depth ", depth), err, fault.Invalid)
	}
}

// listInSeveralRuns: the answer is longer than one run of the helper may give.
func listInSeveralRuns(w *world) {
	w.probe("mkdir", "/workspace/many")
	w.probe("touch", "/workspace/many", "3000")
	files, err := livefiles.Open(w.sandbox, 16<<10)
	if err != nil {
		w.Fatal(err)
	}
	entries, err := files.List(w.ctx(), "many", 3)
	if err != nil {
		w.Fatal(err)
	}
	seen := map[string]bool{}
	for _, e := range entries {
		seen[e.Path] = true
	}
	if len(seen) != len(entries) || len(seen) < 3000 {
		w.Errorf("%d entries, %d of them different", len(entries), len(seen))
	}
	if err := w.Remove(w.ctx(), "many"); err != nil {
		w.Error(err)
	}
}

func makeDirectory(w *world) {
	e, err := w.MakeDir(w.ctx(), "made/and/made")
	if err != nil || e.Kind != livefiles.Directory || e.Mode != 0o755 {
		w.Errorf("%+v, %v", e, err)
	}
	_, err = w.MakeDir(w.ctx(), "made/and")
	w.wantCode("a directory that exists", err, fault.Conflict)
	w.write("made/file", "")
	_, err = w.MakeDir(w.ctx(), "made/file")
	w.wantCode("a file that exists", err, fault.Conflict)
	_, err = w.MakeDir(w.ctx(), "made/file/below")
	w.wantCode("below a file", err, fault.Invalid)
	_, err = w.MakeDir(w.ctx(), "/etc/made")
	w.wantCode("on the read-only root", err, fault.Denied)
}

func move(w *world) {
	w.write("move/a", "1")
	e, err := w.Move(w.ctx(), "move/a", "move/to/b")
	if err != nil || e.Path != "/workspace/move/to/b" || w.read("move/to/b") != "1" {
		w.Errorf("%+v, %v", e, err)
	}
	_, err = w.Stat(w.ctx(), "move/a")
	w.wantCode("the old name", err, fault.NotFound)
	w.write("move/c", "2")
	if _, err := w.Move(w.ctx(), "move/c", "move/to/b"); err != nil || w.read("move/to/b") != "2" {
		w.Errorf("over a file: %v", err)
	}
	_, err = w.Move(w.ctx(), "move/to/b", "move/to")
	w.wantCode("over a directory", err, fault.Conflict)
	_, err = w.Move(w.ctx(), "move/none", "move/x")
	w.wantCode("of nothing", err, fault.NotFound)
	_, err = w.Move(w.ctx(), "move/to", "move/to/below")
	w.wantCode("below itself", err, fault.Invalid)
	_, err = w.Move(w.ctx(), "move/to/b", "/tmp/b")
	w.wantCode("into a place with a quota of its own", err, fault.Invalid)
}

func remove(w *world) {
	w.write("rm/a/b/c", "")
	if err := w.Remove(w.ctx(), "rm"); err != nil {
		w.Error(err)
	}
	w.wantCode("removed before", w.Remove(w.ctx(), "rm"), fault.NotFound)
	w.write("kept", "")
	for _, place := range []string{"/", "/workspace", "", "/tmp", "/proc"} {
		w.wantCode("removing "+place, w.Remove(w.ctx(), place), fault.Denied)
	}
	w.wantCode("removing /usr", w.Remove(w.ctx(), "/etc"), fault.Denied)
	if got := w.read("kept"); got != "" {
		w.Errorf("%q", got)
	}
}

func symlinks(w *world) {
	w.write("links/file", "through")
	w.probe("symlink", "file", "/workspace/links/link")
	w.probe("symlink", "nowhere", "/workspace/links/dangling")
	w.probe("symlink", "loop", "/workspace/links/loop")
	e, err := w.Stat(w.ctx(), "links/link")
	if err != nil || e.Kind != livefiles.Symlink || string(e.Target) != "file" || e.TargetKind != livefiles.File {
		w.Errorf("%+v, %v", e, err)
	}
	w.write("links/link", "changed")
	if got := w.read("links/file"); got != "changed" {
		w.Errorf("%q", got)
	}
	_, err = w.Write(w.ctx(), "links/dangling", 0, strings.NewReader(""))
	w.wantCode("a write through a symlink to nothing", err, fault.Invalid)
	_, err = w.part("links/loop", livefiles.Part{})
	w.wantCode("a loop", err, fault.Invalid)
	if err := w.Remove(w.ctx(), "links/link"); err != nil || w.read("links/file") != "changed" {
		w.Errorf("removing a symlink: %v", err)
	}
}

func modesAreKept(w *world) {
	e, err := w.Write(w.ctx(), "script", 0o755, strings.NewReader("1"))
	if err != nil || e.Mode != 0o755 {
		w.Errorf("%o, %v", e.Mode, err)
	}
	if e := w.write("script", "2"); e.Mode != 0o755 {
		w.Errorf("%o", e.Mode)
	}
}

func otherPlaces(w *world) {
	w.write("/tmp/x/y", "1")
	w.write("/dev/shm/z", "2")
	if w.read("/tmp/x/y") != "1" || w.read("/dev/shm/z") != "2" {
		w.Error("not what was written")
	}
	if got := w.read("/proc/self/comm"); got != "agentdock-guest\n" {
		w.Errorf("%q", got)
	}
	_, err := w.Write(w.ctx(), "/etc/passwd", 0, strings.NewReader(""))
	w.wantCode("a write on the read-only root", err, fault.Denied)
	_, err = w.Write(w.ctx(), filewire.Program, 0, strings.NewReader(""))
	w.wantCode("a write over the helper", err, fault.Denied)
}

func badPaths(w *world) {
	long := "/" + strings.Repeat(strings.Repeat("a", 255)+"/", 16)
	for what, path := range map[string]string{
		"..": "../etc/passwd", ".. inside": "/workspace/../etc/passwd", ".. at the end": "a/..",
		"NUL": "a\x00b", "4,096 bytes": long[:4096], "a name of 4,096 bytes": strings.Repeat("a", 4096),
		"4,095 bytes below the workspace": long[1:4096],
	} {
		_, err := w.Stat(w.ctx(), path)
		w.wantCode("Stat of "+what, err, fault.Invalid)
		_, err = w.Write(w.ctx(), path, 0, strings.NewReader("x"))
		w.wantCode("Write of "+what, err, fault.Invalid)
		_, err = w.part(path, livefiles.Part{})
		w.wantCode("Read of "+what, err, fault.Invalid)
		_, err = w.List(w.ctx(), path, 1)
		w.wantCode("List of "+what, err, fault.Invalid)
		_, err = w.MakeDir(w.ctx(), path)
		w.wantCode("MakeDir of "+what, err, fault.Invalid)
		_, err = w.Move(w.ctx(), "after", path)
		w.wantCode("Move to "+what, err, fault.Invalid)
		w.wantCode("Remove of "+what, w.Remove(w.ctx(), path), fault.Invalid)
	}
	_, err := w.Stat(w.ctx(), long[:4094])
	w.wantCode("a path as long as may be", err, fault.NotFound)
}

func whatIsNoFile(w *world) {
	w.probe("mkdir", "/workspace/odd")
	w.probe("mkfifo", "/workspace/odd/fifo")
	w.probe("mksock", "/workspace/odd/sock")
	for _, path := range []string{"odd", "odd/fifo", "odd/sock", "/dev/zero", "/dev/null", "/dev/random", "/proc", "/"} {
		_, err := w.part(path, livefiles.Part{})
		w.wantCode("Read of "+path, err, fault.Invalid)
		_, err = w.Write(w.ctx(), path, 0, strings.NewReader("x"))
		w.wantCode("Write of "+path, err, fault.Invalid)
	}
	if e, err := w.Stat(w.ctx(), "odd/fifo"); err != nil || e.Kind != livefiles.Other {
		w.Errorf("%+v, %v", e, err)
	}
	// The kernel's log is not there, or closed, or has an end.
	if got, err := w.part("/proc/kmsg", livefiles.Part{}); err == nil && len(got) > 1<<20 || err != nil && !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Denied) {
		w.Errorf("/proc/kmsg: %d bytes, %v", len(got), err)
	}
	_, err := w.part("after/below", livefiles.Part{})
	w.wantCode("below a file", err, fault.Invalid)
}

var errBroken = errors.New("the upload broke")

func aCutWriteChangesNothing(w *world) {
	w.write("cut/file", "before")
	_, err := w.Write(w.ctx(), "cut/file", 0, io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20)), brokenReader{}))
	if !errors.Is(err, errBroken) || !fault.Is(err, fault.Unavailable) {
		w.Errorf("%v", err)
	}
	if got := w.read("cut/file"); got != "before" {
		w.Errorf("%.20q", got)
	}
	if got := w.names("cut", 1); len(got) != 1 {
		w.Errorf("left over: %q", got)
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errBroken }

func aFullDisk(w *world) {
	w.write("full/file", "before")
	_, err := w.Write(w.ctx(), "full/file", 0, endless{})
	w.wantCode("an endless file", err, fault.Exhausted)
	if got := w.read("full/file"); got != "before" {
		w.Errorf("%.20q", got)
	}
	if got := w.names("full", 1); len(got) != 1 {
		w.Errorf("left over: %q", got)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
