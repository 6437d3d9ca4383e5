package doccheck

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/run"
)

// constants are those of a file whose name or type match, by name.
func constants(t *testing.T, file string, want func(name, typ string) bool) map[string]string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		typ := ""
		if id, ok := spec.Type.(*ast.Ident); ok {
			typ = id.Name
		}
		if lit, ok := spec.Values[0].(*ast.BasicLit); ok && want(spec.Names[0].Name, typ) {
			found[spec.Names[0].Name] = strings.Trim(lit.Value, `"`)
		}
		return true
	})
	if len(found) < 5 {
		t.Fatalf("found %v in %s", found, file)
	}
	return found
}

func TestEveryOutcomeAndExitStatusIsInTheTable(t *testing.T) {
	kinds, status := map[string]bool{}, map[string]bool{}
	for _, row := range rows(t, readDocument(t, "README.md").section(t, "Exit status")) {
		kinds[strings.Trim(row[0], "`")] = true
		for _, n := range regexp.MustCompile(`\d+`).FindAllString(row[2], -1) {
			status[n] = true
		}
	}
	known := map[string]bool{"none": true}
	for name, kind := range constants(t, "internal/run/outcome.go", func(_, typ string) bool { return typ == "Kind" }) {
		known[kind] = true
		if !kinds[kind] {
			t.Errorf("README.md's table of exit statuses lacks the outcome %s (run.%s)", kind, name)
		}
	}
	for kind := range kinds {
		if !known[kind] {
			t.Errorf("README.md's table of exit statuses has the outcome %s, which does not exist", kind)
		}
	}
	for name, n := range constants(t, "internal/oneshot/report.go", func(name, _ string) bool { return strings.HasPrefix(name, "Status") }) {
		if !status[n] {
			t.Errorf("README.md's table of exit statuses lacks %s (oneshot.%s)", n, name)
		}
	}
}

func TestLimitsAreThoseOfTheCode(t *testing.T) {
	bytes := func(v int64) string {
		for _, u := range []struct {
			size int64
			name string
		}{{run.GiB, "GiB"}, {run.MiB, "MiB"}, {run.KiB, "KiB"}} {
			if v >= u.size && v%u.size == 0 && v%1000 != 0 {
				return fmt.Sprintf("%d %s", v/u.size, u.name)
			}
		}
		if v == 1 {
			return "1 byte"
		}
		return fmt.Sprintf("%d bytes", v)
	}
	count := func(v int64) string { return strconv.FormatInt(v, 10) }
	cpus := func(v int64) string { return strconv.FormatFloat(float64(v)/1000, 'f', -1, 64) }
	clock := func(v int64) string {
		return strings.TrimSuffix(strings.TrimSuffix(time.Duration(v).String(), "0s"), "0m")
	}
	want := map[string][3]string{}
	for i, l := range []run.Limits{run.DefaultLimits(), run.Floor(), run.Ceiling()} {
		for flag, text := range map[string]string{
			"--cpus": cpus(l.MilliCPU), "--memory": bytes(l.MemoryBytes), "--pids": count(l.PIDs), "--disk": bytes(l.DiskBytes),
			"--inodes": count(l.Inodes), "--max-output": bytes(l.OutputBytes), "--timeout": clock(int64(l.WallClock)),
		} {
			w := want[flag]
			w[i] = text
			want[flag] = w
		}
	}
	for _, row := range rows(t, readDocument(t, "README.md").section(t, "Limits")) {
		flag := strings.Trim(row[0], "`")
		if w, ok := want[flag]; ok && [3]string(row[2:5]) != w {
			t.Errorf("README.md says of %s: default, least, most are %q; the code says %q", flag, row[2:5], w)
		}
		delete(want, flag)
	}
	for flag := range want {
		t.Errorf("README.md's table of limits lacks %s", flag)
	}
}

// TestTroubleshootingQuotesTheCode: each row begins with the words of a message
// that a program or a script has; "…" stands for what varies.
func TestTroubleshootingQuotesTheCode(t *testing.T) {
	s := theSource(t)
	for _, row := range rows(t, readDocument(t, "README.md").section(t, "Troubleshooting")) {
		m := codeSpan.FindStringSubmatch(row[0])
		if m == nil {
			t.Errorf("row %q quotes nothing", row[0])
			continue
		}
		if !s.says(m[1]) {
			t.Errorf("nothing says %q", m[1])
		}
	}
	if s.says("nothing … says this") {
		t.Error("a message that does not exist is found")
	}
}

func (s *source) says(quote string) bool {
	parts := strings.Split(quote, "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(strings.TrimSpace(parts[i]))
	}
	pattern := regexp.MustCompile(strings.Join(parts, `.*`))
	for _, l := range s.literals {
		if pattern.MatchString(l) {
			return true
		}
	}
	return pattern.MatchString(s.text)
}
