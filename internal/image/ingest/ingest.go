// Package ingest makes root images: it takes a root file system from an
// archive, a registry or the distribution's packages, and puts one read-only
// EROFS file into the image store.
//
// The bytes it takes are hostile. They go through four steps, each of which
// can only fail or hand on something harmless: digests are verified while
// layers are read; layers are flattened in memory, with contents spooled to
// numbered files (flattener); the finished tree is written out once, by calls
// that cannot follow a link (materialize); and mkfs.erofs packs it.
package ingest

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/image"
)

// Options are common to all ways of making an image.
type Options struct {
	// Name is what the image is called in the store.
	Name string
	// Config is used where the source brings none of its own.
	Config image.Config
	// Limits that are zero are DefaultLimits.
	Limits Limits
	// Progress, if set, is told in short lines what goes on. It is called
	// from one goroutine at a time.
	Progress func(line string)
}

func (o Options) say(format string, args ...any) {
	if o.Progress != nil {
		o.Progress(fmt.Sprintf(format, args...))
	}
}

// ImportTar makes an image from a root file system in a tar archive, plain or
// compressed with gzip or zstd. It reads r once, so a saved image, whose parts
// are in another order than they are needed in, has to be a file: see
// ImportArchive.
func ImportTar(ctx context.Context, w *image.Writer, r io.Reader, opt Options) (image.Image, error) {
	return build(ctx, w, opt, func(ctx context.Context, b *builder) error {
		b.result.Source = "tar"
		if err := b.layer(ctx, "the archive", r); err != nil {
			return err
		}
		return notSaved(b.flat.root)
	})
}

// notSaved refuses what only looks like a root file system because nobody
// looked: it would make an image with nothing in it that can run.
func notSaved(root *node) error {
	for name := range rootNames {
		if root.children[name] != nil {
			return nil
		}
	}
	if root.children["manifest.json"] == nil && root.children["oci-layout"] == nil {
		return nil
	}
	return fault.New(fault.Invalid, "cannot import a saved image from a stream: write it to a file and import that")
}

// builder is one image being made in a stage of its own.
type builder struct {
	opt    Options
	dir    string
	flat   *flattener
	result image.Image
}

// build sets up a stage, lets fill flatten layers into it, makes the image
// and adds it to the store. Nothing is left but the image, and not even that
// after an error.
func build(ctx context.Context, w *image.Writer, opt Options, fill func(context.Context, *builder) error) (img image.Image, err error) {
	if err := image.CheckName(opt.Name); err != nil {
		return image.Image{}, err
	}
	if os.Geteuid() != 0 {
		return image.Image{}, fault.New(fault.Denied,
			"cannot make an image: files in it need their owners, which only root can give; run this with sudo")
	}
	// Looked for before the long part.
	if _, err := tool("mkfs.erofs", "erofs-utils"); err != nil {
		return image.Image{}, err
	}
	opt.Limits = opt.Limits.or(DefaultLimits())
	stage, err := w.Stage()
	if err != nil {
		return image.Image{}, err
	}
	defer func() {
		if cerr := stage.Close(); err == nil && cerr != nil {
			img, err = image.Image{}, cerr
		}
	}()
	sp, err := openSpool(filepath.Join(stage.Dir(), "spool"))
	if err != nil {
		return image.Image{}, err
	}
	defer sp.Close()
	b := &builder{
		opt:    opt,
		dir:    stage.Dir(),
		flat:   newFlattener(sp, opt.Limits),
		result: image.Image{Name: opt.Name, Config: opt.Config},
	}
	if err := fill(ctx, b); err != nil {
		return image.Image{}, err
	}
	if b.flat.entries == 0 {
		// A download that was cut to nothing is a valid tar archive.
		return image.Image{}, fault.New(fault.Invalid, "there is nothing in it, not even one file")
	}
	if err := furnish(b.flat.root, sp); err != nil {
		return image.Image{}, err
	}
	opt.say("packing %d entries", b.flat.entries)
	if err := materialize(ctx, b.flat.root, sp, filepath.Join(b.dir, "root")); err != nil {
		return image.Image{}, fmt.Errorf("cannot lay out the image: %w", err)
	}
	if err := makeEROFS(ctx, b.dir, "root", "image.erofs"); err != nil {
		return image.Image{}, err
	}
	return w.Add(ctx, filepath.Join(b.dir, "image.erofs"), b.result)
}

// layer flattens one layer, compressed or not.
func (b *builder) layer(ctx context.Context, label string, r io.Reader) error {
	plain, err := decompress(r)
	if err != nil {
		return fault.Wrap(fault.Invalid, err, "cannot unpack %s", label)
	}
	defer plain.Close()
	return b.flat.add(ctx, label, plain)
}
