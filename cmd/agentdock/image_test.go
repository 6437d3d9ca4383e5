package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/agentdock/agentdock/internal/image"
)

// runImage runs an image command against store.
func runImage(t *testing.T, store, stdin string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	root := newRoot()
	root.SetArgs(append([]string{"image"}, append(args, "--store", store)...))
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&out)
	root.SetErr(&errs)
	err = root.ExecuteContext(t.Context())
	return out.String(), errs.String(), err
}

func TestImageCommandsOnEmptyStore(t *testing.T) {
	store := filepath.Join(t.TempDir(), "none")
	if out, errs, err := runImage(t, store, "", "list"); err != nil || out != "" || !strings.Contains(errs, "agentdock image build") {
		t.Errorf("list: %q %q %v", out, errs, err)
	}
	if out, _, err := runImage(t, store, "", "list", "--json"); err != nil || out != "[]\n" {
		t.Errorf("list --json: %q %v", out, err)
	}
	if _, err := os.Stat(store); err == nil {
		t.Error("listing made the store")
	}
	for _, args := range [][]string{{"verify", "x"}, {"rm", "x"}, {"import", "/no/such/file"}} {
		if _, _, err := runImage(t, store, "", args...); err == nil || !strings.HasPrefix(err.Error(), "cannot ") {
			t.Errorf("%q: %v", args, err)
		}
	}
}

func TestImageImportListRemove(t *testing.T) {
	if _, err := exec.LookPath("mkfs.erofs"); err != nil || os.Geteuid() != 0 {
		if os.Getenv("AGENTDOCK_TEST_REQUIRE_REAL") == "1" {
			t.Fatal("must not be skipped, but missing: root or mkfs.erofs")
		}
		t.Skip("missing: root or mkfs.erofs (package erofs-utils)")
	}
	var archive bytes.Buffer
	tw := tar.NewWriter(&archive)
	if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "usr", Mode: 0o755}); err != nil {
		t.Fatal(err)
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	store := t.TempDir()
	out, _, err := runImage(t, store, archive.String(), "import", "-", "--name", "mine", "--json")
	var img image.Image
	if err != nil || json.Unmarshal([]byte(out), &img) != nil || img.Name != "mine" || img.Digest == "" {
		t.Fatalf("import: %q %v", out, err)
	}
	if out, _, err = runImage(t, store, "", "list"); err != nil || !strings.Contains(out, img.Digest) {
		t.Errorf("list: %q %v", out, err)
	}
	if out, _, err = runImage(t, store, "", "verify"); err != nil || !strings.Contains(out, "sound "+img.Digest) {
		t.Errorf("verify: %q %v", out, err)
	}
	if out, _, err = runImage(t, store, "", "rm", "mine"); err != nil || out != "removed mine\n" {
		t.Errorf("rm: %q %v", out, err)
	}
}

func TestImageHelpIsComplete(t *testing.T) {
	t.Setenv(image.DirEnv, "/srv/images")
	top := newImage()
	if got := top.PersistentFlags().Lookup("store").DefValue; got != "/srv/images" {
		t.Errorf("--store defaults to %q", got)
	}
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		if cmd.Short == "" || cmd.Long == "" || !cmd.HasSubCommands() && cmd.Example == "" {
			t.Errorf("%s: short %q, long %q, example %q", cmd.CommandPath(), cmd.Short, cmd.Long, cmd.Example)
		}
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	check(top)
}
