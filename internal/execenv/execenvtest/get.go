package execenvtest

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
)

var getCases = []testCase{
	{clause: "A3", name: "patterns_choose_files", run: patterns},
	{clause: "A3", name: "symlinks_are_not_followed", run: symlinksInArchive},
	{clause: "A3", name: "other_kinds_are_left_out_and_do_not_hang", run: otherKinds},
	{clause: "A3", name: "more_than_max_bytes_is_exhausted", run: maxBytes},
	{clause: "A3", name: "nothing_matches_is_an_empty_archive", run: noMatch},
	{clause: "A3", name: "missing_directory_is_not_found", run: missingDir},
	{clause: "A3", name: "unreadable_files_are_left_out_and_named", run: unreadable},
	{clause: "A3", name: "incomplete_stream_is_an_error", run: incomplete},
	{clause: "A3", name: "works_while_files_change", run: changing},
}

func unreadable(c *C) {
	b := c.create()
	c.ok("PutArchive", b.put("", file("a", 0o644, "first"), file("nobodys", 0, "secret"), file("z", 0o644, "last")))
	var archive bytes.Buffer
	err := b.GetArchive(c.ctx(), execenv.ArchiveRequest{Patterns: []string{"a", "nobodys", "z"}}, &archive)
	c.code("GetArchive with a file that cannot be read", err, fault.Denied)
	if !strings.Contains(fault.Public(err), "nobodys") {
		c.Errorf("the error does not name the file: %v", err)
	}
	var names []string
	for in := tar.NewReader(&archive); ; {
		h, err := in.Next()
		if err != nil {
			break
		}
		names = append(names, h.Name)
	}
	if want := []string{"a", "z"}; !slices.Equal(names, want) {
		c.Errorf("the archive has %q, want %q", names, want)
	}
}

