package doccheck

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// root is the module's directory.
const root = "../.."

// document is a markdown file of ours.
type document struct {
	name string // relative to root
	// lines are its text without code blocks, which become empty lines.
	lines []string
}

var skipped = map[string]bool{
	"fixtures":               true, // a repository of its own
	"bin":                    true,
	"build-output-dir":       true,
	".git":                   true,
	"THIRD_PARTY_NOTICES.md": true, // generated
	"sdk/typescript":         true, // its names are not Go's; tests/clients compiles and runs its example
}

func documents(t *testing.T) []document {
	t.Helper()
	var docs []document
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		if skipped[name] {
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		if !d.IsDir() && filepath.Ext(name) == ".md" {
			docs = append(docs, readDocument(t, name))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(docs) < 5 {
		t.Fatalf("found %d documents", len(docs))
	}
	return docs
}

func readDocument(t *testing.T, name string) document {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return document{name, withoutBlocks(string(data))}
}

func withoutBlocks(text string) []string {
	var lines []string
	inBlock := false
	for line := range strings.SplitSeq(text, "\n") {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		if fence {
			inBlock = !inBlock
		}
		if fence || inBlock {
			line = ""
		}
		lines = append(lines, line)
	}
	return lines
}

var codeSpan = regexp.MustCompile("`([^`]+)`")

// spans calls see for each piece of a document between backticks.
func (d document) spans(see func(line int, text string)) {
	for i, line := range d.lines {
		for _, m := range codeSpan.FindAllStringSubmatch(line, -1) {
			see(i+1, m[1])
		}
	}
}

var link = regexp.MustCompile(`\[[^\]]*\]\(([^)\s]+)\)`)

func TestLinksLeadSomewhere(t *testing.T) {
	for _, d := range documents(t) {
		for i, line := range d.lines {
			for _, m := range link.FindAllStringSubmatch(codeSpan.ReplaceAllString(line, ""), -1) {
				if problem := follow(t, d, m[1]); problem != "" {
					t.Errorf("%s:%d: link to %s: %s", d.name, i+1, m[1], problem)
				}
			}
		}
	}
}

func follow(t *testing.T, d document, target string) (problem string) {
	if strings.Contains(target, "://") {
		return ""
	}
	file, anchor, _ := strings.Cut(target, "#")
	path := d.name
	if file != "" {
		path = filepath.Join(filepath.Dir(d.name), file)
	}
	info, err := os.Stat(filepath.Join(root, path))
	if err != nil {
		return "it does not exist"
	}
	if anchor == "" || info.IsDir() {
		return ""
	}
	for _, line := range readDocument(t, path).lines {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") && slug(title) == anchor {
			return ""
		}
	}
	return "there is no such heading"
}

var notInSlugs = regexp.MustCompile(`[^\p{L}\p{N} _-]`)

// slug is the anchor of a heading.
func slug(title string) string {
	return strings.ReplaceAll(notInSlugs.ReplaceAllString(strings.ToLower(title), ""), " ", "-")
}

// section is the lines below a heading, up to the next one of any level.
func (d document) section(t *testing.T, heading string) []string {
	t.Helper()
	for i, line := range d.lines {
		if strings.TrimLeft(line, "# ") != heading || !strings.HasPrefix(line, "#") {
			continue
		}
		for j, next := range d.lines[i+1:] {
			if strings.HasPrefix(next, "#") {
				return d.lines[i+1 : i+1+j]
			}
		}
		return d.lines[i+1:]
	}
	t.Fatalf("%s has no section %q", d.name, heading)
	return nil
}

// rows are the cells of the first table in lines, without its two head lines.
func rows(t *testing.T, lines []string) [][]string {
	t.Helper()
	var all [][]string
	for _, line := range lines {
		if !strings.HasPrefix(line, "|") {
			if len(all) > 0 {
				break
			}
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		all = append(all, cells)
	}
	if len(all) < 3 {
		t.Fatal("no table where one should be")
	}
	return all[2:]
}
