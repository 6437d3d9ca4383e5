package doccheck

import (
	"regexp"
	"strings"
	"testing"
)

// TestNamedThingsExist looks at everything between backticks.
func TestNamedThingsExist(t *testing.T) {
	s := theSource(t)
	for _, d := range documents(t) {
		d.spans(func(line int, text string) {
			for _, problem := range s.check(text) {
				t.Errorf("%s:%d: `%s`: %s", d.name, line, text, problem)
			}
		})
	}
}

var (
	testName   = regexp.MustCompile(`^(Test|Fuzz)[A-Z]\w+$`)
	caseName   = regexp.MustCompile(`^[PXOAG]\d+_\w+$`)
	symbolName = regexp.MustCompile(`^([a-z]\w*)\.(\w+(?:\.\w+)?)$`)
	pathName   = regexp.MustCompile(`^(api|cmd|docs|fixtures|infrastructure|internal|scripts|tests|tools|\.ci)/[\w./-]+$`)
	fileName   = regexp.MustCompile(`^[\w.-]+\.(go|md|sh|proto|mod|yml)$`)
	makeTarget = regexp.MustCompile(`^(?:sudo )?make ([a-z-]+)`)
	flagName   = regexp.MustCompile(`(?:^|\s)--([a-z][a-z0-9-]+)`)
	ourProgram = regexp.MustCompile(`^(sudo )?agentdock(-execd)?( |$)`)
)

// theirNames are files that look like symbols of ours.
var theirNames = map[string]bool{
	"cgroup.kill": true, "memory.events": true, "memory.max": true, "memory.oom.group": true, "memory.oom_control": true,
	"index.json": true, "guest.erofs": true,
}

// methodName: documents name methods without their package now and then.
var methodName = regexp.MustCompile(`^([A-Za-z]\w*)\.(\w+)$`)

// check says what is wrong with one piece of text.
func (s *source) check(text string) (problems []string) {
	wrong := func(what string) { problems = append(problems, what) }
	switch {
	case testName.MatchString(text):
		if !s.tests[text] {
			wrong("there is no such test")
		}
	case caseName.MatchString(text):
		if !s.cases[text] {
			wrong("the contract suite has no such case")
		}
	case pathName.MatchString(text):
		if !s.files[strings.TrimSuffix(text, "/")] {
			wrong("there is no such file or directory")
		}
	case fileName.MatchString(text):
		if !s.bases[text] {
			wrong("there is no such file")
		}
	case symbolName.MatchString(text):
		m := symbolName.FindStringSubmatch(text)
		if theirNames[text] {
			break
		}
		if known := s.symbols[m[1]]; known != nil {
			if !known[m[2]] {
				wrong("package " + m[1] + " has no such symbol")
			}
		} else if typ, ok := s.typeNamed(m[1]); ok && !typ[m[1]+"."+m[2]] {
			wrong("type " + m[1] + " has no such member")
		}
	case methodName.MatchString(text):
		m := methodName.FindStringSubmatch(text)
		if typ, ok := s.typeNamed(m[1]); ok && !typ[text] {
			wrong("type " + m[1] + " has no such member")
		}
	}
	for _, m := range makeTarget.FindAllStringSubmatch(text, -1) {
		if !s.targets[m[1]] {
			wrong("there is no make target " + m[1])
		}
	}
	if v := variable.FindString(text); v != "" && !s.variables[v] {
		wrong("no program reads " + v)
	}
	if strings.HasPrefix(text, "--") || ourProgram.MatchString(text) {
		for _, m := range flagName.FindAllStringSubmatch(text, -1) {
			if !s.flag(m[1]) {
				wrong("no program has a flag --" + m[1])
			}
		}
	}
	return problems
}

// typeNamed finds the members of all types or functions with that name.
func (s *source) typeNamed(name string) (members map[string]bool, ok bool) {
	members = map[string]bool{}
	for _, symbols := range s.symbols {
		if !symbols[name] {
			continue
		}
		ok = true
		for symbol := range symbols {
			members[symbol] = true
		}
	}
	return members, ok
}

// theirFlags belong to programs of others that documents mention.
var theirFlags = map[string]bool{"overlay2": true}

func (s *source) flag(name string) bool {
	if theirFlags[name] {
		return true
	}
	for _, l := range s.literals {
		if l == name {
			return true
		}
	}
	return false
}

// A checker that finds nothing is worth nothing.
func TestWrongNamesAreFound(t *testing.T) {
	s := theSource(t)
	for text, want := range map[string]int{
		"TestNothingAtAll": 1, "TestWrongNamesAreFound": 0,
		"P9_there_is_none": 1, "P6_destroy_twice": 0,
		"internal/nothing": 1, "internal/doccheck": 0, "cmd/agentdock/": 0,
		"nothing.go": 1, "go.mod": 0,
		"run.Nothing": 1, "run.Outcome": 0, "run.Outcome.Kind": 0, "run.Outcome.Nothing": 1,
		"Environment.Nothing": 1, "Environment.Create": 0,
		"gvisor.box.Boot": 0, "box.Boot": 0, "box.nothing": 1,
		"make nothing": 1, "make test": 0,
		"AGENTDOCK_NOTHING": 1, "AGENTDOCK_IMAGE_DIR": 0,
		"AGENTDOCK_EXECD_NOTHING": 1, "AGENTDOCK_EXECD_MAX_CPU": 0,
		"--nothing": 1, "--max-cpu": 0,
		"memory.events": 0, "rm --nothing": 0,
	} {
		if got := s.check(text); len(got) != want {
			t.Errorf("%q: %q, want %d problems", text, got, want)
		}
	}
	if problem := follow(t, document{name: "docs/adr/x.md"}, "../nothing.md"); problem == "" {
		t.Error("a link to nothing is not found")
	}
	if problem := follow(t, document{name: "docs/adr/x.md"}, "../../README.md#nothing"); problem == "" {
		t.Error("a link to no heading is not found")
	}
}
