package image

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/erofs/go-erofs"
)

// WriteBare makes a root image that has the mount points and nothing to run:
// enough for programs that are static and come in by archive, and for asking a
// host whether a sandbox starts at all. It needs no program of the host.
func WriteBare(path string) error {
	out, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("cannot make the bare image: %w", err)
	}
	defer out.Close()
	w := erofs.Create(out, erofs.WithBuildTime(0, 0), erofs.WithTempDir(filepath.Dir(path)))
	for _, d := range []string{"/", "/proc", "/sys", "/dev", "/tmp", "/workspace", "/run", "/etc", "/usr", "/home", "/.agentdock"} {
		if err := w.Mkdir(d, 0o755); err != nil {
			return fmt.Errorf("cannot make the bare image: %w", err)
		}
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("cannot make the bare image: %w", err)
	}
	return nil
}
