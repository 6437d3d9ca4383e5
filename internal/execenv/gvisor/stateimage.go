package gvisor

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"

	"github.com/agentdock/agentdock/internal/execenv/gvisor/backing"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// stateImage is a sandbox that was put away: the file that its kernel's checkpoint
// was written to, which has no name and ends with this process as the sandbox does.
// The sandbox's kernel gets a pipe to write to and never the file: how much is kept
// is counted here, and what was kept is known by its digest, so that nothing else is
// ever resumed from.
type stateImage struct {
	file   *backing.File
	bytes  int64
	digest [sha256.Size]byte
}

// mostState is how large the state of a sandbox may be: its memory, and room for its
// kernel's own structures.
func mostState(l run.Limits) int64 { return l.MemoryBytes + 64*run.MiB }

// receive keeps what r gives until its end, if that is no more than most bytes.
func (i *stateImage) receive(r io.Reader, most int64) error {
	sum := sha256.New()
	to := &stateWriter{image: i, sum: sum, most: most}
	// Not with what the file would do by itself: then nobody would count.
	if _, err := io.CopyBuffer(to, struct{ io.Reader }{r}, make([]byte, 1<<20)); err != nil {
		return err
	}
	sum.Sum(i.digest[:0])
	return nil
}

type stateWriter struct {
	image *stateImage
	sum   hash.Hash
	most  int64
}

func (w *stateWriter) Write(p []byte) (int, error) {
	n := int64(len(p))
	if w.image.bytes+n > w.most {
		return 0, fault.New(fault.Exhausted, "its state takes more than %d bytes", w.most)
	}
	if err := w.image.file.Grow(n); err != nil {
		return 0, err
	}
	w.image.bytes += n
	w.sum.Write(p)
	return w.image.file.Write(p)
}

// check fails unless the file holds what was received.
func (i *stateImage) check(ctx context.Context) error {
	sum, buf := sha256.New(), make([]byte, 1<<20)
	for at := int64(0); ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := i.file.ReadAt(buf, at)
		at += int64(n)
		sum.Write(buf[:n])
		if at > i.bytes || errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	if subtle.ConstantTimeCompare(sum.Sum(nil), i.digest[:]) != 1 {
		return errors.New("the file with its state does not hold what was written")
	}
	return nil
}

// name makes the file known in a directory by the name that gVisor opens.
func (i *stateImage) name(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	return os.Symlink(fmt.Sprintf("/proc/self/fd/%d", i.file.Fd()), filepath.Join(dir, "checkpoint.img"))
}
