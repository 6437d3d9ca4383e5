package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// allowance is a skip that is accepted where every real part is installed.
type allowance struct {
	Package string // ends of the import path, such as internal/execenv/docker
	Test    string // a test's name; with "/..." at its end, all below it too
	Reason  string
}

// declared begins the reason of a skipped case, and of an allowance for such cases:
// the environment under test declares that it cannot hold what the case is about.
// An allowance names the capabilities that may be missing, so that no other one
// goes missing unseen.
const declared = "not enforceable here: "

// allows says whether a case may be skipped for a reason.
func (a allowance) allows(reason string) bool {
	list, ok := strings.CutPrefix(a.Reason, declared)
	if !ok {
		return true
	}
	missing, ok := missingIn(reason)
	return ok && slices.Contains(strings.Split(list, ", "), missing)
}

// missingIn is the capability that a line says is missing.
func missingIn(line string) (string, bool) {
	_, missing, ok := strings.Cut(line, declared)
	return strings.TrimSpace(missing), ok
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

// find is the allowance for a skipped case, if there is one.
func find(allowed []allowance, t test, reason string) (allowance, bool) {
	for _, a := range allowed {
		if !a.allows(reason) {
			continue
		}
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
