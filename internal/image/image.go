// Package image is the store of root images: immutable EROFS files named by
// the digest of their bytes, and an index of names for them.
//
// A root image is opened read-only by every sandbox that runs it, by another
// process than the one that made it. So the store is a directory, a reader
// needs no lock and no write permission, and a file once named by its digest
// never changes: replacing a name adds a file, removing one unlinks a file
// that running sandboxes may go on using.
package image

import (
	"encoding/hex"
	"regexp"
	"strings"
	"time"

	"github.com/agentdock/agentdock/internal/fault"
)

const (
	// Default is the name of the image a sandbox gets that names none.
	Default = "default"
	// DefaultDir is where the store is unless a setting says otherwise.
	DefaultDir = "/var/lib/agentdock/images"
	// DirEnv is the environment variable that names another directory.
	DirEnv = "AGENTDOCK_IMAGE_DIR"
)

// Image is one entry of the store.
type Image struct {
	// Name is empty for an image whose name was given to a newer one; such
	// an image can still be resolved by digest until it is pruned, so work
	// that was pinned to it does not fail because of a rebuild.
	Name string `json:"name,omitempty"`
	// Digest is "sha256:" and the hex digest of the EROFS file.
	Digest string `json:"digest"`
	// Path is the absolute path of the EROFS file.
	Path   string `json:"path,omitempty"`
	Bytes  int64  `json:"bytes"`
	Config Config `json:"config"`
	// Source says where the contents came from, for people.
	Source string `json:"source,omitempty"`
	// Recipe identifies what a built image was built from, so that building
	// it again can be skipped. Empty for imported images.
	Recipe    string    `json:"recipe,omitempty"`
	CreatedAt time.Time `json:"created_at"`
}

// Config is what an image says about running programs in it. It is a claim of
// whoever made the image and no more: the policy for a sandbox's environment
// decides what of it is used. An entry point is left out on purpose, because
// every exec names its own argv.
type Config struct {
	Env        map[string]string `json:"env,omitempty"`
	WorkingDir string            `json:"working_dir,omitempty"`
}

// validName is generous enough for registry references, which are handy
// names. A name never becomes part of a path.
var validName = regexp.MustCompile(`^[a-z0-9][a-zA-Z0-9._/:@-]{0,199}$`)

// CheckName reports whether name may name an image.
func CheckName(name string) error {
	if !validName.MatchString(name) || strings.HasPrefix(name, digestPrefix) {
		return fault.New(fault.Invalid, "cannot use image name %q: a name starts with a lower-case letter or digit, "+
			"has up to 200 of a-z A-Z 0-9 . _ / : @ - and is no digest", name)
	}
	return nil
}

const digestPrefix = "sha256:"

// digestHex returns the hex part of a well-formed digest. It is the only way
// from a digest to a file name, so a digest can never be a path.
func digestHex(digest string) (string, bool) {
	h, ok := strings.CutPrefix(digest, digestPrefix)
	if !ok || len(h) != 64 || strings.ToLower(h) != h {
		return "", false
	}
	_, err := hex.DecodeString(h)
	return h, err == nil
}