func patterns(c *C) {
	b := c.create()
	c.ok("PutArchive", b.put("", file("a.txt", 0o644, ""), file("b.log", 0o644, ""), file(".dot", 0o644, ""),
		file("out/c.txt", 0o644, ""), file("out/d.bin", 0o644, ""), file("out/deep/er/e.txt", 0o644, ""),
		file("other/f.txt", 0o644, ""), symlink("l.txt", "a.txt")))
	for _, tc := range []struct {
		dir      string
		patterns []string
		want     []string
	}{
		{"", []string{"*.txt"}, []string{"a.txt", "l.txt"}},
		{"", []string{"**/*.txt"}, []string{"a.txt", "l.txt", "other/f.txt", "out/c.txt", "out/deep/er/e.txt"}},
		{"", []string{"out/**"}, []string{"out/c.txt", "out/d.bin", "out/deep/er/e.txt"}},
		{"", []string{"out/*.???"}, []string{"out/c.txt", "out/d.bin"}},
		{"", []string{"out/**/e.*"}, []string{"out/deep/er/e.txt"}},
		{"", []string{"out/*/*"}, nil},
		{"", []string{"[ab].*"}, []string{"a.txt", "b.log"}},
		{"", []string{"a.txt", "a.*", "b.log"}, []string{"a.txt", "b.log"}},
		{"", []string{".d*"}, []string{".dot"}},
		{"out", nil, []string{"c.txt", "d.bin", "deep/er/e.txt"}},
		{"out", []string{"*.txt"}, []string{"c.txt"}},
		{"out/deep", []string{"**"}, []string{"er/e.txt"}},
	} {
		var got []string
		for name, e := range b.get(execenv.ArchiveRequest{Dir: tc.dir, Patterns: tc.patterns}) {
			// Whether directories on the way are entries is left open.
			if e.kind != tar.TypeDir {
				got = append(got, name)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, tc.want) {
			c.Errorf("patterns %q below %q give %q, want %q", tc.patterns, tc.dir, got, tc.want)
		}
	}
}

func symlinksInArchive(c *C) {
	b := c.create()
	b.output("mkdir", "/workspace/d")
	b.output("write", "/workspace/d/inner", "inner")
	b.output("write", "/tmp/secret", "secret")
	for name, target := range map[string]string{
		"passwd": "/etc/passwd", "etc": "/etc", "tmp": "/tmp", "loop": "loop", "up": "..", "d2": "d", "dangling": "nowhere",
	} {
		b.output("symlink", target, "/workspace/"+name)
	}
	c.same("archive of symlinks", b.get(execenv.ArchiveRequest{}),
		dir("d", 0o755), file("d/inner", 0o644, "inner"),
		symlink("passwd", "/etc/passwd"), symlink("etc", "/etc"), symlink("tmp", "/tmp"), symlink("loop", "loop"),
		symlink("up", ".."), symlink("d2", "d"), symlink("dangling", "nowhere"))
	for _, pattern := range []string{"tmp/*", "etc/**/*", "d2/inner", "tmp/secret", "up/etc/*"} {
		if got := b.get(execenv.ArchiveRequest{Patterns: []string{pattern}}); len(got) > 0 {
			c.Errorf("pattern %q went through a symlink: %v", pattern, got)
		}
	}
}

func otherKinds(c *C) {
	b := c.create()
	b.output("mkfifo", "/workspace/fifo")
	b.output("mksock", "/workspace/sock")
	b.output("write", "/workspace/file", "file")
	c.soon("GetArchive beside a fifo and a socket", func() {
		c.same("archive", b.get(execenv.ArchiveRequest{}), file("file", 0o644, "file"))
		c.same("archive by pattern", b.get(execenv.ArchiveRequest{Patterns: []string{"f*", "sock"}}), file("file", 0o644, "file"))
	})
}

func maxBytes(c *C) {
	b := c.create()
	c.ok("PutArchive", b.put("in", file("a", 0o644, strings.Repeat("a", 600_000)), file("b", 0o644, strings.Repeat("b", 400_000))))
	for bound, enough := range map[int64]bool{1: false, 999_999: false, 1_000_000: true, 2_000_000: true, 0: true} {
		var buf bytes.Buffer
		err := b.GetArchive(c.ctx(), execenv.ArchiveRequest{Dir: "in", MaxBytes: bound}, &buf)
		switch {
		case enough && err != nil:
			c.Errorf("GetArchive of 1000000 bytes with MaxBytes %d: %v", bound, err)
		case !enough:
			c.code("GetArchive of more than MaxBytes", err, fault.Exhausted)
			if int64(buf.Len()) > bound+64<<10 {
				c.Errorf("with MaxBytes %d there came %d bytes", bound, buf.Len())
			}
		}
	}
}

func noMatch(c *C) {
	b := c.create()
	c.ok("PutArchive", b.put("in", file("a", 0o644, "a")))
	for _, req := range []execenv.ArchiveRequest{
		{Dir: "in", Patterns: []string{"*.none"}}, {Patterns: []string{"missing/**"}}, {Dir: "in", Patterns: []string{"a/b"}},
	} {
		var buf bytes.Buffer
		if err := b.GetArchive(c.ctx(), req, &buf); err != nil {
			c.Errorf("GetArchive %+v: %v", req, err)
		}
		if got := untar(c.T, buf.Bytes()); len(got) > 0 || buf.Len() == 0 {
			c.Errorf("GetArchive %+v gave %d bytes with %v, want an archive without entries", req, buf.Len(), got)
		}
	}
}

func missingDir(c *C) {
	b := c.create()
	c.code("GetArchive of a directory that is missing", b.GetArchive(c.ctx(), execenv.ArchiveRequest{Dir: "missing"}, discard{}), fault.NotFound)
	c.ok("PutArchive", b.put("", file("a", 0o644, "a")))
	if err := b.GetArchive(c.ctx(), execenv.ArchiveRequest{Dir: "a"}, discard{}); err == nil {
		c.Errorf("GetArchive of a file as the directory returned nil")
	}
}

// shortWriter fails after n bytes, as a connection does that breaks.
type shortWriter struct {
	n   int
	err error
}

func (w *shortWriter) Write(p []byte) (int, error) {
	if w.n -= len(p); w.n < 0 {
		return 0, w.err
	}
	return len(p), nil
}

func incomplete(c *C) {
	b := c.create()
	c.ok("PutArchive", b.put("in", file("a", 0o644, strings.Repeat("a", 3<<20))))
	if err := b.GetArchive(c.ctx(), execenv.ArchiveRequest{Dir: "in"}, &shortWriter{100_000, errors.New("broken pipe")}); err == nil {
		c.Errorf("GetArchive into a writer that fails returned nil")
	}
	ctx, cancel := context.WithCancel(c.ctx())
	if err := b.GetArchive(ctx, execenv.ArchiveRequest{Dir: "in"}, cancelWriter{cancel}); err == nil {
		// Everything may have been on its way. Then it must be complete.
		c.Logf("the archive was complete before its context ended")
	}
	cancel()
	// The end of the sandbox in the middle is an error too.
	r, w := io.Pipe()
	got := make(chan error, 1)
	go func() {
		err := b.GetArchive(c.ctx(), execenv.ArchiveRequest{Dir: "in"}, w)
		_ = w.CloseWithError(err)
		got <- err
	}()
	_, _ = io.ReadFull(r, make([]byte, 1024))
	c.ok("Destroy", c.env.Destroy(c.ctx(), b.ID()))
	rest, err := io.ReadAll(r)
	if len(rest)+1024 < 3<<20 && (err == nil || <-got == nil) {
		c.Errorf("GetArchive of a destroyed sandbox gave %d bytes and no error", len(rest)+1024)
	}
}

type cancelWriter struct{ cancel func() }

func (w cancelWriter) Write(p []byte) (int, error) { w.cancel(); return len(p), nil }

// changing packs what a program writes to meanwhile: the archive may hold any
// of it or fail, but what is said to be complete is well-formed.
func changing(c *C) {
	b := c.create()
	p := b.start("family", "/workspace/growing")
	p.await("ready")
	for range 5 {
		var buf bytes.Buffer
		if err := b.GetArchive(c.ctx(), execenv.ArchiveRequest{}, &buf); err == nil {
			if got := untar(c.T, buf.Bytes()); got["growing"].body == "" {
				c.Errorf("the growing file is %v", got["growing"])
			}
		}
	}
	c.ok("Kill", p.Kill(c.ctx()))
}
