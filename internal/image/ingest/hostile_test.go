package ingest

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/agentdock/agentdock/internal/fault"
)

// hostileCase is one archive nobody should accept. Lower layers, if any, are
// fine by themselves.
type hostileCase struct {
	name   string
	lower  []byte
	layer  []byte
	limits Limits
	says   []string // all of them are in the error
}

func hostileCases(t testing.TB) []hostileCase {
	one := func(h *tar.Header) []byte { return archive(t, h) }
	raw := func(edit func(block []byte)) []byte {
		data := archive(t, file("victim", ""))
		edit(data[:512])
		checksum(data[:512])
		return data
	}
	deep := strings.Repeat("d/", 200) + "f"
	zeros := gzipped(t, archive(t, file("zeros", strings.Repeat("\x00", 8<<20))))
	return []hostileCase{
		{name: "dot-dot", layer: one(file("../x", "")), says: []string{`"../x"`, ".."}},
		{name: "dot-dot inside", layer: one(file("a/../../x", "")), says: []string{`"a/../../x"`}},
		{name: "dot-dot that stays inside", layer: one(file("a/../x", "")), says: []string{".."}},
		{name: "absolute", layer: one(file("/etc/cron.d/x", "")), says: []string{`"/etc/cron.d/x"`, "absolute"}},
		{name: "absolute directory", layer: one(dir("/")), says: []string{"absolute"}},
		{name: "root as a file", layer: one(file(".", "")), says: []string{"root"}},
		{name: "root as a symlink", layer: one(symlinkTo("./", "/etc")), says: []string{"root"}},
		{name: "hard link outside", layer: one(link("x", "../../etc/shadow")), says: []string{`"x"`, `"../../etc/shadow"`, "inside the image"}},
		{name: "hard link to an absolute path", layer: one(link("x", "/etc/shadow")), says: []string{`"/etc/shadow"`}},
		{name: "hard link to nothing", layer: one(link("x", "etc/shadow")), says: []string{"not in the image"}},
		{name: "hard link to a later file", layer: archive(t, link("x", "y"), file("y", "")), says: []string{"not in the image"}},
		{name: "hard link to itself", layer: one(link("x", "./x")), says: []string{"itself"}},
		{name: "hard link to a directory", layer: archive(t, dir("d"), link("x", "d")), says: []string{"directory"}},
		{name: "hard link through a symlink", layer: archive(t, dir("d"), file("d/f", ""), symlinkTo("s", "d"), link("x", "s/f")), says: []string{"not in the image"}},
		{name: "character device", layer: one(&tar.Header{Typeflag: tar.TypeChar, Name: "kmem", Devmajor: 1, Devminor: 2}), says: []string{`"kmem"`, "device"}},
		{name: "block device", layer: one(&tar.Header{Typeflag: tar.TypeBlock, Name: "etc/sda", Devmajor: 8}), says: []string{`"etc/sda"`, "device"}},
		{name: "fifo", layer: one(&tar.Header{Typeflag: tar.TypeFifo, Name: "pipe"}), says: []string{`"pipe"`, "named pipe"}},
		{name: "contiguous file", layer: one(&tar.Header{Typeflag: tar.TypeCont, Name: "c"}), says: []string{`"c"`, "unknown"}},
		{name: "old sparse file", layer: raw(func(b []byte) {
			b[156] = tar.TypeGNUSparse
			copy(b[257:], "ustar  \x00")
			copy(b[483:], "00000000000\x00") // its claimed size
		}), says: []string{"victim", "sparse"}},
		{name: "sparse file in extended headers", layer: sparse(t), says: []string{"sparse"}},
		{name: "unknown type", layer: raw(func(b []byte) { b[156] = 'Z' }), says: []string{"victim", "unknown"}},
		{name: "named twice", layer: archive(t, file("a/x", "1"), file("a/./x", "2")), says: []string{`"a/x"`, "twice"}},
		{name: "file, then symlink", layer: archive(t, file("x", "1"), symlinkTo("x", "y")), says: []string{"twice"}},
		{name: "directory, then symlink", layer: archive(t, dir("x"), symlinkTo("x", "/etc")), says: []string{"twice"}},
		{name: "through a symlink", layer: archive(t, symlinkTo("s", "/etc"), file("s/passwd", "")), says: []string{`"s/passwd"`, `"s"`, "never followed"}},
		{name: "through a deep symlink", layer: archive(t, symlinkTo("a/b/s", ".."), file("a/b/s/c/f", "")), says: []string{`"a/b/s"`, "never followed"}},
		{name: "through a file", layer: archive(t, file("f", ""), file("f/g", "")), says: []string{`"f/g"`, "file"}},
		{name: "through a lower layer's symlink", lower: archive(t, symlinkTo("s", "/etc")), layer: one(file("s/passwd", "")), says: []string{`"s"`, "not followed"}},
		{name: "below a whiteout", layer: one(file("a/.wh.b/c", "")), says: []string{"below a whiteout"}},
		{name: "whiteout of nothing", layer: one(file("a/.wh.", "")), says: []string{"whiteout"}},
		{name: "whiteout of the parent", layer: one(file("a/.wh...", "")), says: []string{"whiteout"}},
		{name: "whiteout of the directory", layer: one(file("a/.wh..", "")), says: []string{"whiteout"}},
		{name: "long name", layer: one(file("d/"+strings.Repeat("n", 256), "")), says: []string{"more than 255 bytes"}},
		{name: "long path", layer: one(file(strings.Repeat("0123456789/", 300)+"f", "")), says: []string{"more than 2048 bytes"}},
		{name: "deep path", layer: one(file(deep, "")), says: []string{"directories deep"}},
		{name: "long link target", layer: one(symlinkTo("l", strings.Repeat("t", 5000))), says: []string{`"l"`, "4095"}},
		{name: "empty link target", layer: one(symlinkTo("l", "")), says: []string{`"l"`, "nothing"}},
		{name: "odd owner", layer: one(&tar.Header{Typeflag: tar.TypeReg, Name: "x", Uid: 1 << 31}), says: []string{`"x"`, "owner"}},
		{name: "negative owner", layer: raw(func(b []byte) { copy(b[108:116], bytes.Repeat([]byte{0xff}, 8)) }), says: []string{"owner"}},
		{name: "too many entries", layer: archive(t, file("1", ""), file("2", ""), file("3", "")), limits: Limits{Entries: 2}, says: []string{`"3"`, "more than 2 entries"}},
		{name: "too many implied directories", layer: one(file("a/b/c/d", "")), limits: Limits{Entries: 3}, says: []string{"more than 3 entries"}},
		{name: "too large", layer: one(file("big", strings.Repeat("x", 5000))), limits: Limits{Bytes: 4096}, says: []string{`"big"`, "4096"}},
		{name: "decompression bomb", layer: zeros, limits: Limits{Bytes: 1 << 20}, says: []string{"zeros", "1048576"}},
		{name: "bomb after the archive's end", layer: gzipped(t, append(archive(t), make([]byte, 8<<20)...)), limits: Limits{Bytes: 1 << 20}, says: []string{"1048576"}},
		{name: "bomb of extended headers", layer: gzipped(t, endlessHeaders(t, 300)), limits: Limits{Bytes: 1 << 20}, says: []string{"1048576"}},
		{name: "names that fill the memory", layer: archive(t, symlinkTo("a", strings.Repeat("t", 600)), symlinkTo("b", strings.Repeat("t", 600))), limits: Limits{IndexBytes: 1000}, says: []string{`"b"`, "1000"}},
		{name: "truncated in a file", layer: one(file("f", strings.Repeat("x", 3000)))[:1000], says: []string{"truncated"}},
		{name: "truncated in a header", layer: archive(t, file("f", "x"), file("g", "y"))[:1100], says: []string{"truncated"}},
		{name: "truncated gzip", layer: gzipped(t, one(file("f", "x")))[:40], says: []string{"truncated"}},
		{name: "damaged gzip", layer: damaged(gzipped(t, one(file("f", "x"))), -8), says: []string{"damaged"}},
		{name: "damaged zstd", layer: damaged(zstded(t, one(file("f", "x"))), -4), says: []string{"damaged"}},
		{name: "no archive", layer: bytes.Repeat([]byte("no archive "), 100), says: []string{"no valid tar archive"}},
	}
}

