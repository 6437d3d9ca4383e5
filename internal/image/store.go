package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentdock/agentdock/internal/fault"
)

// The layout of a store. Everything a reader needs is index.json and the
// blobs; tmp is private to writers.
const (
	indexFile    = "index.json"
	lockFile     = "lock"
	blobDir      = "blobs/sha256"
	stageDir     = "tmp"
	blobSuffix   = ".erofs"
	indexVersion = 1
	// maxIndexBytes bounds what a reader takes into memory from a file that
	// something else may have damaged.
	maxIndexBytes = 16 << 20
)

// Store reads a directory of images. It never writes to it, keeps no state
// but the path, and is safe for concurrent use: each call sees the index as
// some writer left it, whole.
type Store struct {
	dir string
}

// Open returns the store in dir. The directory need not exist yet: a service
// may start before its first image is built, and is told so by Resolve.
func Open(dir string) (*Store, error) {
	if dir == "" {
		return nil, fault.New(fault.Invalid, "cannot open image store: no directory named")
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot open image store: %w", err)
	}
	info, err := os.Stat(abs)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("cannot open image store: %w", err)
	case !info.IsDir():
		return nil, fault.New(fault.Invalid, "cannot open image store: %s is not a directory", abs)
	}
	return &Store{dir: abs}, nil
}

// Dir is the absolute path of the store.
func (s *Store) Dir() string { return s.dir }

// Resolve finds an image by name or by digest. It reads the index and looks
// whether the file is there, and does not read the file: see Verify.
//
// A caller that opens the file can find it gone when the image was removed in
// between; resolving again then says NotFound.
func (s *Store) Resolve(nameOrDigest string) (Image, error) {
	ix, err := s.load()
	if err != nil {
		return Image{}, err
	}
	img, ok := ix.find(nameOrDigest)
	if !ok {
		return Image{}, s.notFound(nameOrDigest)
	}
	info, err := os.Stat(img.Path)
	if err != nil {
		return Image{}, fault.Wrap(fault.NotFound, err,
			"cannot use image %q: its file is missing; remove the image and build or import it again", nameOrDigest)
	}
	if info.Size() != img.Bytes {
		return Image{}, fault.New(fault.NotFound,
			"cannot use image %q: its file has %d bytes, not %d; remove the image and build or import it again", nameOrDigest, info.Size(), img.Bytes)
	}
	return img, nil
}

func (s *Store) notFound(name string) error {
	do := "import it with `agentdock image import` or fetch it with `agentdock image pull`; `agentdock image list` shows what there is"
	if name == Default {
		do = "build it with `agentdock image build`"
	}
	return fault.New(fault.NotFound, "cannot find image %q in %s: %s", name, s.dir, do)
}

// List returns all images by name; those without a name come last, newest
// first.
func (s *Store) List() ([]Image, error) {
	ix, err := s.load()
	if err != nil {
		return nil, err
	}
	slices.SortFunc(ix.Images, func(a, b Image) int {
		switch {
		case a.Name == "" && b.Name == "":
			return b.CreatedAt.Compare(a.CreatedAt)
		case a.Name == "":
			return 1
		case b.Name == "":
			return -1
		}
		return strings.Compare(a.Name, b.Name)
	})
	return ix.Images, nil
}

// Verify reads the image's whole file and compares it with its digest.
func (s *Store) Verify(ctx context.Context, img Image) error {
	digest, _, err := digestFile(ctx, s.blobPath(img.Digest))
	if err != nil {
		return fmt.Errorf("cannot verify image %s: %w", img.Digest, err)
	}
	if digest != img.Digest {
		return fault.New(fault.Internal, "cannot verify image %s: its file has digest %s; "+
			"remove the image and build or import it again", img.Digest, digest)
	}
	return nil
}

// blobPath is only called with digests from the index, which load checked.
func (s *Store) blobPath(digest string) string {
	h, _ := digestHex(digest)
	return filepath.Join(s.dir, blobDir, h+blobSuffix)
}

// index is what index.json holds.
type index struct {
	Version int     `json:"version"`
	Images  []Image `json:"images"`
}

// load reads the index. A store without one is empty.
func (s *Store) load() (*index, error) {
	f, err := os.Open(filepath.Join(s.dir, indexFile))
	if errors.Is(err, fs.ErrNotExist) {
		return &index{Version: indexVersion}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read image index: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxIndexBytes+1))
	if err != nil {
		return nil, fmt.Errorf("cannot read image index: %w", err)
	}
	var ix index
	if len(data) > maxIndexBytes {
		return nil, fault.New(fault.Internal, "cannot read image index: %s is larger than %d bytes", f.Name(), maxIndexBytes)
	}
	if err := json.Unmarshal(data, &ix); err != nil {
		return nil, fault.Wrap(fault.Internal, err, "cannot read image index: %s is damaged", f.Name())
	}
	if ix.Version != indexVersion {
		return nil, fault.New(fault.Unsupported, "cannot read image index: %s has version %d, this program knows %d",
			f.Name(), ix.Version, indexVersion)
	}
	for i := range ix.Images {
		if _, ok := digestHex(ix.Images[i].Digest); !ok {
			return nil, fault.New(fault.Internal, "cannot read image index: %s holds the malformed digest %q",
				f.Name(), ix.Images[i].Digest)
		}
		ix.Images[i].Path = s.blobPath(ix.Images[i].Digest)
	}
	return &ix, nil
}

// find looks for a name or a digest. Several names can share one digest with
// different configurations; the newest then answers for the digest.
func (ix *index) find(nameOrDigest string) (Image, bool) {
	var found Image
	ok := false
	_, byDigest := digestHex(nameOrDigest)
	for _, img := range ix.Images {
		switch {
		case byDigest && img.Digest == nameOrDigest:
			if !ok || img.CreatedAt.After(found.CreatedAt) {
				found, ok = img, true
			}
		case !byDigest && nameOrDigest != "" && img.Name == nameOrDigest:
			return img, true
		}
	}
	return found, ok
}

// uses reports whether any entry needs digest's file.
func (ix *index) uses(digest string) bool {
	return slices.ContainsFunc(ix.Images, func(img Image) bool { return img.Digest == digest })
}

func digestFile(ctx context.Context, path string) (digest string, size int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, readerFunc(func(p []byte) (int, error) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		return f.Read(p)
	}))
	if err != nil {
		return "", 0, err
	}
	return digestPrefix + hex.EncodeToString(h.Sum(nil)), n, nil
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
