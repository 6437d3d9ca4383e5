package doccheck

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// source is what there is to be named.
type source struct {
	// files are all paths, directories included, relative to root; bases their
	// last elements.
	files, bases map[string]bool
	// symbols are by package name: "Name", "Type.Method", "Type.field". Packages
	// of one name (main) are taken together.
	symbols map[string]map[string]bool
	// tests are functions that go test runs; cases those of the contract suite.
	tests, cases map[string]bool
	// literals are all string constants of programs, "a"+"b" as one; text is
	// every script and Makefile.
	literals []string
	text     string
	// variables are names of environment variables; targets those of make.
	variables, targets map[string]bool
}

func theSource(t *testing.T) *source {
	t.Helper()
	s, err := load()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var load = sync.OnceValues(func() (*source, error) {
	s := &source{
		files: map[string]bool{}, bases: map[string]bool{}, symbols: map[string]map[string]bool{},
		tests: map[string]bool{}, cases: map[string]bool{}, variables: map[string]bool{}, targets: map[string]bool{},
	}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		if d.IsDir() && (name == ".git" || name == "bin" || name == "build-output-dir" || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		s.files[name], s.bases[filepath.Base(name)] = true, true
		switch {
		case d.IsDir():
			return nil
		case filepath.Ext(name) == ".go":
			return s.goFile(path, name)
		case strings.HasPrefix(name, "scripts/"), name == "Makefile", name == ".ci/run":
			data, err := os.ReadFile(path)
			s.text += string(data)
			return err
		}
		return nil
	})
	for _, m := range regexp.MustCompile(`(?m)^([a-z-]+):`).FindAllStringSubmatch(s.text, -1) {
		s.targets[m[1]] = true
	}
	for _, m := range regexp.MustCompile(`AGENTDOCK_[A-Z_]+`).FindAllString(s.text, -1) {
		s.variables[m] = true
	}
	return s, err
})

var (
	caseRow  = regexp.MustCompile(`\{clause: "([A-Z]\d+)", name: "(\w+)"`)
	variable = regexp.MustCompile(`^AGENTDOCK_[A-Z_]+`)
	setting  = regexp.MustCompile("env:\"(AGENTDOCK_[A-Z_]+)\"")
)

func (s *source) goFile(path, name string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	f, err := parser.ParseFile(token.NewFileSet(), path, data, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, m := range caseRow.FindAllStringSubmatch(string(data), -1) {
		s.cases[m[1]+"_"+m[2]] = true
	}
	if strings.HasPrefix(name, "internal/settings/") {
		for _, m := range setting.FindAllStringSubmatch(string(data), -1) {
			s.variables[m[1]] = true
		}
	}
	isTest := strings.HasSuffix(name, "_test.go")
	pkg := strings.TrimSuffix(f.Name.Name, "_test")
	if s.symbols[pkg] == nil {
		s.symbols[pkg] = map[string]bool{}
	}
	for _, decl := range f.Decls {
		s.declare(pkg, decl, isTest)
	}
	if isTest || strings.HasPrefix(name, "api/") {
		return nil
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr, *ast.BasicLit:
			text, ok := constant(n.(ast.Expr))
			if !ok {
				return true
			}
			s.literals = append(s.literals, text)
			if v := variable.FindString(text); v != "" {
				s.variables[v] = true
			}
			return false
		}
		return true
	})
	return nil
}

// constant is the value of a string literal or of a sum of them. What is not
// a literal in a sum stands for anything.
func constant(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			text, err := strconv.Unquote(e.Value)
			return text, err == nil
		}
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			x, okX := constant(e.X)
			y, okY := constant(e.Y)
			return x + y, okX || okY
		}
	}
	return "", false
}

func (s *source) declare(pkg string, decl ast.Decl, isTest bool) {
	add := func(names ...string) { s.symbols[pkg][strings.Join(names, ".")] = true }
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			add(d.Name.Name)
			if isTest && (strings.HasPrefix(d.Name.Name, "Test") || strings.HasPrefix(d.Name.Name, "Fuzz")) {
				s.tests[d.Name.Name] = true
			}
			return
		}
		add(typeName(d.Recv.List[0].Type), d.Name.Name)
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.ValueSpec:
				for _, n := range spec.Names {
					add(n.Name)
				}
			case *ast.TypeSpec:
				add(spec.Name.Name)
				for _, n := range members(spec.Type) {
					add(spec.Name.Name, n)
				}
			}
		}
	}
}

func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

func members(e ast.Expr) []string {
	var list *ast.FieldList
	switch e := e.(type) {
	case *ast.StructType:
		list = e.Fields
	case *ast.InterfaceType:
		list = e.Methods
	default:
		return nil
	}
	var names []string
	for _, f := range list.List {
		for _, n := range f.Names {
			names = append(names, n.Name)
		}
	}
	return names
}
