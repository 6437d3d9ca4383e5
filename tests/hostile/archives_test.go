package hostile

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/agentdock/agentdock/internal/artifact"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
)

// arrives puts an archive into "in" below the workspace and wants an error of
// one of these codes, and nothing beside that directory.
func arrives(entries []entry, codes ...fault.Code) func(*world) {
	return func(w *world) { w.arrives(archive(w.T, entries...), codes...) }
}

// raw is arrives for bytes that no writer of archives would write.
func raw(data func() []byte, codes ...fault.Code) func(*world) {
	return func(w *world) { w.arrives(data(), codes...) }
}

func (w *world) arrives(data []byte, codes ...fault.Code) {
	w.Helper()
	err := w.box.PutArchive(w.ctx(), "in", bytes.NewReader(data))
	if len(codes) == 0 && err != nil {
		w.Errorf("PutArchive: %v", err)
	}
	ok := len(codes) == 0
	for _, c := range codes {
		ok = ok || fault.Is(err, c)
	}
	if !ok {
		w.Errorf("PutArchive gives %v (code %q), want %q", err, fault.CodeOf(err), codes)
	}
	for _, name := range []string{"/workspace/escaped", "/tmp/escaped", "/escaped"} {
		w.holds(name, w.try(w.box, "read", name), blocked("ENOENT"))
	}
	w.holds("the sandbox afterwards", w.try(w.box, "print", "usable"), exited(0))
}

// believed is the control: a careless reader of the same archive, on the host,
// writes outside of its directory.
func believed(entries ...entry) control {
	return shown("a careless reader of the host writes outside", func(b *bench) {
		name := filepath.Join(b.dir, "archive.tar")
		if err := os.WriteFile(name, archive(b, entries...), 0o644); err != nil {
			b.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(b.dir, "in"), 0o755); err != nil {
			b.Fatal(err)
		}
		// As root of its own mount namespace, with a /tmp of its own.
		b.through(b.root(), do("with-own-tmp", "unpack", "archive.tar", "in", "then-read", "/tmp/escaped", filepath.Join(b.dir, "escaped")))
	})
}

// The archives of the cases below.
var (
	absolute     = []entry{regular("/tmp/escaped", 0o644, "escaped")}
	climbing     = []entry{regular("../escaped", 0o644, "escaped")}
	climbingLate = []entry{regular("a/b/../../../escaped", 0o644, "escaped")}
	throughLink  = []entry{link(tar.TypeSymlink, "out", "/tmp"), regular("out/escaped", 0o644, "escaped")}
	throughUp    = []entry{link(tar.TypeSymlink, "up", ".."), regular("up/escaped", 0o644, "escaped")}
	hardOutside  = []entry{link(tar.TypeLink, "helper", "/.agentdock/agentdock-guest")}
	hardClimbing = []entry{link(tar.TypeLink, "stolen", "../.attack")}
	aDevice      = []entry{{tar.Header{Typeflag: tar.TypeChar, Name: "null", Mode: 0o666, Devmajor: 1, Devminor: 3}, ""}}
	aBlock       = []entry{{tar.Header{Typeflag: tar.TypeBlock, Name: "disk", Mode: 0o666, Devmajor: 8}, ""}}
	aFIFO        = []entry{{tar.Header{Typeflag: tar.TypeFifo, Name: "fifo", Mode: 0o666}, ""}}
)

func big(size int64) func() []byte {
	return func() []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "big", Mode: 0o644, Size: size})
		_, _ = io.CopyN(w, zeros{}, size)
		_ = w.Close()
		return b.Bytes()
	}
}

// zeros is an endless reader.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func manyFiles() []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := range 5000 {
		_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: strings.Repeat("f", 1+i%200) + "-" + newID(), Mode: 0o644})
	}
	_ = w.Close()
	return b.Bytes()
}

