package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/agentdock/agentdock/internal/fault"
)

// Writer changes a store. Any number of processes may hold one: each change
// of the index happens under an exclusive lock on a file in the store, and
// what a change replaces is whole before it is named.
//
// What a crash can leave behind is a stage whose owner is dead or a file no
// entry names. OpenWriter removes both.
type Writer struct {
	*Store
}

// OpenWriter returns a writer for the store in dir, which it creates if need
// be, and clears away what dead writers left there.
func OpenWriter(ctx context.Context, dir string) (*Writer, error) {
	s, err := Open(dir)
	if err != nil {
		return nil, err
	}
	w := &Writer{Store: s}
	for _, d := range []struct {
		path string
		mode os.FileMode
	}{{"", 0o755}, {"blobs", 0o755}, {blobDir, 0o755}, {stageDir, 0o700}} {
		if err := makeDir(filepath.Join(s.dir, d.path), d.mode); err != nil {
			return nil, fmt.Errorf("cannot prepare image store: %w", err)
		}
	}
	if err := w.locked(ctx, w.sweep); err != nil {
		return nil, err
	}
	return w, nil
}

// makeDir makes a directory with exactly mode, whatever the umask; one that
// exists already keeps the mode its owner chose.
func makeDir(path string, mode os.FileMode) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if err := os.MkdirAll(path, mode); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

// Add puts the EROFS file at path into the store and gives it img.Name. The
// file must be on the store's file system, as one in a Stage is; Add takes it
// over. Digest, Path, Bytes and CreatedAt of img are filled in.
//
// An image that had the name before loses it and stays, nameless. Adding
// contents the store has already only changes the index.
func (w *Writer) Add(ctx context.Context, path string, img Image) (Image, error) {
	if err := CheckName(img.Name); err != nil {
		return Image{}, err
	}
	fail := func(err error) (Image, error) {
		return Image{}, fmt.Errorf("cannot add image %q: %w", img.Name, err)
	}
	if err := seal(path); err != nil {
		return fail(err)
	}
	digest, size, err := digestFile(ctx, path)
	if err != nil {
		return fail(err)
	}
	img.Digest, img.Bytes, img.Path = digest, size, w.blobPath(digest)
	img.CreatedAt = time.Now().UTC()
	placed := false
	err = w.locked(ctx, func() error {
		ix, err := w.load()
		if err != nil {
			return err
		}
		// A file that is there already is kept when it is sound, because
		// sandboxes that share it share its page cache.
		if have, _, err := digestFile(ctx, img.Path); err != nil || have != digest {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := os.Rename(path, img.Path); err != nil {
				return err
			}
			placed = true
			if err := syncDir(filepath.Dir(img.Path)); err != nil {
				return err
			}
		}
		ix.put(img)
		if err := w.save(ix); err != nil {
			if placed {
				// Nothing names it. On a full disk it would keep it full.
				_ = os.Remove(img.Path)
			}
			return err
		}
		return nil
	})
	if err != nil {
		return fail(err)
	}
	return img, nil
}

// put enters img and moves its name away from whatever had it.
func (ix *index) put(img Image) {
	for i := range ix.Images {
		if ix.Images[i].Name == img.Name {
			ix.Images[i].Name = ""
		}
	}
	ix.Images = append(ix.Images, img)
	// A nameless entry is there to keep a file; one that shares its file
	// with a named entry keeps nothing.
	named := map[string]bool{}
	for _, img := range ix.Images {
		named[img.Digest] = named[img.Digest] || img.Name != ""
	}
	ix.Images = slices.DeleteFunc(ix.Images, func(img Image) bool { return img.Name == "" && named[img.Digest] })
}

// Remove takes an image away by name or digest. By name it takes that name,
// and the file when nothing else names it; by digest all entries for it. A
// sandbox that has the file open keeps it.
func (w *Writer) Remove(ctx context.Context, nameOrDigest string) error {
	err := w.drop(ctx, func(img Image) bool {
		_, byDigest := digestHex(nameOrDigest)
		return byDigest && img.Digest == nameOrDigest || nameOrDigest != "" && img.Name == nameOrDigest
	}, func(removed []Image) error {
		if len(removed) == 0 {
			return fault.New(fault.NotFound, "cannot remove image %q: there is none in %s; `agentdock image list` shows what there is",
				nameOrDigest, w.dir)
		}
		return nil
	})
	return err
}

