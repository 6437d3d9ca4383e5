package boundary

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
)

// pkg is what the rules need to know about one package of the module. Paths
// inside the module are written relative to it ("./internal/run"), which keeps
// them apart from the standard library's own internal packages.
type pkg struct {
	Imports     []string // of the package itself
	TestImports []string // of its tests, internal and external
	Deps        []string // everything a binary gets that imports the package
}

// graph maps each package of the module to what it depends on.
type graph map[string]pkg

// has says whether pattern names at least one package of the module.
func (g graph) has(pattern string) bool {
	for path := range g {
		if matches(pattern, path) {
			return true
		}
	}
	return false
}

// sorted returns the packages in a stable order, for stable messages.
func (g graph) sorted() []string {
	paths := make([]string, 0, len(g))
	for path := range g {
		paths = append(paths, path)
	}
	sort.Strings(paths)
	return paths
}

// matches says whether path is the package named by pattern. A pattern that
// ends in "/..." also names everything below it, as for the go command.
func matches(pattern, path string) bool {
	if base, ok := strings.CutSuffix(pattern, "/..."); ok {
		return path == base || strings.HasPrefix(path, base+"/")
	}
	return path == pattern
}

func matchesAny(patterns []string, path string) bool {
	for _, pattern := range patterns {
		if matches(pattern, path) {
			return true
		}
	}
	return false
}

// isOurs says whether path, or a pattern, is inside this module.
func isOurs(path string) bool { return strings.HasPrefix(path, "./") }

// isStd says whether path belongs to the standard library, by the rule the go
// command uses: the first element of any other path has a dot in it.
func isStd(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

// load asks the go command for the graph of the module in the directory root.
// The platform is fixed, so that the verdict is the same on every machine.
func load(root string) (graph, error) {
	if err := visit(root); err != nil {
		return nil, err
	}
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports,Deps,Module", "./...")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0", "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("cannot list the packages of the module: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return decode(bytes.NewReader(out))
}

// visit reads the module's directories and does nothing with them. The go
// command re-uses a test's result until a file or directory that the test
// process itself looked at has changed; what "go list" looks at does not count.
func visit(root string) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("cannot look through the module: %w", err)
		}
		name := entry.Name()
		if entry.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "bin" || name == "fixtures") {
			return filepath.SkipDir
		}
		return nil
	})
}

// decode reads the stream of objects that "go list -json" prints.
func decode(r io.Reader) (graph, error) {
	g := graph{}
	for dec := json.NewDecoder(r); ; {
		var listed struct {
			ImportPath                               string
			Imports, TestImports, XTestImports, Deps []string
			Module                                   struct{ Path string }
		}
		err := dec.Decode(&listed)
		if errors.Is(err, io.EOF) {
			return g, nil
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read the package list: %w", err)
		}
		relative := func(path string) string {
			if rest, ok := strings.CutPrefix(path, listed.Module.Path+"/"); ok {
				return "./" + rest
			}
			return path
		}
		local := func(lists ...[]string) []string {
			var paths []string
			for _, list := range lists {
				for _, path := range list {
					paths = append(paths, relative(path))
				}
			}
			return paths
		}
		g[relative(listed.ImportPath)] = pkg{
			Imports:     local(listed.Imports),
			TestImports: local(listed.TestImports, listed.XTestImports),
			Deps:        local(listed.Deps),
		}
	}
}