func checksum(block []byte) {
	copy(block[148:156], "        ")
	sum := 0
	for _, b := range block {
		sum += int(b)
	}
	copy(block[148:156], []byte{'0' + byte(sum>>15&7), '0' + byte(sum>>12&7), '0' + byte(sum>>9&7), '0' + byte(sum>>6&7), '0' + byte(sum>>3&7), '0' + byte(sum&7), 0, ' '})
}

// sparse is a file of one byte that claims to have eight exbibytes. The
// writer refuses to make one, so another key of the same length is changed.
func sparse(t testing.TB) []byte {
	h := file("huge", "1\n0\n1\n"+strings.Repeat("\x00", 506)+"x")
	h.Format = tar.FormatPAX
	h.PAXRecords = map[string]string{
		"AGT.sparse.major": "1", "AGT.sparse.minor": "0", "AGT.sparse.name": "huge",
		"AGT.sparse.realsize": "9223372036854775807",
	}
	return bytes.ReplaceAll(archive(t, h), []byte("AGT.sparse"), []byte("GNU.sparse"))
}

// endlessHeaders are extended headers that describe one another and never an
// entry.
func endlessHeaders(t testing.TB, n int) []byte {
	h := file("f", "")
	h.Format = tar.FormatPAX
	h.PAXRecords = map[string]string{"AGENT.x": strings.Repeat("y", 4000)}
	data := archive(t, h)
	return bytes.Repeat(data[:512+4096], n)
}

