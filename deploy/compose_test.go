package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"

	"github.com/agentdock/agentdock/internal/execd"
)

// project loads the file as docker compose does, against the schema.
func project(t *testing.T) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{"compose/compose.yaml"}, cli.WithProfiles([]string{"*"}))
	if err != nil {
		t.Fatal(err)
	}
	p, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestComposeFileIsSound(t *testing.T) {
	p := project(t)
	for _, name := range []string{"api", "migrate", "worker", "execd", "image", "postgres", "redis", "s3"} {
		if _, err := p.GetService(name); err != nil {
			t.Error(err)
		}
	}
	for name, s := range p.Services {
		for _, v := range s.Volumes {
			if strings.Contains(v.Source, "docker.sock") || strings.Contains(v.Source, "containerd") {
				t.Errorf("%s has an engine's socket (A2): %s", name, v.Source)
			}
		}
		if s.Privileged || s.Pid == "host" || s.NetworkMode == "host" {
			t.Errorf("%s is privileged or on the host", name)
		}
		if s.Build != nil {
			if _, err := os.Stat(filepath.Join(s.Build.Context, s.Build.Dockerfile)); err != nil {
				t.Error(err)
			}
			if !strings.Contains(read(t, "compose/Dockerfile"), " AS "+s.Build.Target+"\n") {
				t.Errorf("the Dockerfile has no stage %s", s.Build.Target)
			}
		}
	}
}

// The execution service has no secret, no network, and root's powers only as far
// as the code keeps them.
func TestComposeKeepsTheTrustLine(t *testing.T) {
	s, err := project(t).GetService("execd")
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Secrets) > 0 || s.NetworkMode != "none" || len(s.Networks) > 0 {
		t.Errorf("secrets %v, network %q, %v", s.Secrets, s.NetworkMode, s.Networks)
	}
	var environ []string
	for name, value := range s.Environment {
		if !strings.HasPrefix(name, execd.Prefix) {
			t.Errorf("variable %s is not the service's", name)
		}
		if value != nil {
			environ = append(environ, name+"="+*value)
		}
	}
	if err := execd.CheckEnvironment(environ); err != nil {
		t.Error(err)
	}
	got := slices.Sorted(slices.Values(s.CapAdd))
	for i := range got {
		got[i] = "CAP_" + got[i]
	}
	want := values(read(t, "systemd/agentdock-execd.service"), "CapabilityBoundingSet")
	slices.Sort(want)
	if !slices.Equal(got, want) || !slices.Equal(s.CapDrop, []string{"ALL"}) {
		t.Errorf("capabilities %v, dropped %v; want %v", got, s.CapDrop, want)
	}
}

// Passwords are in files, and no variable holds one.
func TestComposeSecretsAreFiles(t *testing.T) {
	for name, s := range project(t).Services {
		for variable, value := range s.Environment {
			if value == nil || strings.HasSuffix(variable, "_FILE") {
				continue
			}
			for _, secret := range []string{"DATABASE_URL", "REDIS_URL", "PASSWORD", "SECRET", "ACCESS_KEY"} {
				if strings.Contains(variable, secret) {
					t.Errorf("%s: %s is in the environment", name, variable)
				}
			}
		}
	}
}

func TestSecretsAreMadeOnce(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "secrets.sh")
	write(t, script, read(t, "compose/secrets.sh"))
	run := func() map[string]string {
		if out, err := exec.Command("sh", script).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		made := map[string]string{}
		for name := range project(t).Secrets {
			made[name] = read(t, filepath.Join(dir, "secrets", name))
			if len(made[name]) < 30 {
				t.Errorf("%s is %q", name, made[name])
			}
		}
		return made
	}
	first, second := run(), run()
	for name := range first {
		if first[name] != second[name] {
			t.Errorf("%s has changed", name)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "secrets")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory is open: %v, %v", info, err)
	}
}
