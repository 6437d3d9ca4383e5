package backing

import (
	"math"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/testenv"
)

const mib = int64(1) << 20

func open(t *testing.T, cfg Config) *Store {
	t.Helper()
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func take(t *testing.T, s *Store, bytes int64) *File {
	t.Helper()
	f, err := s.Take(bytes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func hold(t *testing.T, f *File) {
	t.Helper()
	if err := f.Hold(); err != nil {
		t.Fatal(err)
	}
}

func refused(t *testing.T, s *Store, bytes int64, word string) {
	t.Helper()
	f, err := s.Take(bytes)
	if !fault.Is(err, fault.Exhausted) || !strings.Contains(err.Error(), word) {
		t.Errorf("Take(%d) gives %v, want Exhausted that says %q", bytes, err, word)
	}
	if f != nil {
		_ = f.Close()
	}
}

func TestRoomIsSetAsideAndGivenBack(t *testing.T) {
	dir := testenv.SmallDisk(t, 128*mib)
	s := open(t, Config{Dir: dir, KeepFree: 8 * mib})
	before := testenv.Free(t, dir)

	a := take(t, s, 64*mib)
	// Promised, though nothing of it is there yet.
	refused(t, s, before-64*mib-4*mib, "are for sandboxes that are starting")
	hold(t, a)
	if free := testenv.Free(t, dir); free > before-64*mib {
		t.Errorf("%d bytes are free after 64 MiB of %d were set aside", free, before)
	}
	refused(t, s, testenv.Free(t, dir)-4*mib, "kept free")
	b := take(t, s, testenv.Free(t, dir)-12*mib)
	hold(t, b)
	for _, f := range []*File{a, b} {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if free := testenv.Free(t, dir); free != before {
		t.Errorf("%d bytes are free afterwards, were %d", free, before)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 { // lost+found
		t.Errorf("the directory holds %v, %v", names, err)
	}
}

// Whoever waits for room must not wait for what can never come.
func TestWhatCanNeverFitIsNotToldToWait(t *testing.T) {
	dir := testenv.SmallDisk(t, 128*mib)
	for name, c := range map[string]struct {
		cfg   Config
		bytes int64
		word  string
	}{
		"more than the disk":                      {Config{Dir: dir}, 129 * mib, "in all"},
		"more than the disk without what is kept": {Config{Dir: dir, KeepFree: 64 * mib}, 96 * mib, "kept free"},
		"more than all may have together":         {Config{Dir: dir, Total: 32 * mib}, 33 * mib, "limit for all workspaces"},
		"more than can be counted":                {Config{Dir: dir}, math.MaxInt64, "in all"},
	} {
		f, err := open(t, c.cfg).Take(c.bytes)
		if !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), c.word) {
			t.Errorf("%s: Take gives %v, want Unsupported that says %q", name, err, c.word)
		}
		if f != nil {
			_ = f.Close()
		}
	}
}

func TestSomebodyElseTakesTheRoom(t *testing.T) {
	dir := testenv.SmallDisk(t, 64*mib)
	s := open(t, Config{Dir: dir})
	f := take(t, s, 32*mib)
	other, err := os.Create(dir + "/other")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := unix.Fallocate(int(other.Fd()), 0, 0, 40*mib); err != nil {
		t.Fatal(err)
	}
	if err := f.Hold(); !fault.Is(err, fault.Exhausted) {
		t.Errorf("Hold without room gives %v", err)
	}
}

func TestTotalBoundsAllTogether(t *testing.T) {
	s := open(t, Config{Dir: testenv.SmallDisk(t, 128*mib), Total: 48 * mib})
	f := take(t, s, 32*mib)
	refused(t, s, 32*mib, "limit of 50331648")
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	take(t, s, 32*mib)
}

func TestOverdrawn(t *testing.T) {
	dir := testenv.SmallDisk(t, 512*mib)
	s := open(t, Config{Dir: dir, KeepFree: 64 * mib})
	f := take(t, s, 32*mib)
	hold(t, f)
	grow := func(to int64) {
		t.Helper()
		if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, to); err != nil {
			t.Fatal(err)
		}
	}
	says := func(want string) {
		t.Helper()
		if got := f.Overdrawn(); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("Overdrawn is %q, want %q", got, want)
		}
	}
	says("")
	grow(96 * mib)
	says("") // the host has room
	other, err := os.Create(dir + "/other")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := unix.Fallocate(int(other.Fd()), 0, 0, testenv.Free(t, dir)-16*mib); err != nil {
		t.Fatal(err)
	}
	says("are free")
	if err := other.Truncate(0); err != nil {
		t.Fatal(err)
	}
	says("")
	grow(32*mib + f.mostSlack() + 8*mib)
	says("set aside for it")
}

func TestPlacesThatCannotHoldFiles(t *testing.T) {
	testenv.RequireRoot(t)
	mounted := func(kind, source, data string, flags uintptr) string {
		dir := t.TempDir()
		if err := unix.Mount(source, dir, kind, flags, data); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
		return dir
	}
	for word, dir := range map[string]string{
		"in memory": mounted("tmpfs", "tmpfs", "size=1m", 0),
		"not a directory": func() string {
			file := t.TempDir() + "/file"
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return file
		}(),
		"without a name": mounted("proc", "proc", "", 0),
	} {
		if _, err := Open(Config{Dir: dir}); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("Open gives %v, want an error that says %q", err, word)
		}
	}
	noexec := testenv.SmallDisk(t, 16*mib)
	if err := unix.Mount("", noexec, "", unix.MS_REMOUNT|unix.MS_NOEXEC, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Dir: noexec}); err == nil || !strings.Contains(err.Error(), "noexec") {
		t.Errorf("Open of a directory mounted noexec gives %v", err)
	}
}