// paxed hides a path in an extended header.
func paxed() []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "../" + strings.Repeat("é", 90) + "/../escaped", Mode: 0o644, Format: tar.FormatPAX})
	_ = w.Close()
	return b.Bytes()
}

// longLink is a GNU name record that claims to be larger than any name.
func longLink() []byte {
	header := make([]byte, 512)
	copy(header, "././@LongLink")
	copy(header[100:], "0000644\x00")
	copy(header[124:], "77777777777\x00")
	header[156] = 'L'
	copy(header[257:], "ustar  \x00")
	copy(header[148:], "        ")
	var sum int
	for _, c := range header {
		sum += int(c)
	}
	copy(header[148:], []byte{byte('0' + sum>>15&7), byte('0' + sum>>12&7), byte('0' + sum>>9&7), byte('0' + sum>>6&7), byte('0' + sum>>3&7), byte('0' + sum&7), 0, ' '})
	return append(header, make([]byte, 4<<20)...)
}

var archiveInCases = []attack{
	{what: "absolute_name", run: arrives(absolute, fault.Invalid), bites: believed(absolute...)},
	{what: "climbing_name", run: arrives(climbing, fault.Invalid), bites: believed(climbing...)},
	{what: "climbing_late", run: arrives(climbingLate, fault.Invalid), bites: believed(append([]entry{{tar.Header{Typeflag: tar.TypeDir, Name: "a/b", Mode: 0o755}, ""}}, climbingLate...)...)},
	{what: "through_a_symlink", run: arrives(throughLink, fault.Invalid), bites: believed(throughLink...)},
	{what: "through_a_symlink_up", run: arrives(throughUp, fault.Invalid), bites: believed(throughUp...)},
	{what: "hard_link_outside", run: arrives(hardOutside, fault.Invalid)},
	{what: "hard_link_climbing", run: arrives(hardClimbing, fault.Invalid)},
	{what: "character_device", run: arrives(aDevice, fault.Invalid), bites: shown("root of the host makes the device", func(b *bench) {
		if err := os.WriteFile(filepath.Join(b.dir, "archive.tar"), archive(b, aDevice...), 0o644); err != nil {
			b.Fatal(err)
		}
		b.through(b.root(), do("unpack", "archive.tar", "."))
	})},
	{what: "block_device", run: arrives(aBlock, fault.Invalid)},
	{what: "fifo", run: arrives(aFIFO, fault.Invalid)},
	{what: "over_an_existing_link", run: func(w *world) {
		w.holds("a link", w.try(w.box, "mkdir", "in"), either(want(exited(0)), want(blocked("EEXIST"))))
		w.holds("a link", w.try(w.box, "symlink", "/tmp", "in/existing"), exited(0))
		w.arrives(archive(w.T, regular("existing/escaped", 0o644, "escaped")), fault.Invalid)
	}},
	{what: "over_an_existing_link_to_a_file", run: func(w *world) {
		w.holds("a link", w.try(w.box, "symlink", "/tmp/escaped", "in/file"), exited(0))
		w.arrives(archive(w.T, regular("file", 0o644, "escaped")))
	}},
	{what: "too_big", own: roomy, run: raw(big(100<<20), fault.Exhausted)},
	{what: "too_many_files", own: same, run: raw(manyFiles, fault.Exhausted)},
	{what: "garbage", run: raw(func() []byte { return bytes.Repeat([]byte("garbage "), 4096) }, fault.Invalid)},
	{what: "cut", run: raw(func() []byte { return big(1 << 20)()[:1<<19] }, fault.Invalid)},
	{what: "hidden_in_extended_header", run: raw(paxed, fault.Invalid)},
	{what: "endless_name", run: raw(longLink, fault.Invalid)},
	{what: "name_with_newline", run: arrives([]entry{regular("new\nline", 0o644, "x")})},
	{what: "races_the_unpacker", run: racesUnpacker},
}

