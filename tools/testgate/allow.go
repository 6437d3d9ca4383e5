package main

import (
	"fmt"
	"os"
	"strings"
)

// allowance is a skip that is accepted where every real part is installed.
type allowance struct {
	Package string // ends of the import path, such as internal/execenv/docker
	Test    string // a test's name; with "/..." at its end, all below it too
	Reason  string
}

// readAllowed reads a file of allowances. An empty name means none.
func readAllowed(name string) ([]allowance, error) {
	if name == "" {
		return nil, nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("cannot read allowed skips: %w", err)
	}
	return parseAllowed(name, string(text))
}

func parseAllowed(name, text string) ([]allowance, error) {
	var allowed []allowance
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) < 4 { // a reason of one word is none
			return nil, fmt.Errorf("cannot read allowed skips: %s:%d: want a package, a test and a reason", name, i+1)
		}
		allowed = append(allowed, allowance{fields[0], fields[1], strings.Join(fields[2:], " ")})
	}
	return allowed, nil
}

func find(allowed []allowance, t test) (allowance, bool) {
	for _, a := range allowed {
		if t.Package != a.Package && !strings.HasSuffix(t.Package, "/"+a.Package) {
			continue
		}
		base, all := strings.CutSuffix(a.Test, "/...")
		if t.Name == base || (all && strings.HasPrefix(t.Name, base+"/")) {
			return a, true
		}
	}
	return allowance{}, false
}
