package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strings"
)

// platforms are those that binaries are made for; what is linked differs.
var platforms = []string{"linux/amd64", "linux/arm64"}

// part is a module of which at least one package is linked.
type part struct {
	Path     string
	Version  string
	Dir      string
	Packages []string // directories of linked packages, relative to Dir
	Binaries []string
	Files    []file // filled in by read
}

// listed is what "go list -json" says about a package.
type listed struct {
	ImportPath string
	Dir        string
	Standard   bool
	Module     *struct {
		Path    string
		Version string
		Dir     string
		Main    bool
		Replace *struct{ Path, Version string }
	}
}

// linked returns the modules in the binaries that patterns name, with the Go
// standard library, which is in all of them, as the first.
func linked(patterns []string) ([]part, error) {
	root, err := golang("", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	standard := part{Path: "Go standard library", Dir: strings.TrimSpace(string(root)), Packages: []string{"."}}
	modules := map[string]*part{}
	for _, platform := range platforms {
		names, err := golang(platform, append([]string{"list", "-f", `{{if eq .Name "main"}}{{.ImportPath}}{{end}}`}, patterns...)...)
		if err != nil {
			return nil, err
		}
		binaries := strings.Fields(string(names))
		if len(binaries) == 0 {
			return nil, fmt.Errorf("cannot write notices: no binary in %s", strings.Join(patterns, " "))
		}
		for _, binary := range binaries {
			standard.Binaries = add(standard.Binaries, path.Base(binary))
			if err := collect(modules, platform, binary); err != nil {
				return nil, err
			}
		}
	}
	parts := make([]part, 0, len(modules)+1)
	for _, m := range modules {
		sort.Strings(m.Packages)
		sort.Strings(m.Binaries)
		parts = append(parts, *m)
	}
	sort.Slice(parts, func(i, j int) bool { return parts[i].Path < parts[j].Path })
	sort.Strings(standard.Binaries)
	return append([]part{standard}, parts...), nil
}

// collect adds the modules that one binary is made of.
func collect(modules map[string]*part, platform, binary string) error {
	out, err := golang(platform, "list", "-deps", "-json=ImportPath,Dir,Standard,Module", binary)
	if err != nil {
		return err
	}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("cannot read the package list: %w", err)
		}
		if p.Standard || (p.Module != nil && p.Module.Main) {
			continue
		}
		if p.Module == nil || p.Module.Dir == "" {
			return fmt.Errorf("cannot find the module of package %s; run: go mod download", p.ImportPath)
		}
		m := modules[p.Module.Path]
		if m == nil {
			m = &part{Path: p.Module.Path, Version: p.Module.Version, Dir: p.Module.Dir}
			if r := p.Module.Replace; r != nil && r.Version != "" {
				m.Path, m.Version = r.Path, r.Version
			}
			modules[p.Module.Path] = m
		}
		dir, err := filepath.Rel(m.Dir, p.Dir)
		if err != nil {
			return fmt.Errorf("cannot place package %s in its module: %w", p.ImportPath, err)
		}
		m.Packages = add(m.Packages, filepath.ToSlash(dir))
		m.Binaries = add(m.Binaries, path.Base(binary))
	}
}

// add appends s if list does not hold it.
func add(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

// golang runs the go command for a platform. An empty platform means that it
// does not matter.
func golang(platform string, args ...string) ([]byte, error) {
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if goos, goarch, ok := strings.Cut(platform, "/"); ok {
		cmd.Env = append(cmd.Env, "GOOS="+goos, "GOARCH="+goarch)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("cannot run go %s: %w: %s", args[0], err, strings.TrimSpace(stderr.String()))
	}
	return out, nil
}
