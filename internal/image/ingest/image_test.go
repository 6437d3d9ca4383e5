package ingest

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/image"
)

// rootfs is a small root file system with something of everything.
func rootfs(t testing.TB) []byte {
	special := file("usr/bin/special", "#!\n")
	special.Mode, special.Uid, special.Gid = 0o6750, 1234, 70000
	special.PAXRecords = map[string]string{"SCHILY.xattr.security.capability": "\x01\x00\x00\x02"}
	sticky := dir("var/drop")
	sticky.Mode = 0o3777
	tmp := dir("tmp")
	tmp.Mode, tmp.Uid = 0o700, 7
	return archive(t,
		dir("./"), dir("usr"), special, sticky, tmp,
		file("usr/bin/bash", "x"), symlinkTo("bin", "usr/bin"),
		link("usr/bin/same", "usr/bin/special"), link("same", "usr/bin/special"),
		symlinkTo("out", "/etc/shadow"), symlinkTo("up", "../../../../etc/shadow"),
		file("etc/passwd", "root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1::/:/bin/false"),
		symlinkTo("etc/group", "/etc/group-elsewhere"),
		symlinkTo("etc/resolv.conf", "../run/resolv.conf"),
		file("etc/hostname", "build-host"), file("etc/hosts", "10.0.0.1 build-host"),
		file("workspace/left-over", "x"), symlinkTo("home", "/workspace"),
		&tar.Header{Typeflag: tar.TypeChar, Name: "dev/null", Devmajor: 1, Devminor: 3},
	)
}

