package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/agentdock/agentdock/internal/settings"
)

// tool finds a program that checks, or says that nothing was checked.
func tool(t *testing.T, name, debian string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	if os.Getenv("AGENTDOCK_TEST_REQUIRE_REAL") == "1" {
		t.Fatalf("%s is missing; install the package %s", name, debian)
	}
	t.Skipf("%s is missing (package %s)", name, debian)
	return ""
}

var processes = []string{"api", "worker", "execd"}

// machine is a root directory that has the units and what they name.
func machine(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	units := filepath.Join(root, "etc/systemd/system")
	bin := filepath.Join(root, "usr/local/bin")
	for _, dir := range []string{units, bin} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range processes {
		write(t, filepath.Join(units, "agentdock-"+p+".service"), read(t, "systemd/agentdock-"+p+".service"))
		if err := os.WriteFile(filepath.Join(bin, "agentdock-"+p), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, target := range []string{"sysinit", "basic", "shutdown", "multi-user", "network", "network-online", "sockets", "paths", "timers", "slices"} {
		write(t, filepath.Join(units, target+".target"), "[Unit]\nDescription="+target+"\n")
	}
	return root
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestUnitsAreSound(t *testing.T) {
	analyze := tool(t, "systemd-analyze", "systemd")
	root := machine(t)
	verify := func() (string, error) {
		args := []string{"verify", "--root=" + root, "--man=no"}
		for _, p := range processes {
			args = append(args, "agentdock-"+p+".service")
		}
		out, err := exec.Command(analyze, args...).CombinedOutput()
		return string(out), err
	}
	// Unknown settings are only a warning to it, so any word is too much.
	if out, err := verify(); err != nil || strings.TrimSpace(out) != "" {
		t.Errorf("%v\n%s", err, out)
	}
	// Control: it finds what is wrong.
	unit := filepath.Join(root, "etc/systemd/system/agentdock-api.service")
	write(t, unit, strings.Replace(read(t, unit), "ProtectSystem=strict", "ProtectSystm=strict", 1))
	if out, _ := verify(); !strings.Contains(out, "ProtectSystm") {
		t.Errorf("a misspelt setting is not found: %s", out)
	}
}

// The exposure of each, as systemd counts it (10 is nothing done). The execution
// service makes namespaces, mounts and control groups; the others need nothing.
func TestUnitsAreHardened(t *testing.T) {
	analyze := tool(t, "systemd-analyze", "systemd")
	root := machine(t)
	number := regexp.MustCompile(`exposure level for \S+: ([0-9.]+)`)
	for process, most := range map[string]float64{"api": 1.5, "worker": 1.5, "execd": 6} {
		out, err := exec.Command(analyze, "security", "--offline=true", "--root="+root, "agentdock-"+process+".service").CombinedOutput()
		m := number.FindSubmatch(out)
		if err != nil || m == nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if got, err := strconv.ParseFloat(string(m[1]), 64); err != nil || got > most {
			t.Errorf("%s: exposure %s, want at most %v", process, m[1], most)
		} else {
			t.Logf("%s: exposure %s", process, m[1])
		}
	}
}

// values are what a unit says of a setting, in all its lines.
func values(unit, name string) (all []string) {
	for line := range strings.Lines(unit) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), name+"="); ok {
			all = append(all, strings.Fields(v)...)
		}
	}
	return all
}

// The unit begins with exactly the capabilities that the program keeps: with
// fewer it does not start, and more would be a mistake in one of the two.
func TestExecdUnitHasTheCapabilitiesOfTheCode(t *testing.T) {
	var kept []string
	for _, m := range regexp.MustCompile(`\{unix\.CAP_\w+, "(CAP_\w+)"`).FindAllStringSubmatch(read(t, "../cmd/agentdock-execd/privileges.go"), -1) {
		kept = append(kept, m[1])
	}
	got := values(read(t, "systemd/agentdock-execd.service"), "CapabilityBoundingSet")
	slices.Sort(kept)
	slices.Sort(got)
	if len(kept) == 0 || !slices.Equal(got, kept) {
		t.Errorf("the unit has %v, the code keeps %v", got, kept)
	}
	for _, p := range []string{"api", "worker"} {
		if caps := values(read(t, "systemd/agentdock-"+p+".service"), "CapabilityBoundingSet"); len(caps) > 0 {
			t.Errorf("%s has capabilities: %v", p, caps)
		}
	}
}

// A service that may write nothing else needs a directory for each of its
// defaults.
func TestWorkerMayWriteWhereItDoes(t *testing.T) {
	dirs := values(read(t, "systemd/agentdock-worker.service"), "StateDirectory")
	for _, path := range []string{filepath.Dir(settings.DefaultWorker().SigningKeyFile), settings.DefaultCheckout().CheckoutDir} {
		if !slices.Contains(dirs, strings.TrimPrefix(path, "/var/lib/")) {
			t.Errorf("the unit has no StateDirectory for %s", path)
		}
		found := false
		worker, err := project(t).GetService("worker")
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range worker.Volumes {
			found = found || v.Target == path
		}
		if !found {
			t.Errorf("the compose file has no volume for %s", path)
		}
	}
}

// Nothing secret is below the trust line (A3).
func TestExecdUnitHasNoSecret(t *testing.T) {
	unit := read(t, "systemd/agentdock-execd.service")
	for _, name := range []string{"LoadCredential", "LoadCredentialEncrypted", "SetCredential", "PassEnvironment"} {
		if v := values(unit, name); len(v) > 0 {
			t.Errorf("%s=%v", name, v)
		}
	}
	hidden := values(unit, "InaccessiblePaths")
	for _, path := range []string{"/etc/agentdock/secrets", "/run/docker.sock"} {
		if !slices.Contains(hidden, "-"+path) {
			t.Errorf("%s can be seen", path)
		}
	}
	if v := values(unit, "Delegate"); len(v) == 0 {
		t.Error("no control groups are delegated to it")
	}
}

func TestUserAndDirectories(t *testing.T) {
	dir := t.TempDir()
	out, err := exec.Command(tool(t, "systemd-sysusers", "systemd"), "--dry-run", "--root="+dir, mustAbs(t, "systemd/agentdock.sysusers")).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "Creating user 'agentdock'") {
		t.Errorf("%v\n%s", err, out)
	}
	if os.Geteuid() != 0 {
		t.Skip("missing: root, to give directories their owners")
	}
	out, err = exec.Command(tool(t, "systemd-tmpfiles", "systemd"), "--create", "--root="+dir, mustAbs(t, "systemd/agentdock.tmpfiles")).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if info, err := os.Stat(dir + "/etc/agentdock/secrets"); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("secrets are open: %v, %v", info, err)
	}
}

func mustAbs(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}
