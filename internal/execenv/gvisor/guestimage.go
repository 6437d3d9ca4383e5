package gvisor

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/erofs/go-erofs"
)

// packGuest makes the small read-only image that holds the guest helper.
func packGuest(binary, image string) error {
	program, err := os.ReadFile(binary)
	if err != nil {
		return fmt.Errorf("cannot read the guest helper: %w; it belongs beside agentdock-execd", err)
	}
	if !bytes.HasPrefix(program, []byte("\x7fELF")) {
		return fmt.Errorf("guest helper %s is not a program", binary)
	}
	out, err := os.OpenFile(image, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("cannot make the guest helper's image: %w", err)
	}
	defer out.Close()
	// A fixed time: the image depends on the helper only.
	w := erofs.Create(out, erofs.WithBuildTime(0, 0), erofs.WithTempDir(filepath.Dir(image)))
	err = func() error {
		if err := w.Mkdir("/", 0o755); err != nil {
			return err
		}
		f, err := w.Create("/" + filepath.Base(guestPath))
		if err != nil {
			return err
		}
		if _, err := f.Write(program); err != nil {
			return err
		}
		if err := f.Chmod(0o555); err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
		return w.Close()
	}()
	if err != nil {
		return fmt.Errorf("cannot pack the guest helper: %w", err)
	}
	return out.Sync()
}
