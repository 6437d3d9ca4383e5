package execenvtest

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

var putCases = []testCase{
	{clause: "A1", name: "round_trip", run: roundTrip},
	{clause: "A1", name: "unusual_names", run: unusualNames},
	{clause: "A1", name: "hard_links_inside_are_links", run: innerHardLinks},
	{clause: "A1", name: "replaces_files_and_symlinks", run: replaces},
	{clause: "A1", name: "broken_streams_fail", run: brokenStreams},
	{clause: "A1", name: "empty_archive_makes_the_directory", run: emptyArchive},
	{clause: "A2", name: "archive_larger_than_the_disk_is_exhausted", needs: needsDisk, run: putTooLarge},
	{clause: "A2", name: "archive_of_too_many_files_is_exhausted", needs: needsInodes, run: putTooMany},
}

var hostileArchiveCases = []testCase{
	{clause: "A1", name: "hostile_entries_are_invalid", run: hostileEntries},
	{clause: "A1", name: "existing_symlinks_are_not_followed", run: existingSymlinks},
	{clause: "A1", name: "directory_that_is_a_symlink_is_not_followed", run: targetIsSymlink},
}

func (b *box) put(dir string, entries ...entry) error {
	return b.PutArchive(b.c.ctx(), dir, bytes.NewReader(tarOf(b.c.T, entries...)))
}

// same compares what came back with what went in.
func (c *C) same(what string, got map[string]entry, want ...entry) {
	c.Helper()
	for _, w := range want {
		w.name = strings.TrimSuffix(w.name, "/")
		g, ok := got[w.name]
		if w.kind == tar.TypeSymlink {
			g.mode = w.mode // a symlink has none that means anything
		}
		if !ok || g != w {
			c.Errorf("%s: %q is %s, want %s", what, w.name, g, w)
		}
		delete(got, w.name)
	}
	for name, g := range got {
		c.Errorf("%s: there is %q besides: %s", what, name, g)
	}
}

func (e entry) String() string {
	return fmt.Sprintf("{type %q mode %o body %q target %q}", e.kind, e.mode, clip(e.body), e.target)
}

func roundTrip(c *C) {
	b := c.create()
	entries := []entry{
		file("plain", 0o644, "text\n"), file("script", 0o755, "#!/bin/sh\n"), file("private", 0o600, "p"),
		file("read-only", 0o444, "r"), file("empty", 0o644, ""), file("binary", 0o644, "\x00\xff\xfe\x80"),
		dir("folder", 0o755), dir("folder/nothing", 0o755), file("folder/deep", 0o640, "d"),
		file("no/parents/named", 0o644, "n"), file("large", 0o644, patternOf(3<<20)),
		symlink("link", "plain"), symlink("dangling", "no/where"), symlink("out", "/etc/passwd"), symlink("up", "../../.."),
	}
	c.ok("PutArchive", b.put("in", entries...))
	want := slices.Concat(entries, []entry{dir("no", 0o755), dir("no/parents", 0o755)})
	c.same("round trip", b.get(execenv.ArchiveRequest{Dir: "in"}), want...)
	if got := b.output("read", "/workspace/in/large"); !strings.HasPrefix(patternOf(3<<20), got) || got == "" {
		c.Errorf("the program reads something else from the large file")
	}
	tree := b.output("tree", "/workspace/in")
	for _, line := range []string{`"script" file 755 10 ""`, `"private" file 600 1 ""`, `"folder/nothing" dir 755 0 ""`, `"link" symlink 777 0 "plain"`} {
		if !strings.Contains(tree, line) {
			c.Errorf("the program sees no %s:\n%s", line, tree)
		}
	}
}

func unusualNames(c *C) {
	b := c.create()
	entries := []entry{
		file("new\nline", 0o644, "1"), file("tab\tand space ", 0o644, "2"), file("not utf8 \xff\xfe", 0o644, "3"),
		file("é漢字", 0o644, "4"), file("-rf", 0o644, "5"), file("*?[", 0o644, "6"), file("back\\slash", 0o644, "7"),
		file(strings.Repeat("n", 255), 0o644, "8"), file("...", 0o644, "9"), file("..hidden", 0o644, "10"),
		file(strings.Repeat("d/", 60)+"deep", 0o644, "11"),
	}
	c.ok("PutArchive", b.put("in", entries...))
	got := b.get(execenv.ArchiveRequest{Dir: "in"})
	for name, e := range got {
		if e.kind == tar.TypeDir {
			delete(got, name)
		}
	}
	c.same("unusual names", got, entries...)
}

