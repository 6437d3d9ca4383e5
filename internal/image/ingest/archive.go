package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/image"
)

// ImportOptions say what to take from an archive that offers a choice.
type ImportOptions struct {
	Options
	// Platform is "os/architecture[/variant]"; empty is this machine's.
	Platform string
	// Tag chooses one of several images in an archive.
	Tag string
}

// ImportArchive makes an image from the file or directory at path: a root
// file system or a saved image as a tar archive, or an OCI layout. What it is
// is found out from its contents.
func ImportArchive(ctx context.Context, w *image.Writer, path string, opt ImportOptions) (image.Image, error) {
	platform, err := parsePlatform(opt.Platform)
	if err != nil {
		return image.Image{}, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return image.Image{}, fault.Wrap(fault.NotFound, err, "cannot import %s", path)
	}
	if !info.Mode().IsRegular() && !info.IsDir() {
		// Opening a fifo waits for a writer, and nothing ends that.
		return image.Image{}, fault.New(fault.Invalid, "cannot import %s: it is neither a file nor a directory; pass a pipe as standard input, with -", path)
	}
	img, err := build(ctx, w, opt.Options, func(ctx context.Context, b *builder) error {
		if info.IsDir() {
			return b.layoutDirectory(ctx, path, opt.Tag, platform)
		}
		return b.archive(ctx, path, opt.Tag, platform)
	})
	if err != nil {
		return image.Image{}, asImport(path, err)
	}
	return img, nil
}

// asImport says which import failed and keeps the fault's code.
func asImport(what string, err error) error {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return fault.Wrap(f.Code, err, "cannot import %s", what)
	}
	return fmt.Errorf("cannot import %s: %w", what, err)
}

func (b *builder) layoutDirectory(ctx context.Context, path, tag string, platform v1.Platform) error {
	root, err := os.OpenRoot(path)
	if err != nil {
		return err
	}
	defer root.Close()
	if _, err := root.Stat("oci-layout"); err != nil {
		return fault.New(fault.Invalid, "the directory is no OCI layout (it has no oci-layout file); "+
			"a root file system has to come as an archive: tar -C %s -c . | agentdock image import -", path)
	}
	return b.layout(ctx, dirFiles{root}, tag, platform)
}

// archive finds out what the file is and takes it in.
func (b *builder) archive(ctx context.Context, path, tag string, platform v1.Platform) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	plain, err := decompress(f)
	if err != nil {
		return err
	}
	defer plain.Close()
	_, compressed := plain.(*decompressor)
	var sniffed io.Reader
	if !compressed {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("cannot seek in it, pass it on standard input instead: %w", err)
		}
		sniffed = f
	} else {
		sniffed = &bounded{ctx: ctx, r: plain, left: b.opt.Limits.Bytes}
	}
	kind, members, err := inspect(ctx, sniffed, b.opt.Limits)
	if err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if kind == rootArchive {
		if tag != "" {
			return fault.New(fault.Invalid, "it is a root file system and has no tags")
		}
		b.opt.say("reading a root file system")
		b.result.Source = "tar"
		return b.layer(ctx, "the archive", f)
	}
	if compressed {
		if f, err = b.unpackArchive(ctx, f); err != nil {
			return err
		}
		defer f.Close()
		if kind, members, err = inspect(ctx, f, b.opt.Limits); err != nil {
			return err
		}
	}
	parts := tarFiles{archive: f, members: members}
	if kind == ociLayout {
		return b.layout(ctx, parts, tag, platform)
	}
	return b.saved(ctx, parts, tag, platform)
}

// unpackArchive writes a compressed archive out as a plain one, because its
// members are read in another order than they are in.
func (b *builder) unpackArchive(ctx context.Context, f *os.File) (*os.File, error) {
	plain, err := decompress(f)
	if err != nil {
		return nil, err
	}
	defer plain.Close()
	out, err := os.OpenFile(filepath.Join(b.dir, "archive.tar"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(out, &bounded{ctx: ctx, r: plain, left: b.opt.Limits.Bytes})
	if err == nil {
		_, err = out.Seek(0, io.SeekStart)
	}
	if err != nil {
		out.Close()
		return nil, err
	}
	return out, nil
}

// savedImage is one image in the manifest.json of a saved image.
type savedImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// saved takes in what "docker save" wrote. Such an archive has no digests for
// its files; the layers are checked against those in the configuration.
func (b *builder) saved(ctx context.Context, parts files, tag string, platform v1.Platform) error {
	data, err := b.document(parts, "manifest.json")
	if err != nil {
		return err
	}
	var images []savedImage
	if err := json.Unmarshal(data, &images); err != nil {
		return fault.Wrap(fault.Invalid, err, "its manifest.json is damaged")
	}
	one, err := chooseSaved(images, tag)
	if err != nil {
		return err
	}
	raw, err := b.document(parts, path.Clean(one.Config))
	if err != nil {
		return err
	}
	config, err := b.config(raw, len(one.Layers), platform)
	if err != nil {
		return err
	}
	b.result.Source = strings.Join(append([]string{"docker-archive"}, one.RepoTags...), " ")
	for i, name := range one.Layers {
		label := fmt.Sprintf("layer %d of %d", i+1, len(one.Layers))
		b.opt.say("reading %s", label)
		r, size, err := parts.open(path.Clean(name))
		if err != nil {
			return fault.Wrap(fault.Invalid, err, "cannot read %s", label)
		}
		err = b.verifiedLayer(ctx, label, r, v1.Descriptor{Size: size}, config.RootFS.DiffIDs[i])
		r.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func chooseSaved(images []savedImage, tag string) (savedImage, error) {
	var tags []string
	for _, img := range images {
		if tag != "" && slices.ContainsFunc(img.RepoTags, func(t string) bool { return names(t, tag) }) {
			return img, nil
		}
		tags = append(tags, img.RepoTags...)
	}
	switch {
	case tag != "":
		return savedImage{}, fault.New(fault.NotFound, "it has no image tagged %q; it has %.500q", tag, tags)
	case len(images) != 1:
		return savedImage{}, fault.New(fault.Invalid, "it has %d images; choose one with --tag: %.500q", len(images), tags)
	}
	return images[0], nil
}

// names reports whether the full reference ref is what a person means by tag.
func names(ref, tag string) bool { return ref == tag || strings.HasSuffix(ref, ":"+tag) }

// document reads one of an archive's JSON files.
func (b *builder) document(parts files, name string) ([]byte, error) {
	r, size, err := parts.open(name)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "cannot read its %.200s", name)
	}
	defer r.Close()
	if size > b.opt.Limits.ManifestBytes {
		return nil, fault.New(fault.Invalid, "its %.200s has %d bytes, %d is the limit", name, size, b.opt.Limits.ManifestBytes)
	}
	data, err := io.ReadAll(io.LimitReader(r, size))
	if err != nil {
		return nil, fmt.Errorf("cannot read its %.200s: %w", name, err)
	}
	return data, nil
}

// bounded is a reader that ends with an error at a limit or with a context.
type bounded struct {
	ctx  context.Context
	r    io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if err := context.Cause(b.ctx); err != nil {
		return 0, err
	}
	n, err := b.r.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, fault.New(fault.Invalid, "it unpacks to more than the limit")
	}
	return n, err
}
