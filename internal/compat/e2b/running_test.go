package e2b

import (
	"slices"
	"strings"
	"testing"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
)

// TestNames: what a command's name holds is what comes out of it again, and every
// name is one that a sandbox takes.
func TestNames(t *testing.T) {
	for _, tag := range []string{"", "a", "build", "Grüße 世界", strings.Repeat("x", maxTag), "\xff"} {
		p, err := newProcess(&tag)
		if err != nil {
			t.Fatal(err)
		}
		if err := execenv.ValidateID(p.name()); err != nil {
			t.Errorf("%q: %v", tag, err)
		}
		got, ok := processOf(execenv.ExecInfo{ID: p.name()})
		if !ok || got.pid != p.pid || tag != "" && *got.tag != text(tag) || tag == "" && got.tag != nil {
			t.Errorf("%q: %+v", tag, got)
		}
	}
	long := strings.Repeat("x", maxTag+1)
	if _, err := newProcess(&long); !fault.Is(err, fault.Invalid) {
		t.Errorf("a long tag: %v", err)
	}
	for _, id := range []string{"e2b-kernel-python-1", "e2b-0", "e2b-99999999999", "e2b-", "x", "e2b-1-w", "e2b-1-"} {
		if p, ok := processOf(execenv.ExecInfo{ID: id}); ok {
			t.Errorf("%q: %+v", id, p)
		}
	}
}

func TestDescriptions(t *testing.T) {
	for _, c := range []struct {
		argv []string
		dir  string
		want []string
	}{
		{[]string{"/bin/bash", "-l", "-c", "x"}, "", []string{"/workspace", "/bin/bash", "-l", "-c", "x"}},
		{[]string{"true"}, "a/b", []string{"/workspace/a/b", "true"}},
		{inDirectory("/tmp", []string{"ls", "-l"}), "", []string{"/tmp", "ls", "-l"}},
		{[]string{"/usr/bin/env", "A=b", "--", "true"}, "", []string{"/workspace", "/usr/bin/env", "A=b", "--", "true"}},
	} {
		d := process{ExecInfo: execenv.ExecInfo{Argv: c.argv, Dir: c.dir}}.describe()
		if got := slices.Concat([]string{d.GetConfig().GetCwd(), d.GetConfig().GetCmd()}, d.GetConfig().GetArgs()); !slices.Equal(got, c.want) {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
