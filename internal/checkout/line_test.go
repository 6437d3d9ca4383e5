package checkout_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/agentdock/agentdock/internal/checkout"
	"github.com/agentdock/agentdock/internal/checkout/reason"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/settings"
)

// oneLine holds an error, and what its owner may see of it, to the rule: one
// line that says who speaks once.
func oneLine(t *testing.T, err error) {
	t.Helper()
	for _, text := range []string{err.Error(), fault.Public(err)} {
		if strings.ContainsFunc(text, unicode.IsControl) || strings.Count(text, "cannot check out: ") > 1 {
			t.Errorf("it is not one line, or repeats itself: %q", text)
		}
	}
}

func orNothing(change func(*checkout.Config)) func(*checkout.Config) {
	if change == nil {
		return func(*checkout.Config) {}
	}
	return change
}

func removeAll(t *testing.T, name string) {
	t.Helper()
	if err := os.RemoveAll(name); err != nil {
		t.Fatal(err)
	}
}

// badSandbox fails in many lines.
type badSandbox struct {
	execenv.Sandbox
	put, exec error
}

func (s badSandbox) PutArchive(_ context.Context, _ string, r io.Reader) error {
	if s.put == nil {
		_, _ = io.Copy(io.Discard, r)
	}
	return s.put
}

func (s badSandbox) Exec(context.Context, execenv.ExecSpec) (execenv.Exec, error) { return nil, s.exec }

// TestErrorsOfOthersLeaveInOneLine: whatever a sandbox, a file system or the
// settings bring with them.
func TestErrorsOfOthersLeaveInOneLine(t *testing.T) {
	w := newWorld(t)
	c := w.open(t)
	first := errors.New("first")
	many := errors.Join(first, errors.Join(errors.New("second\nthird\r\n\x1b[31mred"), first))
	says := func(name string, err error) {
		t.Helper()
		if err == nil {
			t.Errorf("%s: there is no error", name)
			return
		}
		oneLine(t, err)
	}
	for name, sb := range map[string]badSandbox{
		"an archive": {put: many}, "an archive that does not fit": {put: fault.Wrap(fault.Exhausted, many, "full")}, "a command": {exec: many},
	} {
		for _, r := range []checkout.Repositories{c, checkout.Fixture{}} {
			_, err := r.Into(t.Context(), sb, w.private())
			if _, fixture := r.(checkout.Fixture); fixture && sb.put == nil {
				continue // it runs nothing
			}
			says(name, err)
			if !errors.Is(err, first) || strings.Count(err.Error(), "first") != 1 || !strings.Contains(err.Error(), "second; third") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	_, err := checkout.New(checkout.Config{Dir: "/dev/null/a\nb"})
	says("a directory", err)
	for _, s := range []settings.Checkout{
		{CheckoutDir: t.TempDir(), CheckoutCAFile: "/no\nfile"}, {CheckoutDir: "/dev/null/\n"},
		{CheckoutDir: t.TempDir(), GitHubAppID: "1\n2", GitHubAppKey: "a\nb"},
	} {
		_, err := checkout.Open(s, "test")
		says("settings", err)
	}
	for _, req := range []checkout.Request{{Repository: "https://a\nb/c"}, {Repository: w.URL + "/a/b", Ref: "a\nb"}, {Repository: "https://x/\x1b[31m"}} {
		_, err := c.Fetch(t.Context(), req)
		says(req.Repository, err)
	}
	w.left(t)
}

// TestNoErrorIsJoinedByLines: errors.Join puts a newline between errors, so what
// is joined below this package is joined with reason.Also.
func TestNoErrorIsJoinedByLines(t *testing.T) {
	files := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "checkouttest/") {
			return err
		}
		files++
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "Join" && fmt.Sprint(s.X) == "errors" {
				t.Errorf("%s uses errors.Join; use reason.Also", fset.Position(s.Pos()))
			}
			return true
		})
		return nil
	})
	if err != nil || files < 15 {
		t.Errorf("%d files were read: %v", files, err)
	}
}

// TestReasonsOfEveryKindAreOneLine is for those that no server here brings about.
func TestReasonsOfEveryKindAreOneLine(t *testing.T) {
	for _, a := range reason.Table() {
		inner := reason.Wrap(reason.Unavailable, errors.New("a\nb"), "it is\naway")
		oneLine(t, reason.Wrap(a.Code, fmt.Errorf("on the way: %w", inner), "it does not work"))
		oneLine(t, reason.Also(reason.Wrap(a.Code, errors.Join(inner, inner), "no"), inner))
		oneLine(t, reason.Also(errors.New("x\ny"), inner))
	}
}
