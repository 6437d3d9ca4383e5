package image_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/agentdock/agentdock/internal/image"
)

// childEnv makes the test binary act as another process.
const childEnv = "AGENTDOCK_IMAGE_TEST_CHILD"

func TestMain(m *testing.M) {
	switch mode, dir, _ := strings.Cut(os.Getenv(childEnv), ":"); mode {
	case "":
		os.Exit(m.Run())
	case "stage": // hold a stage until killed
		w, err := image.OpenWriter(context.Background(), dir)
		if err != nil {
			panic(err)
		}
		s, err := w.Stage()
		if err != nil {
			panic(err)
		}
		if err := os.WriteFile(filepath.Join(s.Dir(), "half"), []byte("half"), 0o600); err != nil {
			panic(err)
		}
		fmt.Println(s.Dir())
		_, _ = io.Copy(io.Discard, os.Stdin)
	case "resolve": // as a user without write permission
		s, err := image.Open(dir)
		if err != nil {
			panic(err)
		}
		img, err := s.Resolve(image.Default)
		if err != nil {
			panic(err)
		}
		if _, err := os.ReadFile(img.Path); err != nil {
			panic(err)
		}
		fmt.Print(img.Digest)
	}
}

// child starts the test binary in another role.
func child(t *testing.T, mode, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{childEnv + "=" + mode + ":" + dir}
	cmd.Stderr = os.Stderr
	return cmd
}

func TestKilledWriterIsSweptAndLiveOneIsNot(t *testing.T) {
	dir := t.TempDir()
	cmd := child(t, "stage", dir)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var stage string
	if _, err := fmt.Fscan(stdout, &stage); err != nil {
		t.Fatal(err)
	}
	writer(t, dir)
	if _, err := os.Stat(filepath.Join(stage, "half")); err != nil {
		t.Errorf("the stage of a live writer was swept: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if _, err := os.Stat(stage); err != nil {
		t.Fatalf("the case proves nothing, the stage is gone already: %v", err)
	}
	orphan := filepath.Join(dir, "blobs/sha256", strings.Repeat("0", 64)+".erofs")
	if err := os.WriteFile(orphan, nil, 0o444); err != nil {
		t.Fatal(err)
	}
	writer(t, dir)
	if got := files(t, dir); len(got) != 0 {
		t.Errorf("left behind: %q", got)
	}
}

func requireRoot(t *testing.T, why string) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("AGENTDOCK_TEST_REQUIRE_REAL") == "1" {
		t.Fatalf("must not be skipped, but missing: root, %s", why)
	}
	t.Skipf("missing: root, %s", why)
}

// TestMountInStageIsNotWalkedInto: removing file by file goes on into what is
// mounted, which once was the host's own /proc.
func TestMountInStageIsNotWalkedInto(t *testing.T) {
	requireRoot(t, "to mount")
	dir := filepath.Join(t.TempDir(), "a store")
	w := writer(t, dir)
	s, err := w.Stage()
	if err != nil {
		t.Fatal(err)
	}
	point := filepath.Join(s.Dir(), "point")
	if err := os.Mkdir(point, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("none", point, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	precious := filepath.Join(point, "precious")
	if err := os.WriteFile(precious, nil, 0o600); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err == nil || !strings.Contains(err.Error(), "unmount it") {
		t.Errorf("closing: %v", err)
	}
	if _, err := image.OpenWriter(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "unmount it") {
		t.Errorf("sweeping: %v", err)
	}
	if _, err := os.Stat(precious); err != nil {
		t.Errorf("a file on the mounted file system is gone: %v", err)
	}
	if err := syscall.Unmount(point, 0); err != nil {
		t.Fatal(err)
	}
	writer(t, dir)
	if got := files(t, dir); len(got) != 0 {
		t.Errorf("left behind: %q", got)
	}
}

func TestReaderNeedsNoWritePermission(t *testing.T) {
	requireRoot(t, "to become another user")
	dir := t.TempDir()
	img := add(t, writer(t, dir), image.Default, "x")
	exe, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	public := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir), public, filepath.Dir(public)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := child(t, "resolve", dir)
	cmd.Path = filepath.Join(public, "reader")
	if err := os.WriteFile(cmd.Path, exe, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.Output()
	if err != nil || string(out) != img.Digest {
		t.Errorf("%q, %v", out, err)
	}
}
