package testenv

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// SmallDisk mounts an ext4 file system of that size, which the test has for
// itself: it can fill it, and see what of it is used.
func SmallDisk(t testing.TB, bytes int64) (dir string) {
	t.Helper()
	RequireRoot(t)
	image := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, bytes); err != nil {
		t.Fatal(err)
	}
	dir = image + ".mounted"
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, argv := range [][]string{
		{"mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", image},
		{"mount", "-o", "loop", image, dir},
	} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("cannot make a small disk: %v: %v: %s", argv, err, out)
		}
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("the small disk is still in use: %v: %s", err, out)
			_ = unix.Unmount(dir, unix.MNT_DETACH)
		}
	})
	return dir
}

// Free is how many bytes the file system of a directory has free.
func Free(t testing.TB, dir string) int64 {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Bavail) * st.Frsize
}
