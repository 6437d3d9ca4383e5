package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"

	"github.com/google/licensecheck"
)

// permissive are the licences we accept: they ask for a notice and no more.
// Anything else, known or not, is refused, so that a licence nobody has
// thought of (a source-available one, say) is not let through.
var permissive = []string{
	"0BSD", "Apache-2.0", "BSD-1-Clause", "BSD-2-Clause", "BSD-2-Clause-Views", "BSD-3-Clause",
	"BSL-1.0", "CC0-1.0", "ISC", "MIT", "MIT-0", "Unlicense", "Zlib",
}

// minCovered is the share of a licence file that known licence texts have to
// cover. Below it, someone may have added a condition between the lines.
const minCovered = 75

var (
	licenceName = regexp.MustCompile(`(?i)^(un)?licen[cs]e([-_.].*)?$|^copying([-_.].*)?$|^(mit|bsd|apache)-licen[cs]e(\..*)?$`)
	// NOTICE has to be passed on (Apache-2.0, section 4d); PATENTS and
	// COPYRIGHT are kept beside the licence they belong to.
	noticeName = regexp.MustCompile(`(?i)^(notice|patents|copyright)(\.(txt|md))?$`)
	// Source files may bear such a name, and a licence of the documentation
	// alone does not reach a binary.
	ignoredName = regexp.MustCompile(`(?i)\.(go|py|sh|json|ya?ml|tmpl|html|docs)$`)
)

// file is a licence or notice as it was found.
type file struct {
	Name     string // relative to its module
	Text     string
	Licences []string // none for a notice
}

// read finds the licences of everything that is linked from the module: those
// in its root and those beside, or above, a linked package, which is where
// code copied from elsewhere keeps its own.
func (p *part) read() error {
	dirs := []string{"."}
	for _, dir := range p.Packages {
		for ; dir != "."; dir = path.Dir(dir) {
			dirs = add(dirs, dir)
		}
	}
	sort.Strings(dirs)
	var problems []error
	for _, dir := range dirs {
		entries, err := os.ReadDir(filepath.Join(p.Dir, filepath.FromSlash(dir)))
		if err != nil {
			var cause *fs.PathError // its path would name this machine
			if errors.As(err, &cause) {
				err = cause.Err
			}
			return fmt.Errorf("cannot read %s of %s: %w", dir, p.Path, err)
		}
		for _, entry := range entries {
			if err := p.consider(dir, entry); err != nil {
				problems = append(problems, err)
			}
		}
	}
	if !slices.ContainsFunc(p.Files, func(f file) bool { return len(f.Licences) > 0 }) && len(problems) == 0 {
		return fmt.Errorf("cannot use %s %s: it has no licence file; take another module", p.Path, p.Version)
	}
	return errors.Join(problems...)
}

// consider keeps entry if it is a licence or a notice.
func (p *part) consider(dir string, entry fs.DirEntry) error {
	name := entry.Name()
	isLicence := licenceName.MatchString(name)
	if !entry.Type().IsRegular() || ignoredName.MatchString(name) || !(isLicence || noticeName.MatchString(name)) {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(p.Dir, filepath.FromSlash(dir), name))
	if err != nil {
		return fmt.Errorf("cannot read %s of %s: %w", name, p.Path, err)
	}
	f := file{Name: path.Join(dir, name), Text: strings.ReplaceAll(string(text), "\r\n", "\n")}
	if found, ok := reviewed(p.Path, f.Name, text); ok {
		f.Licences = found
	} else if isLicence {
		if f.Licences, err = classify(text); err != nil {
			return fmt.Errorf("cannot use %s %s: %s: %w; take another module", p.Path, p.Version, f.Name, err)
		}
	}
	p.Files = append(p.Files, f)
	return nil
}

// classify returns the licences that text grants, or an error if it is not
// clearly made of permissive ones.
func classify(text []byte) ([]string, error) {
	found := licensecheck.Scan(text)
	var names []string
	for _, match := range found.Match {
		if match.IsURL {
			continue // a pointer, such as to the Apache licence; the text decides
		}
		if !slices.Contains(permissive, match.ID) {
			return nil, fmt.Errorf("%s is not a permissive licence", match.ID)
		}
		names = add(names, match.ID)
	}
	if len(names) == 0 {
		return nil, errors.New("no known licence in it")
	}
	if found.Percent < minCovered {
		return nil, fmt.Errorf("only %.0f%% of it is known licence text (%s)", found.Percent, strings.Join(names, ", "))
	}
	sort.Strings(names)
	return names, nil
}
