package blob

import (
	"strings"

	"github.com/agentdock/agentdock/internal/fault"
)

// Bounds of keys (B6). A name has room for what an adapter adds to it before
// file systems refuse it.
const (
	MaxKeyBytes  = 512
	MaxNameBytes = 200
)

// ValidateKey refuses what is no key (B6).
func ValidateKey(key string) error {
	if len(key) > MaxKeyBytes {
		return fault.New(fault.Invalid, "blob key of %d bytes is longer than %d", len(key), MaxKeyBytes)
	}
	for name := range strings.SplitSeq(key, "/") {
		if name == "." || name == ".." || name == "" || len(name) > MaxNameBytes || strings.ContainsFunc(name, notInName) {
			return fault.New(fault.Invalid, "blob key %q is not made of names of a-z, A-Z, 0-9, '.', '_' and '-' with '/' between them", key)
		}
	}
	return nil
}

// ValidatePrefix refuses what is no prefix of keys: one that does not end with
// "/" would hit keys whose name only begins alike (B5).
func ValidatePrefix(prefix string) error {
	key, ok := strings.CutSuffix(prefix, "/")
	if !ok {
		return fault.New(fault.Invalid, "blob prefix %q does not end with '/'", prefix)
	}
	return ValidateKey(key)
}

func notInName(r rune) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
		return false
	}
	return true
}
