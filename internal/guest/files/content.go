package files

import (
	"bufio"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/guest/filewire"
)

// read sends the entry of the file and then the part of it that was asked for,
// as much as the budget holds. Only regular files are read: others may never
// end, or never begin.
func (w *work) read() (more bool, err error) {
	f, err := openRegular(w.path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return false, err
	}
	if err := w.out.Send(filewire.Record{Entry: entryOf(&st)}); err != nil {
		return false, err
	}
	left := w.req.Length
	buf := make([]byte, filewire.MaxData)
	for at := w.req.Offset; left != 0; {
		room := w.out.Room()
		if left > 0 {
			room = min(room, left)
		}
		if room <= 0 {
			return true, nil
		}
		n, err := f.ReadAt(buf[:room], at)
		if n > 0 {
			if err := w.out.Send(filewire.Record{Payload: buf[:n]}); err != nil {
				return false, err
			}
			at += int64(n)
			left -= int64(n)
		}
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	return false, nil
}

// openRegular opens without blocking, in case it is a fifo, and looks at what
// it got.
func openRegular(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	info, err := f.Stat()
	if err == nil {
		err = mustBeRegular(path, info)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func mustBeRegular(path string, info fs.FileInfo) error {
	switch {
	case info.IsDir():
		return refuse(filewire.Invalid, "%q is a directory", short(path))
	case !info.Mode().IsRegular():
		return refuse(filewire.Invalid, "%q is not a regular file", short(path))
	}
	return nil
}

// write replaces a file by what comes in, once all of it has come: a writer that
// was cut off changes nothing. The input is pieces, each behind its length in
// four bytes; one of length 0 says that it was all.
func (w *work) write() error {
	target, mode, err := w.replaced()
	if err != nil {
		return err
	}
	dir := filepath.Dir(target)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	temp := filepath.Join(dir, ".agentdock-"+rand.Text())
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = receive(f, w.in)
	if err == nil {
		err = f.Chmod(mode)
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(temp, target)
	}
	if err != nil {
		_ = os.Remove(temp)
		return err
	}
	return w.sendEntry(target)
}

// replaced is the file that is written, symlinks followed, and the mode it
// shall have.
func (w *work) replaced() (target string, mode fs.FileMode, err error) {
	mode = fs.FileMode(w.req.Mode & 0o777)
	if mode == 0 {
		mode = 0o644
	}
	info, err := os.Stat(w.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if link, err := os.Lstat(w.path); err == nil && link.Mode()&fs.ModeSymlink != 0 {
			return "", 0, refuse(filewire.Invalid, "%q is a symlink that leads nowhere", short(w.path))
		}
		return w.path, mode, nil
	case err != nil:
		return "", 0, err
	}
	if err := mustBeRegular(w.path, info); err != nil {
		return "", 0, err
	}
	if err := unix.Access(w.path, unix.W_OK); err != nil {
		return "", 0, &fs.PathError{Op: "write", Path: w.path, Err: err}
	}
	target, err = filepath.EvalSymlinks(w.path)
	return target, info.Mode().Perm(), err
}

func receive(f *os.File, in io.Reader) error {
	r := bufio.NewReaderSize(in, filewire.MaxData)
	cut := refuse(filewire.Invalid, "the contents were cut, and nothing was written")
	buf := make([]byte, filewire.MaxData)
	for {
		var head [4]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return cut
		}
		n := binary.BigEndian.Uint32(head[:])
		switch {
		case n == 0:
			return nil
		case n > filewire.MaxData:
			return refuse(filewire.Invalid, "a piece of %d bytes is too long", n)
		}
		if _, err := io.ReadFull(r, buf[:n]); err != nil {
			return cut
		}
		if _, err := f.Write(buf[:n]); err != nil {
			return err
		}
	}
}
