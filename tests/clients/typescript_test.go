package clients

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const sdk = "../../sdk/typescript"

// TestTypeScript runs our own client, built as it is packed, against "agentdock
// up" on real sandboxes.
func TestTypeScript(t *testing.T) {
	images := defaultImage(t)
	node := installNode(t)
	work := filepath.Join(t.TempDir(), "typescript")
	copySDK(t, work)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	install(ctx, t, work)
	tool := func(name string, args ...string) []byte {
		t.Helper()
		cmd := exec.CommandContext(ctx, node, append([]string{filepath.Join(work, "node_modules", name)}, args...)...)
		cmd.Dir = work
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		return out
	}
	t.Run("generated", func(t *testing.T) {
		contract, err := filepath.Abs("../../api/openapi.yaml")
		if err != nil {
			t.Fatal(err)
		}
		tool("openapi-typescript/bin/cli.js", contract, "--output", "again.ts")
		want, got := read(t, filepath.Join(work, "again.ts")), read(t, filepath.Join(work, "src/schema.ts"))
		if _, types, _ := bytes.Cut(got, []byte("\n")); !bytes.Equal(types, want) {
			t.Error("src/schema.ts is not what the contract generates; run scripts/generate.sh and commit it")
		}
	})
	tool("typescript/bin/tsc", "--project", "tsconfig.build.json")
	up := startUp(t, images)
	w := &world{T: t, node: node, environ: []string{"AGENTDOCK_URL=" + up.url, "AGENTDOCK_API_KEY=" + up.key}}
	t.Run("readme", func(t *testing.T) {
		script, want := readmeExample(t)
		if err := os.WriteFile(filepath.Join(work, "readme.ts"), []byte(script), 0o644); err != nil {
			t.Fatal(err)
		}
		tool("typescript/bin/tsc", "--project", "tsconfig.readme.json")
		cmd := exec.CommandContext(ctx, node, "--disable-warning=ExperimentalWarning", "readme.ts")
		cmd.Dir, cmd.Env = work, append(os.Environ(), w.environ...)
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != want {
			t.Errorf("it printed %q (%v), want %q", out, err, want)
		}
	})
	for _, file := range []string{"checks.mjs", "sdk/run.mjs"} {
		if err := os.WriteFile(filepath.Join(work, filepath.Base(file)), read(t, file), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	passed := w.check(ctx, work)
	if want := promised(t, "@agentdock/client"); !t.Failed() && strconv.Itoa(passed) != want {
		t.Errorf("%d checks, and the README says %s", passed, want)
	}
}

// copySDK copies what is in the repository of the client, and not what was
// installed or built beside it.
func copySDK(t *testing.T, to string) {
	t.Helper()
	entries, err := os.ReadDir(sdk)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		from, into := filepath.Join(sdk, e.Name()), filepath.Join(to, e.Name())
		switch {
		case e.Name() == "node_modules", e.Name() == "dist":
		case e.IsDir():
			err = os.CopyFS(into, os.DirFS(from))
		default:
			err = errors.Join(os.MkdirAll(to, 0o755), os.WriteFile(into, read(t, from), 0o644))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// readmeExample is the example of the client's README, and what it says that it
// prints.
func readmeExample(t *testing.T) (script, prints string) {
	t.Helper()
	readme := string(read(t, filepath.Join(sdk, "README.md")))
	_, rest, found := strings.Cut(readme, "```ts\n")
	script, rest, ended := strings.Cut(rest, "```")
	_, rest, said := strings.Cut(rest, "```\n")
	prints, _, over := strings.Cut(rest, "```")
	if !found || !ended || !said || !over {
		t.Fatal("the client's README has no example, or does not say what it prints")
	}
	return script, prints
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
