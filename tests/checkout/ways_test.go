package checkout

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The ways in that take no GitHub App, as docs/checkout.md shows them: from the
// command line to what the program saw.

// TestPublicRepositoryWithoutAnApp is plain mode.
func TestPublicRepositoryWithoutAnApp(t *testing.T) {
	images := images(t)
	c := newCanary(t)
	r := c.github.Repo("acme", "public")
	first := r.Commit("refs/heads/main", r.Tree(r.File("README", "first\n")))
	r.Git("tag", "v1", first)
	second := r.Commit("refs/heads/main", r.Tree(r.File("README", "second\n")), first)
	url := c.github.URL + "/acme/public"

	t.Run("run", func(t *testing.T) {
		for ref, want := range map[string]struct{ commit, says string }{
			"": {second, "second\n"}, "main": {second, "second\n"}, "v1": {first, "first\n"}, first: {first, "first\n"},
		} {
			cmd := exec.Command(filepath.Join(c.bin, "agentdock"), "run", "--json", "--repo", url, "--ref", ref, "--", "sh", "-c",
				"cat README; git rev-parse HEAD; git config remote.origin.url; git status --porcelain")
			cmd.Env = withoutApp(c.environment(images))
			out, err := cmd.Output()
			var report struct{ State, Commit, Stdout string }
			if jsonErr := json.Unmarshal(out, &report); err != nil || jsonErr != nil {
				t.Fatalf("%q: %v, %v\n%s", ref, err, jsonErr, out)
			}
			if report.State != "succeeded" || report.Commit != want.commit || report.Stdout != want.says+want.commit+"\n"+url+"\n" {
				t.Errorf("%q: %+v", ref, report)
			}
		}
		cmd := exec.Command(filepath.Join(c.bin, "agentdock"), "run", "--repo", c.github.URL+"/acme/app", "--", "true")
		cmd.Env = withoutApp(c.environment(images))
		if out, err := cmd.CombinedOutput(); err == nil || cmd.ProcessState.ExitCode() != 125 || !strings.Contains(string(out), "repository_not_found") {
			t.Errorf("a private repository: %v\n%s", err, out)
		}
	})
	t.Run("up", func(t *testing.T) {
		c.t = t
		up := c.up(images, filepath.Join(c.dir, "data"), false)
		out, err := up.cli("jobs", "submit", "--repo", url, "--ref", "v1", "--wait", "--", "cat", "README")
		if err != nil || !strings.HasPrefix(out, "first\n") {
			t.Errorf("a tag: %v\n%s", err, out)
		}
		out, err = up.cli("jobs", "submit", "--json", "--repo", url, "--wait", "--", "cat", "README")
		id := regexp.MustCompile(`"id":"([^"]+)"`).FindStringSubmatch(out)
		if err != nil || id == nil || !strings.Contains(out, `"stdout":"second\n"`) {
			t.Fatalf("the default branch: %v\n%s", err, out)
		}
		if out, err := up.cli("jobs", "get", "--json", id[1]); err != nil || !strings.Contains(out, second) {
			t.Errorf("the job does not say which commit it was: %v\n%s", err, out)
		}
		if out, err := up.cli("jobs", "submit", "--repo", c.github.URL+"/acme/app", "--wait", "--", "true"); err == nil || !strings.Contains(out, "repository_not_found") {
			t.Errorf("a private repository: %v\n%s", err, out)
		}
	})
	if len(c.github.Tokens()) != 0 || len(c.signed) != 0 {
		t.Errorf("%d tokens were made, and %d requests signed", len(c.github.Tokens()), len(c.signed))
	}
	if names, err := os.ReadDir(filepath.Join(c.dir, "packs")); err != nil || len(names) != 0 {
		t.Errorf("packs are left: %v, %v", names, err)
	}
}

// TestUpload is upload mode: a directory that the command line packs, and an
// archive that somebody else made.
func TestUpload(t *testing.T) {
	images := images(t)
	c := newCanary(t)
	up := c.up(images, filepath.Join(c.dir, "data"), false)
	dir := filepath.Join(c.dir, "mine")
	if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "sub/file"), []byte("mine\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := up.cli("jobs", "submit", "--dir", dir, "--wait", "--", "cat", "sub/file"); err != nil || !strings.HasPrefix(out, "mine\n") {
		t.Errorf("a directory: %v\n%s", err, out)
	}
	for name, tc := range map[string]struct {
		entry tar.Header
		says  string
		fails bool
	}{
		"an archive":                 {entry: tar.Header{Name: "theirs", Typeflag: tar.TypeReg, Mode: 0o644}, says: "theirs\n"},
		"a path out of the place":    {entry: tar.Header{Name: "../../tmp/theirs", Typeflag: tar.TypeReg, Mode: 0o644}, says: "checkout failed", fails: true},
		"a path from the root":       {entry: tar.Header{Name: "/tmp/theirs", Typeflag: tar.TypeReg, Mode: 0o644}, says: "checkout failed", fails: true},
		"a device":                   {entry: tar.Header{Name: "theirs", Typeflag: tar.TypeChar, Mode: 0o644}, says: "checkout failed", fails: true},
		"a hard link to the outside": {entry: tar.Header{Name: "theirs", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"}, says: "checkout failed", fails: true},
	} {
		var archive bytes.Buffer
		w := tar.NewWriter(&archive)
		content := ""
		if tc.entry.Typeflag == tar.TypeReg {
			content = "theirs\n"
		}
		tc.entry.Size = int64(len(content))
		if err := w.WriteHeader(&tc.entry); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(c.dir, "job.json")
		spec, err := json.Marshal(map[string]any{
			"source":   map[string]string{"kind": "archive", "upload_id": up.upload(t, archive.Bytes())},
			"commands": []any{map[string]any{"argv": []string{"cat", "theirs"}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, spec, 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := up.cli("jobs", "submit", "--file", file, "--wait"); (err != nil) != tc.fails || !strings.Contains(out, tc.says) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	if _, err := os.Stat("/tmp/theirs"); err == nil {
		t.Error("a file was made on the host")
	}
}
