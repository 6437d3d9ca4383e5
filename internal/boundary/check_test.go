package boundary

import "fmt"

// importRule limits what one package, or a family of them, may import.
type importRule struct {
	// Packages are patterns; Except takes some of them out again.
	Packages []string
	Except   []string
	// Ours and SDKs are patterns of what may be imported from this module and
	// from others. The standard library is allowed but for NeverStd. A
	// package may always import those below itself.
	Ours     []string
	SDKs     []string
	NeverStd []string
	// Tests also holds the tests of the packages to the rule.
	Tests  bool
	Reason string
}

// anySDK stands for every package outside the module and the standard library.
const anySDK = "*"

// linkRule says what must be absent from everything a binary is made of.
type linkRule struct {
	Binary string
	Never  []ban
}

// ban is one dependency, with everything below it, that must not be linked.
type ban struct {
	Pattern string
	Reason  string
}

// onlyRule says which packages may depend on something, at any distance.
// Tests are free: the contract suites have to reach what they test.
type onlyRule struct {
	Target []string
	Except []string // parts of Target that anyone may use
	Users  []string
	Reason string
}

// checkImports reports each direct import that no rule covering its package allows.
func checkImports(g graph, rules []importRule) []string {
	var found []string
	for _, path := range g.sorted() {
		for _, rule := range rules {
			if !matchesAny(rule.Packages, path) || matchesAny(rule.Except, path) {
				continue
			}
			imports := g[path].Imports
			if rule.Tests {
				imports = append(append([]string(nil), imports...), g[path].TestImports...)
			}
			for _, imported := range imports {
				if !rule.allows(path, imported) {
					found = append(found, fmt.Sprintf("%s imports %s: %s", path, imported, rule.Reason))
				}
			}
		}
	}
	return found
}

func (r importRule) allows(path, imported string) bool {
	switch {
	case isOurs(imported):
		return matches(path+"/...", imported) || matchesAny(r.Ours, imported)
	case isStd(imported):
		return !matchesAny(r.NeverStd, imported)
	default:
		return matchesAny(r.SDKs, imported) || matchesAny(r.SDKs, anySDK)
	}
}

// checkLinks reports each banned package that a binary contains. A binary that
// does not exist yet has no dependencies; checkNames is what notices that.
func checkLinks(g graph, rules []linkRule) []string {
	var found []string
	for _, rule := range rules {
		for _, dep := range g[rule.Binary].Deps {
			for _, b := range rule.Never {
				if matches(b.Pattern, dep) {
					found = append(found, fmt.Sprintf("%s links %s: %s; see how with: go mod why -m, or go list -deps",
						rule.Binary, dep, b.Reason))
				}
			}
		}
	}
	return found
}

// checkOnly reports each package that depends on a target without being a user of it.
func checkOnly(g graph, rules []onlyRule) []string {
	var found []string
	for _, path := range g.sorted() {
		for _, rule := range rules {
			if matchesAny(rule.Users, path) || matchesAny(rule.Target, path) {
				continue
			}
			for _, dep := range g[path].Deps {
				if matchesAny(rule.Target, dep) && !matchesAny(rule.Except, dep) {
					found = append(found, fmt.Sprintf("%s depends on %s: %s", path, dep, rule.Reason))
					break // one is enough to find the import that brings in all
				}
			}
		}
	}
	return found
}

// checkNames reports rules that guard nothing: a pattern of this module that
// names no package, unless it is planned; and a planned one that has arrived.
func checkNames(g graph, named, planned []string) []string {
	var found []string
	isPlanned := map[string]bool{}
	for _, pattern := range planned {
		isPlanned[pattern] = true
		if g.has(pattern) {
			found = append(found, fmt.Sprintf("%s exists now, and its rules hold: delete it from the list of planned packages", pattern))
		}
	}
	seen := map[string]bool{}
	for _, pattern := range named {
		if !isOurs(pattern) || seen[pattern] {
			continue
		}
		seen[pattern] = true
		if !g.has(pattern) && !isPlanned[pattern] {
			found = append(found, fmt.Sprintf("%s is named by a rule and does not exist: rename it in the rule or delete the rule", pattern))
		}
	}
	return found
}
