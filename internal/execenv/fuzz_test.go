package execenv

import (
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzNames: what a caller names stays below where it belongs.
func FuzzNames(f *testing.F) {
	for _, s := range []string{"a-1", "", "..", "a/../..", "/etc", "a\x00b", "sub/./dir//", strings.Repeat("a", 64), "a\n", "é"} {
		f.Add(s, s, s)
	}
	f.Fuzz(func(t *testing.T, id, dir, key string) {
		if ValidateID(id) == nil {
			if len(id) > 63 || filepath.Base(filepath.Join("/state", id)) != id || filepath.Dir(filepath.Join("/state", id)) != "/state" {
				t.Fatalf("id %q is no name of a file", id)
			}
		}
		if at, err := WorkspacePath(dir); err == nil {
			if at != Workspace && !strings.HasPrefix(at, Workspace+"/") || path.Clean(at) != at || strings.ContainsRune(at, 0) {
				t.Fatalf("directory %q is %q", dir, at)
			}
		}
		if ValidatePattern(dir) == nil && (strings.HasPrefix(path.Clean(dir)+"/", "../") || path.IsAbs(dir)) {
			t.Fatalf("pattern %q leads outside", dir)
		}
		spec := ExecSpec{Argv: []string{"p", dir}, Env: map[string]string{key: dir}}
		if spec.Validate() != nil {
			return
		}
		// Whoever splits an entry at its first "=" gets what was asked for.
		found := false
		for _, kv := range Environ(Spec{}, spec) {
			k, v, ok := strings.Cut(kv, "=")
			if !ok || k == "" || strings.ContainsRune(kv, 0) {
				t.Fatalf("environment entry %q", kv)
			}
			found = found || k == key && v == dir
		}
		if !found {
			t.Fatalf("%q=%q is not in the environment", key, dir)
		}
	})
}
