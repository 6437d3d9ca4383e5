package boundary

import "testing"

// TestModule holds the module as it is now to the tables.
func TestModule(t *testing.T) {
	g, err := load("../..")
	if err != nil {
		t.Fatal(err)
	}
	if !g.has("./internal/boundary") {
		t.Fatalf("cannot check the module: the list of its %d packages lacks this one", len(g))
	}
	for name, found := range map[string][]string{
		"imports": checkImports(g, importRules),
		"links":   checkLinks(g, linkRules),
		"only":    checkOnly(g, onlyRules),
		"names":   checkNames(g, named(), planned),
	} {
		t.Run(name, func(t *testing.T) {
			for _, violation := range found {
				t.Error(violation)
			}
		})
	}
}

// TestReasons keeps the tables what they are for.
func TestReasons(t *testing.T) {
	for _, r := range importRules {
		if r.Reason == "" {
			t.Errorf("the import rule for %v has no reason", r.Packages)
		}
	}
	for _, r := range linkRules {
		for _, b := range r.Never {
			if b.Reason == "" {
				t.Errorf("the ban of %s from %s has no reason", b.Pattern, r.Binary)
			}
		}
	}
	for _, r := range onlyRules {
		if r.Reason == "" {
			t.Errorf("the rule for users of %v has no reason", r.Target)
		}
	}
}