// racesUnpacker swaps a directory for a link while archives go there.
func racesUnpacker(w *world) {
	p := w.start(w.box, nil, "swap", "in/race", "/tmp")
	defer p.kill()
	p.await("ready")
	for range 15 {
		// It may fail in many ways; what counts is where the file is.
		_ = w.put(w.box, "in", regular("race/escaped", 0o644, "escaped"))
	}
	w.holds("outside", w.try(w.box, "read", "/tmp/escaped"), blocked("ENOENT"))
}

// leaves prepares a sandbox, takes an archive out of it and collects it as the
// command line does. Nothing may be outside of the directory.
func leaves(checkFiles func(w *world, dir string, err error), prepare ...[]string) func(*world) {
	return func(w *world) {
		for _, words := range prepare {
			w.holds(strings.Join(words, " "), w.try(w.box, words...), exited(0))
		}
		dir, err := w.collect("")
		checkFiles(w, dir, err)
	}
}

func (w *world) collect(from string) (dir string, err error) {
	w.Helper()
	dir = filepath.Join(w.TempDir(), "out")
	if err := os.Mkdir(dir, 0o755); err != nil {
		w.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		w.Fatal(err)
	}
	defer root.Close()
	r, to := io.Pipe()
	go func() {
		to.CloseWithError(w.box.GetArchive(w.ctx(), execenv.ArchiveRequest{Dir: from, MaxBytes: 64 << 20}, to))
	}()
	_, err = artifact.Collect(r, root, nil, artifact.DefaultLimits())
	_ = r.CloseWithError(errors.New("collected"))
	w.safe(dir)
	return dir, err
}

// safe wants plain files and directories only, and nothing beside the directory.
func (w *world) safe(dir string) {
	w.Helper()
	beside, err := os.ReadDir(filepath.Dir(dir))
	if err != nil || len(beside) != 1 {
		w.Errorf("beside the directory there is %v, %v", beside, err)
	}
	_ = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			w.Error(err)
			return nil
		}
		info, err := d.Info()
		if err != nil || (!d.IsDir() && !info.Mode().IsRegular()) || info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
			w.Errorf("%s is %v, %v", name, info.Mode(), err)
		}
		if d.Name() == ".attack" {
			return nil
		}
		if data, err := os.ReadFile(name); err == nil {
			noCanaryIn(w, "a collected file", string(data))
			if strings.Contains(string(data), "root:") {
				w.Errorf("%s is a file of the host", name)
			}
		}
		return nil
	})
}

func anything(*world, string, error) {}

// without wants that what was prepared did not come along.
func without(name string) func(*world, string, error) {
	return func(w *world, dir string, err error) {
		if err != nil {
			w.Errorf("the archive: %v", err)
		}
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			w.Errorf("%s came out", name)
		}
	}
}

// careless is the control for what comes out.
func careless(entries ...entry) control { return believed(entries...) }

