package dir

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/blob/blobtest"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/testenv"
)

func TestContract(t *testing.T) {
	h := blobtest.Harness{New: func(t *testing.T) blobtest.Storage { return storage(t, filepath.Join(t.TempDir(), "root")) }}
	if os.Geteuid() == 0 {
		h.NewSmall = func(t *testing.T) blobtest.Storage { return storage(t, filepath.Join(smallDisk(t), "root")) }
	}
	blobtest.Run(t, h)
	t.Run("full disk", func(t *testing.T) { testenv.RequireRoot(t) })
}

// storage is a store, which is away while its directory has another name.
func storage(t *testing.T, root string) blobtest.Storage {
	t.Helper()
	s, err := New(root)
	if err != nil {
		t.Fatal(err)
	}
	return blobtest.Storage{
		Store: s,
		Files: func(t *testing.T) []string {
			var names []string
			err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
				rel, _ := filepath.Rel(root, path)
				if rel != "." && rel != blobsDir && rel != tempDir {
					names = append(names, rel)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			return names
		},
		Away: func(t *testing.T) func() {
			if err := os.Rename(root, root+".away"); err != nil {
				t.Fatal(err)
			}
			// What is there instead is an empty mount point.
			if err := os.Mkdir(root, 0o700); err != nil {
				t.Fatal(err)
			}
			return func() {
				if err := os.Remove(root); err != nil {
					t.Errorf("the storage was away, and something was written: %v", err)
				}
				if err := os.Rename(root+".away", root); err != nil {
					t.Fatal(err)
				}
			}
		},
	}
}

// smallDisk mounts a file system with half the room that blobtest fills.
func smallDisk(t *testing.T) string {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestLinksAreNotFollowed: nobody but us writes there, and if somebody did, it
// would not lead anywhere.
func TestLinksAreNotFollowed(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(dir, "outside")
	if err := os.MkdirAll(outside, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(outside+"/file", []byte("not a blob"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := storage(t, dir+"/root")
	for name, to := range map[string]string{"jobs,": outside, "link": outside + "/file"} {
		if err := os.Symlink(to, dir+"/root/blobs/"+name); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"jobs/file", "link"} {
		if _, _, err := s.Open(t.Context(), key); err == nil {
			t.Errorf("open of %s went through a link", key)
		}
	}
	if _, err := s.Put(t.Context(), "jobs/new", strings.NewReader("x"), 1); !fault.Is(err, fault.Unavailable) {
		t.Errorf("put through a link: %v", err)
	}
	if _, err := s.Put(t.Context(), "link", strings.NewReader("x"), 1); err != nil {
		t.Errorf("put over a link: %v", err)
	}
	for _, prefix := range []string{"jobs/", "link/"} {
		if err := s.DeletePrefix(t.Context(), prefix); err != nil {
			t.Error(err)
		}
	}
	if data, err := os.ReadFile(outside + "/file"); string(data) != "not a blob" {
		t.Errorf("the file outside was touched: %q, %v", data, err)
	}
	if entries, _ := os.ReadDir(outside); len(entries) != 1 {
		t.Errorf("outside is now: %v", entries)
	}
}

// TestKilledWritersLeaveNothing kills a process that writes, and looks after a
// writer that lives.
func TestKilledWritersLeaveNothing(t *testing.T) {
	root := t.TempDir()
	if os.Getenv("BLOB_WRITER") != "" {
		s, err := New(os.Getenv("BLOB_WRITER"))
		if err != nil {
			t.Fatal(err)
		}
		stuck := io.MultiReader(bytes.NewReader(make([]byte, 1<<20)), os.Stdin)
		_, _ = s.Put(t.Context(), "a/killed", &announced{stuck}, -1)
		return
	}
	s := storage(t, root)
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilledWritersLeaveNothing$")
	cmd.Env = append(os.Environ(), "BLOB_WRITER="+root)
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
	if _, err := io.ReadFull(stdout, make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	if len(s.Files(t)) == 0 {
		t.Fatal("the writer writes nothing")
	}
	// Somebody else starts while it writes: its part is not touched.
	if _, err := New(root); err != nil {
		t.Fatal(err)
	}
	if len(s.Files(t)) == 0 {
		t.Error("a part was removed although its writer lives")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if _, err := New(root); err != nil {
		t.Fatal(err)
	}
	if left := s.Files(t); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// announced says on stdout that its second MiB is waited for.
type announced struct{ io.Reader }

func (a *announced) Read(p []byte) (int, error) {
	n, err := a.Reader.Read(p[:min(len(p), 1<<20)])
	if n > 0 {
		_, _ = os.Stdout.WriteString("reading\n")
	}
	return n, err
}