func innerHardLinks(c *C) {
	b := c.create()
	c.ok("PutArchive", b.put("in", file("d/one", 0o644, "first"), hardlink("two", "d/one")))
	if got := b.output("read", "/workspace/in/two"); got != "first" {
		c.Errorf("the hard link reads %q", got)
	}
	b.output("write", "/workspace/in/two", "second")
	if got := b.output("read", "/workspace/in/d/one"); got != "second" {
		c.Errorf("what was written through one name reads as %q through the other", got)
	}
}

func replaces(c *C) {
	b := c.create()
	c.ok("PutArchive", b.put("", file("a", 0o644, "old and longer"), file("victim", 0o644, "victim"), symlink("s", "victim"), dir("d", 0o755), file("d/kept", 0o644, "kept")))
	c.ok("PutArchive again", b.put("", file("a", 0o600, "new"), file("s", 0o644, "no link"), dir("d", 0o755), file("d/more", 0o644, "more")))
	c.same("replaced", b.get(execenv.ArchiveRequest{}),
		file("a", 0o600, "new"), file("victim", 0o644, "victim"), file("s", 0o644, "no link"),
		dir("d", 0o755), file("d/kept", 0o644, "kept"), file("d/more", 0o644, "more"))
}

func brokenStreams(c *C) {
	b := c.create()
	whole := tarOf(c.T, file("first", 0o644, "first"), file("big", 0o644, patternOf(100_000)))
	c.code("PutArchive of garbage", b.PutArchive(c.ctx(), "", strings.NewReader(strings.Repeat("garbage", 1000))), fault.Invalid)
	c.code("PutArchive of half an archive", b.PutArchive(c.ctx(), "", bytes.NewReader(whole[:50_000])), fault.Invalid)
	boom := errors.New("boom")
	if err := b.PutArchive(c.ctx(), "", io.MultiReader(bytes.NewReader(whole[:50_000]), failingReader{boom})); err == nil {
		c.Errorf("PutArchive whose reader fails returned nil")
	}
	c.ok("PutArchive afterwards", b.put("", file("fine", 0o644, "fine")))
	if got := b.output("read", "/workspace/fine"); got != "fine" {
		c.Errorf("the file holds %q", got)
	}
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

func emptyArchive(c *C) {
	b := c.create()
	c.ok("PutArchive of nothing", b.put("a/b"))
	spec := probe("pwd")
	spec.Dir = "a/b"
	if got := b.exec(spec).finish().stdout; got != "/workspace/a/b\n" {
		c.Errorf("the program starts in %q", got)
	}
}

func putTooLarge(c *C) {
	b := c.create(func(s *execenv.Spec) { s.Limits.DiskBytes = 16 * run.MiB })
	big := strings.Repeat("x", 24<<20)
	c.code("PutArchive of more than the disk holds", b.put("big", file("big", 0o644, big)), fault.Exhausted)
	b.output("remove", "/workspace/big")
	c.ok("PutArchive afterwards", b.put("", file("small", 0o644, "fits")))
}

func putTooMany(c *C) {
	b := c.create(func(s *execenv.Spec) { s.Limits.Inodes = 64 })
	var entries []entry
	for i := range 500 {
		entries = append(entries, file(fmt.Sprintf("f%d", i), 0o644, ""))
	}
	c.code("PutArchive of too many files", b.put("many", entries...), fault.Exhausted)
	b.output("remove", "/workspace/many")
	c.ok("PutArchive afterwards", b.put("", file("small", 0o644, "fits")))
}

func hostileEntries(c *C) {
	b := c.create()
	b.output("write", "/workspace/outside", "untouched")
	b.output("write", "/tmp/outside", "untouched")
	for name, entries := range map[string][]entry{
		"climbs":                      {file("../outside", 0o644, "evil")},
		"climbs within":               {file("a/../../outside", 0o644, "evil")},
		"climbs and comes back":       {dir("a", 0o755), file("a/../b", 0o644, "evil")},
		"is the parent":               {dir("..", 0o777)},
		"absolute":                    {file("/tmp/outside", 0o644, "evil")},
		"absolute new":                {file("/tmp/new", 0o644, "evil")},
		"absolute directory":          {dir("/tmp/newdir", 0o755)},
		"through a symlink":           {symlink("s", "/tmp"), file("s/outside", 0o644, "evil")},
		"through a relative symlink":  {symlink("s", ".."), file("s/outside", 0o644, "evil")},
		"through two symlinks":        {symlink("s", "/"), symlink("t", "s/tmp"), file("t/outside", 0o644, "evil")},
		"directory through a symlink": {symlink("s", "/tmp"), dir("s/newdir", 0o755)},
		"symlink through a symlink":   {symlink("s", "/tmp"), symlink("s/new", "x")},
		"inner symlink":               {dir("d", 0o755), symlink("s", "d"), file("s/f", 0o644, "evil")},
		"hard link to /etc/passwd":    {hardlink("h", "/etc/passwd"), file("h", 0o644, "evil")},
		"hard link that climbs":       {hardlink("h", "../outside")},
		"hard link through a symlink": {symlink("s", ".."), hardlink("h", "s/outside")},
		"hard link to nothing":        {hardlink("h", "missing")},
		"character device":            {special(tar.TypeChar, "null")},
		"block device":                {special(tar.TypeBlock, "disk")},
		"fifo":                        {special(tar.TypeFifo, "fifo")},
		"a good one, then a bad one":  {file("good", 0o644, "good"), file("../outside", 0o644, "evil")},
		"unknown type":                {special(0x5a, "unknown")},
	} {
		c.code("PutArchive with an entry that is hostile: "+name, b.put("inside/"+c.id(), entries...), fault.Invalid)
	}
	for _, path := range []string{"/workspace/outside", "/tmp/outside"} {
		if got := b.output("read", path); got != "untouched" {
			c.Errorf("%s holds %q", path, got)
		}
	}
	for _, path := range []string{"/tmp/new", "/tmp/newdir"} {
		if out := b.output("tree", "/tmp"); strings.Contains(out, strings.TrimPrefix(path, "/tmp/")) {
			c.Errorf("%s was made:\n%s", path, out)
		}
	}
	if out := b.output("tree", "/workspace/inside"); strings.Contains(out, " other ") {
		c.Errorf("something was made that is no file, directory or link:\n%s", out)
	}
}

// existingSymlinks are the program's: hostile as the archive's own.
func existingSymlinks(c *C) {
	b := c.create()
	b.output("mkdir", "/workspace/in")
	b.output("symlink", "/tmp", "/workspace/in/s")
	b.output("write", "/tmp/target", "untouched")
	b.output("symlink", "/tmp/target", "/workspace/in/f")
	c.code("PutArchive through a symlink that was there", b.put("in", file("s/new", 0o644, "evil")), fault.Invalid)
	// A file takes the symlink's place, or is refused; it is not written to
	// where the symlink leads.
	if err := b.put("in", file("f", 0o644, "evil")); err != nil {
		c.code("PutArchive onto a symlink", err, fault.Invalid)
	}
	if err := b.put("in", dir("s", 0o700)); err != nil {
		c.code("PutArchive of a directory onto a symlink", err, fault.Invalid)
	}
	if got := b.output("read", "/tmp/target"); got != "untouched" {
		c.Errorf("the symlink's target holds %q", got)
	}
	if out := b.output("tree", "/tmp"); strings.Contains(out, "new") {
		c.Errorf("/tmp has\n%s", out)
	}
}

func targetIsSymlink(c *C) {
	b := c.create()
	b.output("symlink", "/tmp", "/workspace/s")
	for _, dir := range []string{"s", "s/below"} {
		c.code("PutArchive into "+dir+", a symlink", b.put(dir, file("new", 0o644, "evil")), fault.Invalid)
		var buf bytes.Buffer
		b.output("write", "/tmp/secret", "secret")
		if err := b.GetArchive(c.ctx(), execenv.ArchiveRequest{Dir: dir}, &buf); err == nil && len(untar(c.T, buf.Bytes())) > 0 {
			c.Errorf("GetArchive of %s, a symlink, followed it", dir)
		}
	}
	if out := b.output("tree", "/tmp"); strings.Contains(out, "new") || strings.Contains(out, "below") {
		c.Errorf("/tmp has\n%s", out)
	}
}
