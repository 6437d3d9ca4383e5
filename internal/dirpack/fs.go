package dirpack

import (
	"archive/tar"
	"context"
	"io"
	"io/fs"
	"time"
)

// PackFS writes the regular files and directories of a file system that is
// part of the program. Modes and times are fixed, so that the same files give
// the same archive.
func PackFS(ctx context.Context, fsys fs.FS, w io.Writer) error {
	out := tar.NewWriter(w)
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || name == "." {
			return err
		}
		// Not the zero of time, which zip files and make cannot represent.
		h := &tar.Header{Name: name, ModTime: time.Unix(1_700_000_000, 0), Format: tar.FormatPAX}
		if d.IsDir() {
			h.Typeflag, h.Name, h.Mode = tar.TypeDir, name+"/", 0o755
			return out.WriteHeader(h)
		}
		data, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		h.Typeflag, h.Mode, h.Size = tar.TypeReg, 0o644, int64(len(data))
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		_, err = out.Write(data)
		return err
	})
	if err != nil {
		return err
	}
	return out.Close()
}