var archiveOutCases = []attack{
	{what: "symlink_to_a_host_file", own: same, run: leaves(without("passwd"), do("symlink", "/etc/passwd", "passwd")), bites: careless(link(tar.TypeSymlink, "passwd", "/tmp"), regular("passwd/escaped", 0o644, "escaped"))},
	{what: "symlink_to_the_root", own: same, run: leaves(without("root"), do("symlink", "/", "root"))},
	{what: "symlink_climbing", own: same, run: leaves(without("up"), do("symlink", "../../../..", "up"))},
	{what: "fifo", own: same, run: leaves(without("fifo"), do("fifo", "fifo"))},
	{what: "setuid_file", own: same, run: leaves(func(w *world, dir string, err error) {
		if err != nil {
			w.Errorf("the archive: %v", err)
		}
	}, do("create", "tool"), do("chmod", "tool"))},
	{what: "hard_links", own: same, run: leaves(anything, do("mkdir", "many"), do("hard-links", "many", "100"))},
	{what: "huge_sparse_file", own: same, run: leaves(func(w *world, _ string, err error) {
		if !fault.Is(err, fault.Exhausted) {
			w.Errorf("a sparse file of a terabyte gives %v", err)
		}
	}, do("truncate", "sparse", "1000000000000"))},
	{what: "deep_directories", own: same, run: leaves(anything, do("deep", ".", "300"))},
	{what: "many_files", own: same, run: leaves(anything, do("inodes", ".", "1500"))},
	{what: "odd_names", own: same, run: leaves(anything, do("create", "new\nline"), do("create", "\x1b[2J"), do("create", "back\\slash"), do("create", "..."), do("create", "-rf"))},
	{what: "swapped_directory", own: same, run: whileRunning("swap", "race", "/etc")},
	{what: "churned_file", own: same, run: whileRunning("churn", "churned")},
	{what: "killed_helper", own: same, run: whileRunning("kill-helpers")},
	{what: "forged_climbing_entry", own: same, run: forged("../escaped")},
	{what: "forged_absolute_entry", own: same, run: forged("/tmp/escaped-from-sandbox")},
	{what: "more_than_asked", own: same, run: func(w *world) {
		w.holds("fill", w.try(w.box, "fill", "big", "20000000"), exited(0))
		err := w.box.GetArchive(w.ctx(), execenv.ArchiveRequest{MaxBytes: 1 << 20}, io.Discard)
		if !fault.Is(err, fault.Exhausted) {
			w.Errorf("more than was asked for gives %v", err)
		}
	}},
	{what: "directory_is_a_link", own: same, run: func(w *world) {
		w.holds("a link", w.try(w.box, "symlink", "/", "dir"), exited(0))
		var out bytes.Buffer
		if err := w.box.GetArchive(w.ctx(), execenv.ArchiveRequest{Dir: "dir/.agentdock"}, &out); err == nil && strings.Contains(out.String(), "agentdock-guest") {
			w.Error("a directory outside of the workspace came out")
		}
	}},
}

// whileRunning collects again and again while a program is at work.
func whileRunning(words ...string) func(*world) {
	return func(w *world) {
		p := w.start(w.box, nil, words...)
		p.await("ready")
		for range 8 {
			_, _ = w.collect("") // errors are fair; what is written is not
		}
		p.kill()
		w.holds("afterwards", w.try(w.box, "print", "usable"), exited(0))
		if dir, err := w.collect(""); err != nil {
			w.Errorf("afterwards: %v (%s)", err, dir)
		}
	}
}

// forged writes an entry of its own into the helper's output.
func forged(name string) func(*world) {
	return func(w *world) {
		w.holds("work for the helper", w.try(w.box, "inodes", ".", "1500"), exited(0))
		p := w.start(w.box, func(e *execenv.ExecSpec) { e.Timeout = 20 * time.Second }, "forge", name)
		p.await("ready")
		ended := make(chan struct{})
		var r ran
		go func() { defer close(ended); r = p.finish() }()
		for {
			_, _ = w.collect("")
			if _, err := os.Lstat("/tmp/escaped-from-sandbox"); err == nil {
				w.Error("an entry was written outside")
			}
			select {
			case <-ended:
				w.Logf("the forger: %v, %s", r.Outcome, clip(r.stdout))
				return
			default:
			}
		}
	}
}

// killHelpers shoots at the service's helpers of the same user.
func killHelpers(w *world) {
	p := w.start(w.box, nil, "kill-helpers")
	p.await("ready")
	for range 20 {
		_ = w.put(w.box, "", regular("put", 0o644, "x"))
		_ = w.box.GetArchive(w.ctx(), execenv.ArchiveRequest{}, io.Discard)
	}
	p.kill()
	if err := w.put(w.box, "", regular("put", 0o644, "x")); err != nil {
		w.Errorf("afterwards: %v", err)
	}
	if u, err := w.box.Usage(w.ctx()); err != nil || u.PIDs > 20 {
		w.Errorf("afterwards Usage gives %+v, %v", u, err)
	}
}
