// Package e2e runs the command line as a user does, on real sandboxes. Each
// scenario is a script in testdata.
package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestScripts(t *testing.T) { scripts(t, "testdata") }

// TestFreshMachine makes the default image, which takes a minute of the whole
// machine: nothing else runs beside it.
func TestFreshMachine(t *testing.T) { scripts(t, "testdata/fresh") }

func scripts(t *testing.T, dir string) {
	bin := binaries(t)
	testscript.Run(t, testscript.Params{
		Dir:                dir,
		RequireUniqueNames: true,
		Setup: func(env *testscript.Env) error {
			// A directory of its own for each script, so that what it leaves is
			// told from what others do on this machine.
			runtime, err := os.MkdirTemp("", "ad")
			if err != nil {
				return err
			}
			env.Defer(func() { _ = os.RemoveAll(runtime) })
			env.Setenv("AGENTDOCK_RUNTIME_DIR", runtime)
			env.Setenv("AGENTDOCK_IMAGE_DIR", os.Getenv("AGENTDOCK_IMAGE_DIR"))
			env.Setenv("PATH", bin+string(filepath.ListSeparator)+env.Getenv("PATH"))
			env.Setenv("SECRET_OF_THE_HOST", "hunter2")
			env.Values[notesKey] = &notes{}
			up := &platform{}
			env.Values[platformKey] = up
			env.Defer(up.stop)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"status":      cmdStatus,
			"json":        cmdJSON,
			"lines":       cmdLines,
			"killed":      cmdKilled,
			"nothingleft": cmdNothingLeft,
			"up":          cmdUp,
			"down":        cmdDown,
			"await":       cmdAwait,
			"keep":        cmdKeep,
			"killexecd":   cmdKillExecd,
			"configfile":  cmdConfigFile,
			"nokey":       cmdNoKey,
			"said":        cmdSaid,
			"engine":      cmdEngine,
			"reaches":     cmdReaches,
		},
	})
}

// binaries is the directory of what is tested. Where the real thing cannot run,
// the test is skipped and says what is missing; where it must run, it fails.
func binaries(t *testing.T) string {
	t.Helper()
	missing := func(format string, args ...any) {
		t.Helper()
		if os.Getenv("AGENTDOCK_TEST_REQUIRE_REAL") == "1" {
			t.Fatalf(format, args...)
		}
		t.Skipf(format, args...)
	}
	bin := os.Getenv("AGENTDOCK_TEST_BIN")
	if bin == "" {
		missing("AGENTDOCK_TEST_BIN does not name the directory of the binaries; build them with: make build")
	}
	bin, err := filepath.Abs(bin)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"agentdock", "agentdock-api", "agentdock-worker", "agentdock-execd", "agentdock-guest"} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			missing("%v; build it with: make build", err)
		}
	}
	if os.Getuid() != 0 {
		missing("sandboxes need root")
	}
	out, err := exec.Command(filepath.Join(bin, "agentdock"), "image", "list", "--json").Output()
	if err != nil {
		t.Fatalf("agentdock image list: %v", err)
	}
	if !strings.Contains(string(out), `"default"`) {
		missing("there is no default image; make it with: agentdock image build")
	}
	return bin
}

// cmdStatus runs a command that must end with a status: status N command args…
func cmdStatus(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N command [args…]")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := 0
	if err != nil {
		exit, ok := err.(*exec.ExitError)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if fmt.Sprint(got) != args[0] {
		ts.Fatalf("exit status %d, want %s", got, args[0])
	}
}

// cmdJSON looks into the one object on stdout: json path.to.field value, where
// value is as JSON writes it. "! json path" says that it is not there.
func cmdJSON(ts *testscript.TestScript, neg bool, args []string) {
	text := ts.ReadFile("stdout")
	if strings.Count(text, "\n") != 1 {
		ts.Fatalf("stdout is not one line: %q", text)
	}
	var at any
	if err := json.Unmarshal([]byte(text), &at); err != nil {
		ts.Fatalf("stdout is not JSON: %v", err)
	}
	for _, key := range strings.Split(args[0], ".") {
		object, _ := at.(map[string]any)
		if list, ok := at.([]any); ok {
			object = map[string]any{}
			for i, v := range list {
				object[fmt.Sprint(i)] = v
			}
		}
		v, ok := object[key]
		if ok == neg && (neg || !ok) {
			ts.Fatalf("%s: there: %v, in %s", args[0], ok, text)
		}
		at = v
	}
	if neg {
		return
	}
	got, err := json.Marshal(at)
	ts.Check(err)
	if len(args) > 1 && string(got) != args[1] {
		ts.Fatalf("%s is %s, want %s", args[0], got, args[1])
	}
}

// cmdLines compares the lines of stdout or stderr, in any order: lines stdout line…
func cmdLines(ts *testscript.TestScript, _ bool, args []string) {
	got := strings.Split(strings.TrimSuffix(ts.ReadFile(args[0]), "\n"), "\n")
	want := slices.Clone(args[1:])
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		ts.Fatalf("%s is %q, want %q", args[0], got, want)
	}
}
