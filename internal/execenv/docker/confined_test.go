package docker

import (
	"os"
	"strings"
	"testing"

	"github.com/agentdock/agentdock/internal/testenv"
)

// The look at a sandbox finds everything wrong with a process that is not one: this
// test, which is root in the host's namespaces.
func TestAnUnconfinedProcessIsFoundOut(t *testing.T) {
	testenv.RequireRoot(t)
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	wrong := strings.Join(statusFaults(status, true), "\n")
	for _, fault := range []string{"no system call filter", "can gain privileges", "has capabilities (CapEff", "has capabilities (CapBnd", "no PID namespace", "no user apart on the host (Uid", "no user apart on the host (Gid"} {
		if !strings.Contains(wrong, fault) {
			t.Errorf("%q was not found in:\n%s", fault, wrong)
		}
	}
	if wrong := statusFaults(nil, true); len(wrong) < 10 {
		t.Errorf("of an empty file only %q is wrong", wrong)
	}
}

func TestANetworkIsFoundOut(t *testing.T) {
	const head = "Inter-|   Receive\n face |bytes\n"
	for dev, wrong := range map[string]int{
		head + "    lo:       0\n":               0,
		head + "    lo: 0\n  eth0: 12\n":         1,
		head + "    lo: 0\n  eth0: 1\n wg0: 3\n": 2,
		head:                                     1,
		"":                                       1,
	} {
		if got := interfaceFaults([]byte(dev)); len(got) != wrong {
			t.Errorf("%q: %q", dev, got)
		}
	}
}

func TestOptionsOfADaemon(t *testing.T) {
	for option, ok := range map[string]bool{
		"name=seccomp,profile=default": true, "name=seccomp,profile=builtin": true,
		"name=seccomp,profile=unconfined": false, "name=seccomp,profile=/etc/mine.json": false, "name=seccomp": false, "": false,
	} {
		if seccompOn([]string{option, "name=rootless"}) != ok {
			t.Errorf("%q", option)
		}
	}
	if hasOption([]string{"name=rootlessness"}, "rootless") || !hasOption([]string{"name=rootless"}, "rootless") {
		t.Error("rootless is not told apart")
	}
}