// Prune removes the images that lost their name to a newer one, and says
// which they were.
func (w *Writer) Prune(ctx context.Context) ([]Image, error) {
	var pruned []Image
	err := w.drop(ctx, func(img Image) bool { return img.Name == "" }, func(removed []Image) error {
		pruned = removed
		return nil
	})
	return pruned, err
}

// drop removes the entries that match. The index goes first: a crash after it
// leaves a file that no entry names, which the next writer sweeps, and never
// an entry without a file.
func (w *Writer) drop(ctx context.Context, match func(Image) bool, check func(removed []Image) error) error {
	return w.locked(ctx, func() error {
		ix, err := w.load()
		if err != nil {
			return err
		}
		var removed []Image
		ix.Images = slices.DeleteFunc(ix.Images, func(img Image) bool {
			if match(img) {
				removed = append(removed, img)
				return true
			}
			return false
		})
		if err := check(removed); err != nil || len(removed) == 0 {
			return err
		}
		if err := w.save(ix); err != nil {
			return err
		}
		return w.sweepBlobs(ix)
	})
}

// save replaces the index atomically; the caller holds the lock.
func (w *Writer) save(ix *index) (err error) {
	onDisk := index{Version: indexVersion, Images: slices.Clone(ix.Images)}
	for i := range onDisk.Images {
		onDisk.Images[i].Path = "" // follows from the digest; the store may be moved
	}
	data, err := json.MarshalIndent(onDisk, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot write image index: %w", err)
	}
	// The name is fixed: a crash leaves at most this one file, and the next
	// change, which holds the lock, overwrites it.
	temp := filepath.Join(w.dir, stageDir, indexFile)
	defer func() {
		if err != nil {
			err = fmt.Errorf("cannot write image index: %w", errors.Join(err, removeIfThere(temp)))
		}
	}()
	if err := os.WriteFile(temp, append(data, '\n'), 0o644); err != nil {
		return err
	}
	if err := os.Chmod(temp, 0o644); err != nil {
		return err
	}
	if err := syncFile(temp); err != nil {
		return err
	}
	if err := os.Rename(temp, filepath.Join(w.dir, indexFile)); err != nil {
		return err
	}
	return syncDir(w.dir)
}

// sweep removes what dead writers left; the caller holds the lock.
func (w *Writer) sweep() error {
	ix, err := w.load()
	if err != nil {
		return err
	}
	return errors.Join(w.sweepStages(), w.sweepBlobs(ix))
}

// sweepBlobs removes the files no entry names. Files get their place only
// under the lock and together with an entry, so one without is left over.
func (w *Writer) sweepBlobs(ix *index) error {
	entries, err := os.ReadDir(filepath.Join(w.dir, blobDir))
	if err != nil {
		return fmt.Errorf("cannot sweep image store: %w", err)
	}
	var errs []error
	for _, e := range entries {
		h, ok := strings.CutSuffix(e.Name(), blobSuffix)
		if ok && ix.uses(digestPrefix+h) {
			continue
		}
		errs = append(errs, removeIfThere(filepath.Join(w.dir, blobDir, e.Name())))
	}
	return errors.Join(errs...)
}

// lockPoll is how often a waiting writer looks again; changes take
// milliseconds.
const lockPoll = 10 * time.Millisecond

// locked runs change while no other writer, in this process or another,
// changes the store.
func (w *Writer) locked(ctx context.Context, change func() error) error {
	f, err := os.OpenFile(filepath.Join(w.dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("cannot lock image store: %w", err)
	}
	defer f.Close() // closing releases the lock
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return change()
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return fmt.Errorf("cannot lock image store: %w", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("cannot lock image store: another process is changing it: %w", context.Cause(ctx))
		case <-time.After(lockPoll):
		}
	}
}