// damaged flips bits from an offset on, which counts from the end if negative.
func damaged(data []byte, from int) []byte {
	data = bytes.Clone(data)
	if from < 0 {
		from += len(data)
	}
	for i := from; i < len(data); i++ {
		data[i] ^= 0x55
	}
	return data
}

func flatten(f *flattener, layer []byte) error {
	r, err := decompress(bytes.NewReader(layer))
	if err != nil {
		return err
	}
	defer r.Close()
	return f.add(context.Background(), "the layer", r)
}

func TestHostileLayersAreRefused(t *testing.T) {
	for _, c := range hostileCases(t) {
		t.Run(c.name, func(t *testing.T) {
			f := testFlattener(t, c.limits)
			if c.lower != nil {
				if err := flatten(f, c.lower); err != nil {
					t.Fatal(err)
				}
			}
			err := flatten(f, c.layer)
			if !fault.Is(err, fault.Invalid) {
				t.Fatalf("error: %v", err)
			}
			for _, s := range c.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q does not say %q", err, s)
				}
			}
			if len(err.Error()) > 2000 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}

func TestHostileArchivesLeaveNothing(t *testing.T) {
	requireReal(t)
	for _, c := range hostileCases(t) {
		if c.lower != nil {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			w := testWriter(t)
			_, err := ImportTar(t.Context(), w, bytes.NewReader(c.layer), Options{Name: "x", Limits: c.limits})
			if !fault.Is(err, fault.Invalid) {
				t.Errorf("error: %v", err)
			}
			assertEmpty(t, w)
		})
	}
}

func TestMaskedDirectoriesAreLeftOut(t *testing.T) {
	f := testFlattener(t, Limits{})
	err := flatten(f, archive(t,
		&tar.Header{Typeflag: tar.TypeChar, Name: "dev/null", Devmajor: 1, Devminor: 3},
		file("proc/version", "x"), file(".agentdock/guest", "x"), file("etc/x", "x")))
	if err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{"dev/null", "proc/version", ".agentdock/guest"} {
		if f.root.lookup(gone) != nil {
			t.Errorf("%s is in the image", gone)
		}
	}
	if f.root.lookup("etc/x") == nil {
		t.Error("etc/x is not")
	}
	if err := flatten(testFlattener(t, Limits{}), archive(t, file("dev/../../x", ""))); err == nil {
		t.Error("below a masked directory names are not checked")
	}
}

// failing is a reader that fails with its own error after some bytes.
type failing struct {
	data io.Reader
	err  error
}

func (f *failing) Read(p []byte) (int, error) {
	n, err := f.data.Read(p)
	if err == io.EOF {
		err = f.err
	}
	return n, err
}

func TestReadErrorIsNotBlamedOnTheArchive(t *testing.T) {
	broken := errors.New("connection reset")
	data := gzipped(t, archive(t, file("f", strings.Repeat("abc", 10000))))
	r, err := decompress(&failing{bytes.NewReader(data[:60]), broken})
	if err != nil {
		t.Fatal(err)
	}
	err = testFlattener(t, Limits{}).add(t.Context(), "the layer", r)
	if !errors.Is(err, broken) || fault.Is(err, fault.Invalid) {
		t.Errorf("error: %v", err)
	}
}
