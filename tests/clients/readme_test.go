package clients

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// checkReadme runs what the README shows, to the letter, and counts the checks
// that its table promises.
func (w *world) checkReadme(dir string) {
	w.Helper()
	readme, err := os.ReadFile("../../README.md")
	w.ok(err)
	_, rest, found := strings.Cut(string(readme), "```js\n")
	script, _, ended := strings.Cut(rest, "```")
	if !found || !ended {
		w.Fatal("the README has no script")
	}
	w.ok(os.WriteFile(filepath.Join(dir, "readme.mjs"), []byte(script), 0o644))
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	node := exec.CommandContext(ctx, w.node, "readme.mjs")
	node.Dir = dir
	node.Env = append(os.Environ(), w.environment()...)
	out, err := node.CombinedOutput()
	if want := "hello from /workspace/hello.py\nagent\n\n[ 'hello.py' ]\n"; err != nil || string(out) != want {
		w.Errorf("it printed %q (%v), want %q", out, err, want)
	}
}

// promised is how many checks of a client the README names.
func promised(t *testing.T, client string) string {
	t.Helper()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(readme)) {
		if cells := strings.Split(line, "|"); len(cells) == 5 && strings.Contains(cells[1], "`"+client+"`") {
			return strings.TrimSpace(cells[3])
		}
	}
	t.Fatalf("the README says nothing about %s", client)
	return ""
}