func importRoot(t testing.TB, w *image.Writer, data []byte) image.Image {
	t.Helper()
	img, err := ImportTar(t.Context(), w, bytes.NewReader(data), Options{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func TestImageAsMounted(t *testing.T) {
	requireReal(t)
	w := testWriter(t)
	img := importRoot(t, w, rootfs(t))
	root := mounted(t, img)
	stat := func(path string) (os.FileInfo, *syscall.Stat_t) {
		t.Helper()
		info, err := os.Lstat(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		return info, info.Sys().(*syscall.Stat_t)
	}
	for path, want := range map[string]string{
		"":                "drwxr-xr-x 0:0",
		"usr/bin/special": "-rwxr-x--- 1234:70000", // no set-user-ID any more
		"usr/bin":         "drwxr-xr-x 0:0",
		"var/drop":        "dtrwxrwxrwx 0:0", // sticky stays, set-group-ID does not
		"tmp":             "dtrwxrwxrwx 0:0",
		"workspace":       "drwxr-xr-x 0:0",
		"home":            "drwxr-xr-x 0:0",
		"run":             "drwxr-xr-x 0:0",
		"proc":            "drwxr-xr-x 0:0",
		"sys":             "drwxr-xr-x 0:0",
		"dev":             "drwxr-xr-x 0:0",
		".agentdock":      "drwxr-xr-x 0:0",
		"etc/passwd":      "-rw-r--r-- 0:0",
		"etc/group":       "-rw-r--r-- 0:0",
		"etc/resolv.conf": "-rw-r--r-- 0:0",
		"out":             "Lrwxrwxrwx 0:0",
	} {
		info, sys := stat(path)
		if got := fmt.Sprintf("%v %d:%d", info.Mode(), sys.Uid, sys.Gid); got != want {
			t.Errorf("/%s is %s, want %s", path, got, want)
		}
	}
	for path, want := range map[string]string{
		"usr/bin/special": "#!\n",
		"same":            "#!\n",
		"bin/same":        "#!\n",
		"etc/passwd": "root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1::/:/bin/false\n" +
			"agent:x:10001:10001:AgentDock sandbox user:/workspace:/bin/bash\n",
		"etc/group":       "root:x:0:\nagent:x:10001:\n",
		"etc/resolv.conf": "",
		"etc/hostname":    "sandbox\n",
	} {
		if got := content(t, filepath.Join(root, path)); got != want {
			t.Errorf("/%s holds %q, want %q", path, got, want)
		}
	}
	if strings.Contains(content(t, filepath.Join(root, "etc/hosts")), "build-host") {
		t.Error("/etc/hosts tells of the machine the image was made on")
	}
	for path, want := range map[string]string{"out": "/etc/shadow", "up": "../../../../etc/shadow", "bin": "usr/bin"} {
		if got, err := os.Readlink(filepath.Join(root, path)); err != nil || got != want {
			t.Errorf("/%s leads to %q, %v", path, got, err)
		}
	}
	_, sys := stat("usr/bin/special")
	if _, other := stat("same"); other.Ino != sys.Ino || sys.Nlink != 3 {
		t.Errorf("hard links: inodes %d and %d, %d links", sys.Ino, other.Ino, sys.Nlink)
	}
	if info, _ := stat("var/drop"); !info.ModTime().Equal(time.Unix(0, 0)) {
		t.Errorf("time of an entry without one: %v", info.ModTime())
	}
	if info, _ := stat("usr/bin/bash"); !info.ModTime().Equal(time.Unix(1e9, 0)) {
		t.Errorf("time of a file: %v", info.ModTime())
	}
	if n, err := syscall.Getxattr(filepath.Join(root, "usr/bin/special"), "security.capability", make([]byte, 64)); err == nil {
		t.Errorf("a file capability of %d bytes is in the image", n)
	}
	if entries, err := os.ReadDir(filepath.Join(root, "dev")); err != nil || len(entries) != 0 {
		t.Errorf("/dev holds %v, %v", entries, err)
	}
	if got := content(t, filepath.Join(root, "workspace/left-over")); got != "x" {
		t.Errorf("contents of a mount point: %q", got)
	}
}

// TestNoContentsAreInlined: the sandbox kernel cannot map inlined contents,
// and a small program would fail to start there, but not on the host.
func TestNoContentsAreInlined(t *testing.T) {
	requireReal(t)
	dump, err := exec.LookPath("dump.erofs")
	if err != nil {
		skipFor(t, "dump.erofs (package erofs-utils)")
	}
	img := importRoot(t, testWriter(t), rootfs(t))
	out, err := exec.Command(dump, "--path=/usr/bin/bash", img.Path).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "Layout: 0 ") { // 0 is flat and plain, 2 is inlined
		t.Errorf("%v\n%s", err, out)
	}
}

func TestSameInputSameDigest(t *testing.T) {
	requireReal(t)
	data := rootfs(t)
	first := importRoot(t, testWriter(t), data)
	for name, again := range map[string][]byte{"plain": data, "gzip": gzipped(t, data), "zstd": zstded(t, data)} {
		if img := importRoot(t, testWriter(t), again); img.Digest != first.Digest {
			t.Errorf("%s: %s, then %s", name, first.Digest, img.Digest)
		}
	}
}

func TestConcurrentImports(t *testing.T) {
	requireReal(t)
	first := testWriter(t)
	second, err := image.OpenWriter(t.Context(), first.Dir())
	if err != nil {
		t.Fatal(err)
	}
	data := rootfs(t)
	var wg sync.WaitGroup
	for i, w := range []*image.Writer{first, second, first, second} {
		wg.Go(func() {
			_, err := ImportTar(t.Context(), w, bytes.NewReader(data), Options{Name: fmt.Sprintf("image-%d", i%2)})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	images, err := first.List()
	if err != nil || len(images) != 2 || images[0].Digest != images[1].Digest {
		t.Errorf("%+v, %v", images, err)
	}
	if err := first.Verify(t.Context(), images[0]); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"image-0", "image-1"} {
		if err := first.Remove(t.Context(), name); err != nil {
			t.Error(err)
		}
	}
	if err := os.Remove(filepath.Join(first.Dir(), "index.json")); err != nil {
		t.Error(err)
	}
	assertEmpty(t, first)
}

// cancelling is an archive that cancels its own import half-way.
type cancelling struct {
	data   *bytes.Reader
	cancel context.CancelFunc
}

func (c *cancelling) Read(p []byte) (int, error) {
	if c.data.Len() < int(c.data.Size())/2 {
		c.cancel()
	}
	return c.data.Read(p[:min(len(p), 512)])
}

func TestCancelledImportLeavesNothing(t *testing.T) {
	requireReal(t)
	w := testWriter(t)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := ImportTar(ctx, w, &cancelling{bytes.NewReader(rootfs(t)), cancel}, Options{Name: "x"})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error: %v", err)
	}
	assertEmpty(t, w)
}

// fakeMkfs puts a shell script in mkfs.erofs's place.
func fakeMkfs(t *testing.T, script string) {
	t.Helper()
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "mkfs.erofs"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
}

func TestCancelKillsMkfs(t *testing.T) {
	requireReal(t)
	started := filepath.Join(t.TempDir(), "started")
	fakeMkfs(t, "exec 3>"+started+"; trap '' TERM INT; echo >&3; exec sleep 600")
	w := testWriter(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			if data, _ := os.ReadFile(started); len(data) > 0 {
				cancel()
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	_, err := ImportTar(ctx, w, bytes.NewReader(rootfs(t)), Options{Name: "x"})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error: %v", err)
	}
	assertEmpty(t, w)
}

func TestMkfsComplaintIsShown(t *testing.T) {
	requireReal(t)
	t.Setenv("AGENTDOCK_SECRET_TEST", "leak")
	fakeMkfs(t, `echo "the disk is on fire ${AGENTDOCK_SECRET_TEST-and unset}" >&2; exit 3`)
	w := testWriter(t)
	_, err := ImportTar(t.Context(), w, bytes.NewReader(rootfs(t)), Options{Name: "x"})
	if err == nil || !strings.Contains(err.Error(), "the disk is on fire and unset") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("error: %v", err)
	}
	assertEmpty(t, w)
}

func TestMissingMkfsSaysWhatToInstall(t *testing.T) {
	requireReal(t)
	t.Setenv("PATH", t.TempDir())
	w := testWriter(t)
	_, err := ImportTar(t.Context(), w, bytes.NewReader(rootfs(t)), Options{Name: "x"})
	if !fault.Is(err, fault.Unsupported) || !strings.Contains(fault.Public(err), "apt-get install erofs-utils") {
		t.Errorf("error: %v", err)
	}
	assertEmpty(t, w)
}

func TestAccounts(t *testing.T) {
	const format = "%s:x:10001:10001::/workspace:/bin/sh"
	for old, want := range map[string]string{
		"":                             "root:x:0:0:root:/root:/bin/sh\nagent:x:10001:10001::/workspace:/bin/sh\n",
		"root:x:0:0::/:/bin/sh":        "root:x:0:0::/:/bin/sh\nagent:x:10001:10001::/workspace:/bin/sh\n",
		"me:x:10001:5::/:/bin/sh\n":    "me:x:10001:5::/:/bin/sh\n",
		"agent:x:5:5::/:/bin/sh\n":     "agent:x:5:5::/:/bin/sh\nagentdock:x:10001:10001::/workspace:/bin/sh\n",
		"10001:x:3:10001::/:/bin/sh\n": "10001:x:3:10001::/:/bin/sh\nagent:x:10001:10001::/workspace:/bin/sh\n",
	} {
		if got := string(withEntry([]byte(old), format)); got != want {
			t.Errorf("%q became %q, want %q", old, got, want)
		}
	}
}

func TestHugeAccountFileIsRefused(t *testing.T) {
	f := testFlattener(t, Limits{})
	if err := flatten(f, archive(t, file("etc/passwd", strings.Repeat("x", maxAccountBytes+1)))); err != nil {
		t.Fatal(err)
	}
	if err := furnish(f.root, f.spool); !fault.Is(err, fault.Invalid) {
		t.Errorf("error: %v", err)
	}
}
