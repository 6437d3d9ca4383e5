package checkouttest

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Repo is a bare repository on the disk of the server.
type Repo struct {
	Dir string
	t   testing.TB
}

// NewRepo makes an empty one, whose default branch is main.
func NewRepo(t testing.TB, dir string, args ...string) *Repo {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	r := &Repo{Dir: dir, t: t}
	r.run(nil, append(append([]string{"init", "--quiet", "--bare", "--initial-branch=main"}, args...), dir)...)
	return r
}

// Git runs git in the repository and returns what it prints.
func (r *Repo) Git(args ...string) string {
	r.t.Helper()
	return r.GitIn(nil, args...)
}

// GitIn is Git with something to read.
func (r *Repo) GitIn(in []byte, args ...string) string {
	r.t.Helper()
	return r.run(in, append([]string{"--git-dir=" + r.Dir}, args...)...)
}

func (r *Repo) run(in []byte, args ...string) string {
	r.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C",
		"GIT_AUTHOR_NAME=Author", "GIT_AUTHOR_EMAIL=author@example.com", "GIT_AUTHOR_DATE=1700000000 +0000",
		"GIT_COMMITTER_NAME=Author", "GIT_COMMITTER_EMAIL=author@example.com", "GIT_COMMITTER_DATE=1700000000 +0000",
	}
	var out, said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &said
	if err := cmd.Run(); err != nil {
		r.t.Fatalf("git %q: %v\n%s", args, err, said.String())
	}
	return strings.TrimSpace(out.String())
}

// Raw writes an object as it is, also one that git would refuse to make, and
// returns its hash. It is for repositories that use SHA-1.
func (r *Repo) Raw(kind string, content []byte) string {
	r.t.Helper()
	object := append(fmt.Appendf(nil, "%s %d\x00", kind, len(content)), content...)
	sum := sha1.Sum(object)
	hash := hex.EncodeToString(sum[:])
	var packed bytes.Buffer
	z := zlib.NewWriter(&packed)
	_, _ = z.Write(object) // neither fails on a buffer
	_ = z.Close()
	dir := filepath.Join(r.Dir, "objects", hash[:2])
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, hash[2:]), packed.Bytes(), 0o644)); err != nil {
		r.t.Fatal(err)
	}
	return hash
}

// RawTree writes a tree with whatever names, in the order given.
func (r *Repo) RawTree(entries ...Entry) string {
	r.t.Helper()
	var content bytes.Buffer
	for _, e := range entries {
		sum, err := hex.DecodeString(e.Hash)
		if err != nil {
			r.t.Fatal(err)
		}
		content.WriteString(strings.TrimPrefix(e.Mode, "0") + " " + e.Name + "\x00" + string(sum))
	}
	return r.Raw("tree", content.Bytes())
}

// Blob writes a blob and returns its hash.
func (r *Repo) Blob(content string) string {
	r.t.Helper()
	return r.GitIn([]byte(content), "hash-object", "-w", "--stdin")
}

// Entry is a line of a tree.
type Entry struct{ Mode, Type, Hash, Name string }

// File is the entry of a regular file with that content.
func (r *Repo) File(name, content string) Entry {
	r.t.Helper()
	return Entry{"100644", "blob", r.Blob(content), name}
}

// Link is the entry of a symlink.
func (r *Repo) Link(name, target string) Entry {
	r.t.Helper()
	return Entry{"120000", "blob", r.Blob(target), name}
}

// Sub is the entry of a directory.
func (r *Repo) Sub(name string, entries ...Entry) Entry {
	r.t.Helper()
	return Entry{"040000", "tree", r.Tree(entries...), name}
}

// Tree writes a tree, in which names may be ones that git would not make.
func (r *Repo) Tree(entries ...Entry) string {
	r.t.Helper()
	var in bytes.Buffer
	for _, e := range entries {
		in.WriteString(e.Mode + " " + e.Type + " " + e.Hash + "\t" + e.Name + "\x00")
	}
	return r.GitIn(in.Bytes(), "mktree", "-z", "--missing")
}

// Commit writes a commit of that tree and makes ref point to it.
func (r *Repo) Commit(ref, tree string, parents ...string) string {
	r.t.Helper()
	args := []string{"commit-tree", "-m", "A commit", tree}
	for _, p := range parents {
		args = append(args, "-p", p)
	}
	hash := r.Git(args...)
	r.Git("update-ref", ref, hash)
	return hash
}
