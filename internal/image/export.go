package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/erofs/go-erofs"
)

// Export writes what a root image holds as a tar archive, for what takes no other:
// "docker import". The image is read as data; nothing in it is followed or made.
func Export(path string, w io.Writer) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("cannot open the image: %w", err)
	}
	defer f.Close()
	root, err := erofs.Open(f)
	if err != nil {
		return fmt.Errorf("cannot read the image: %w", err)
	}
	e := &exporter{root: root, tar: tar.NewWriter(w), first: map[int64]string{}}
	if err := fs.WalkDir(root, ".", e.entry); err != nil {
		return fmt.Errorf("cannot export the image: %w", err)
	}
	return e.tar.Close()
}

type exporter struct {
	root fs.FS
	tar  *tar.Writer
	// first is the name under which a file with several came first, by its number.
	first map[int64]string
}

func (e *exporter) entry(name string, d fs.DirEntry, err error) error {
	if err != nil || name == "." {
		return err
	}
	info, err := d.Info()
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*erofs.Stat)
	if !ok {
		return fmt.Errorf("%q has no inode", name)
	}
	target := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if target, err = fs.ReadLink(e.root, name); err != nil {
			return err
		}
	}
	h, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	h.Name, h.Uid, h.Gid, h.Uname, h.Gname, h.Format = name, int(st.UID), int(st.GID), "", "", tar.FormatPAX
	if info.IsDir() {
		h.Name += "/"
	}
	if info.Mode().IsRegular() && st.Nlink > 1 {
		if first, again := e.first[st.Ino]; again {
			h.Typeflag, h.Linkname, h.Size = tar.TypeLink, first, 0
			return e.tar.WriteHeader(h)
		}
		e.first[st.Ino] = name
	}
	if err := e.tar.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
		return err
	}
	return e.contents(name)
}

func (e *exporter) contents(name string) error {
	f, err := e.root.Open(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(e.tar, f)
	return errors.Join(err, f.Close())
}
