package execenvtest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/agentdock/agentdock/internal/execenv"
)

var surroundingCases = []testCase{
	{clause: "X1", name: "environment_is_exactly_environ", run: exactEnvironment},
	{clause: "X1", name: "later_variables_win", run: laterWins},
	{clause: "X1", name: "arguments_arrive_as_they_are", run: exactArguments},
	{clause: "X2", name: "unprivileged_user_without_capabilities", needs: needsUnprivileged, run: unprivileged},
	{clause: "X2", name: "starts_in_the_workspace_or_below", run: startsInWorkspace},
	{clause: "X2", name: "owns_what_it_and_archives_write", run: ownsWorkspace},
}

// lines unquotes what probe prints with %q, line by line.
func (c *C) lines(s string) []string {
	c.Helper()
	var all []string
	for line := range strings.Lines(s) {
		text, err := strconv.Unquote(strings.TrimSuffix(line, "\n"))
		if err != nil {
			c.Errorf("cannot unquote %q: %v", line, err)
		}
		all = append(all, text)
	}
	return all
}

func exactEnvironment(c *C) {
	for _, env := range []map[string]string{
		nil,
		{"A": "1", "EMPTY": "", "SPACES": " a  b ", "NEWLINE": "a\nb", "BYTES": "\xff\xfe", "é": "ü", "LONG": strings.Repeat("x", 10000)},
	} {
		b := c.create(func(s *execenv.Spec) { s.Env = env })
		spec := probe("env")
		spec.Env = map[string]string{"MINE": "=$HOME"}
		for range 2 { // nothing of the first command's comes into the second's
			got := c.lines(b.exec(spec).finish().stdout)
			slices.Sort(got)
			if want := execenv.Environ(b.spec, spec); !slices.Equal(got, want) {
				c.Errorf("the program's environment is\n%q\nwant\n%q", got, want)
			}
			spec = probe("env")
		}
	}
}

func laterWins(c *C) {
	b := c.create(func(s *execenv.Spec) { s.Env = map[string]string{"A": "spec", "HOME": "/tmp"} })
	spec := probe("env")
	spec.Env = map[string]string{"A": "exec", "CI": "no"}
	got := c.lines(b.exec(spec).finish().stdout)
	for _, want := range []string{"A=exec", "HOME=/tmp", "CI=no", "AGENTDOCK_SANDBOX=true"} {
		if !slices.Contains(got, want) {
			c.Errorf("the environment lacks %s: %q", want, got)
		}
	}
}

func exactArguments(c *C) {
	b := c.create()
	args := []string{"", " ", "a b", "$HOME", "`id`", "*", "-x", "--", "a\nb", "'\"\\", "\xff\xfe", "é", strings.Repeat("y", 50000)}
	if got := c.lines(b.output("args", args...)); !slices.Equal(got, args) {
		c.Errorf("the program's arguments are %q, want %q", clip(fmt.Sprint(got)), clip(fmt.Sprint(args)))
	}
}

func unprivileged(c *C) {
	b := c.create()
	out := b.output("id")
	for _, want := range []string{
		fmt.Sprintf("uid %d %d\n", execenv.UID, execenv.UID),
		fmt.Sprintf("gid %d %d\n", execenv.GID, execenv.GID),
		"no_new_privs 1\n",
	} {
		if !strings.Contains(out, want) {
			c.Errorf("probe id lacks %q:\n%s", want, out)
		}
	}
	for line := range strings.Lines(out) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch name {
		case "groups":
			if value != "[]" && value != fmt.Sprintf("[%d]", execenv.GID) {
				c.Errorf("the program is in the groups %s", value)
			}
		case "CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:":
			if strings.Trim(value, "0") != "" {
				c.Errorf("the program has capabilities: %s", line)
			}
		}
	}
}

func startsInWorkspace(c *C) {
	b := c.create()
	b.output("mkdir", "/workspace/a/b c")
	for in, want := range map[string]string{
		"": "/workspace", ".": "/workspace", "a": "/workspace/a", "a/b c": "/workspace/a/b c", "./a//": "/workspace/a",
	} {
		spec := probe("pwd")
		spec.Dir = in
		if got := b.exec(spec).finish().stdout; got != want+"\n" {
			c.Errorf("in directory %q the program starts in %q, want %q", in, got, want)
		}
	}
}

func ownsWorkspace(c *C) {
	b := c.create()
	c.ok("PutArchive", b.PutArchive(c.ctx(), "put/deep", bytesReader(tarOf(c.T, file("f", 0o600, "private"), dir("d", 0o700)))))
	if got := b.output("read", "/workspace/put/deep/f"); got != "private" {
		c.Errorf("the program reads %q", got)
	}
	b.output("write", "/workspace/put/deep/f", "mine")
	b.output("write", "/workspace/put/deep/d/new", "mine")
	b.output("write", "/workspace/put/new", "mine")
	b.output("remove", "/workspace/put")
}
