package checkout

import (
	"archive/tar"
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/agentdock/agentdock/internal/checkout/gitwire"
	"github.com/agentdock/agentdock/internal/checkout/reason"
)

// repository is a .git as it will be in the workspace: one pack, and files of
// ours. Its refs are lines in a file and no paths, whatever they are called.
type repository struct {
	origin  string
	target  gitwire.Target
	format  string
	shallow []string
	pack    *spool
}

// packName is what git calls a pack: by the checksum at its end.
func (r repository) packName() (string, error) {
	sum := make([]byte, 20)
	if r.format == "sha256" {
		sum = make([]byte, 32)
	}
	if r.pack.size < int64(len(sum))+12 {
		return "", reason.New(reason.Malformed, "the server sent no pack")
	}
	if _, err := r.pack.file.ReadAt(sum, r.pack.size-int64(len(sum))); err != nil {
		return "", fmt.Errorf("cannot read the repository on its way: %w", err)
	}
	return "pack-" + hex.EncodeToString(sum), nil
}

// write writes the repository as tar.
func (r repository) write(ctx context.Context, packName string, w io.Writer) error {
	out := bufio.NewWriterSize(w, 256<<10)
	t := tar.NewWriter(out)
	now := time.Now()
	put := func(name string, size int64, content io.Reader) error {
		h := &tar.Header{Name: path.Join(".git", name), Mode: 0o644, Size: size, ModTime: now, Typeflag: tar.TypeReg, Format: tar.FormatPAX}
		if content == nil {
			h.Name, h.Mode, h.Typeflag = h.Name+"/", 0o755, tar.TypeDir
		}
		if err := t.WriteHeader(h); err != nil || content == nil {
			return err
		}
		_, err := io.Copy(t, &contextReader{ctx, content})
		return err
	}
	for _, dir := range []string{"", "refs", "objects", "objects/info", "objects/pack"} {
		if err := put(dir, 0, nil); err != nil {
			return err
		}
	}
	files := map[string]string{"HEAD": r.head(), "config": r.config(), "packed-refs": r.packedRefs()}
	if len(r.shallow) > 0 {
		files["shallow"] = strings.Join(r.shallow, "\n") + "\n"
	}
	for name, text := range files {
		if err := put(name, int64(len(text)), strings.NewReader(text)); err != nil {
			return err
		}
	}
	if err := put("objects/pack/"+packName+".pack", r.pack.size, r.pack.reader()); err != nil {
		return err
	}
	if err := t.Close(); err != nil {
		return err
	}
	return out.Flush()
}

// contextReader ends with its context.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// head is on the branch if there is one, and else on the commit.
func (r repository) head() string {
	if strings.HasPrefix(r.target.Ref, "refs/heads/") {
		return "ref: " + r.target.Ref + "\n"
	}
	return r.target.Commit + "\n"
}

func (r repository) packedRefs() string {
	ref := r.target.Ref
	if ref == "" {
		return ""
	}
	text := r.target.Object + " " + ref + "\n"
	if branch, ok := strings.CutPrefix(ref, "refs/heads/"); ok {
		text += r.target.Object + " refs/remotes/origin/" + branch + "\n"
	}
	return text
}

// config holds the origin as anybody may know it: a URL without credentials.
func (r repository) config() string {
	var b strings.Builder
	version := 0
	if r.format != "sha1" {
		version = 1
	}
	fmt.Fprintf(&b, "[core]\n\trepositoryformatversion = %d\n\tfilemode = true\n\tbare = false\n", version)
	if r.format != "sha1" {
		fmt.Fprintf(&b, "[extensions]\n\tobjectformat = %s\n", r.format)
	}
	// A parsed URL holds no control characters.
	url := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(r.origin)
	fmt.Fprintf(&b, "[remote \"origin\"]\n\turl = \"%s\"\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n", url)
	return b.String()
}
