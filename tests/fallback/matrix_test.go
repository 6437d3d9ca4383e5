package fallback

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/testenv"
)

// process is one with a part in running untrusted work, with where it would listen
// and what it would make.
type process struct {
	name    string
	command func(dir, address string) []string
	environ func(dir, address string) []string
}

var processes = []process{
	{"agentdock-execd", func(dir, _ string) []string {
		return []string{"agentdock-execd", "--socket", dir + "/made/socket", "--state-dir", dir + "/made/state"}
	}, nil},
	{"agentdock-worker", func(string, string) []string { return []string{"agentdock-worker"} }, func(dir, address string) []string {
		return []string{"AGENTDOCK_WORKER_LISTEN=" + address, "AGENTDOCK_SIGNING_KEY_FILE=" + dir + "/made/key.pem",
			"DATABASE_URL=postgres://nobody@127.0.0.1:1/none", "REDIS_URL=redis://127.0.0.1:1/0", "ARTIFACT_DIR=" + dir + "/made/artifacts"}
	}},
	{"agentdock-api", func(string, string) []string { return []string{"agentdock-api"} }, func(dir, address string) []string {
		return []string{"AGENTDOCK_API_LISTEN=" + address,
			"DATABASE_URL=postgres://nobody@127.0.0.1:1/none", "REDIS_URL=redis://127.0.0.1:1/0", "ARTIFACT_DIR=" + dir + "/made/artifacts"}
	}},
	{"agentdock up", func(dir, address string) []string {
		return []string{"agentdock", "up", "--listen", address, "--data", dir + "/made/data"}
	}, func(dir, _ string) []string { return []string{"AGENTDOCK_RUNTIME_DIR=" + dir + "/made/run"} }},
	{"agentdock run", func(string, string) []string {
		return []string{"agentdock", "run", "--local", "--image", testenv.BareImage, "--", guest, "probe", "kernel"}
	}, func(dir, _ string) []string { return []string{"AGENTDOCK_RUNTIME_DIR=" + dir + "/made/run"} }},
}

// TestTheFallbackIsRefused is the matrix of the two settings for each process. What
// is not refused for them starts, or says what else it lacks here: a database, a
// Docker daemon, a user who is not root.
func TestTheFallbackIsRefused(t *testing.T) {
	testenv.RequireRoot(t)
	bin, images := testenv.Binaries(t), testenv.BareStore(t)
	for _, p := range processes {
		for _, mode := range []string{"", "api_key", "dev"} {
			for _, runtime := range []string{"", "gvisor", "docker"} {
				t.Run(fmt.Sprintf("%s/AUTH_MODE=%s/SANDBOX_RUNTIME=%s", p.name, mode, runtime), func(t *testing.T) {
					a := p.attempt(t, bin, images, mode, runtime)
					// up chooses dev on a loopback address.
					refused := runtime == "docker" && mode != "dev" && (p.name != "agentdock up" || mode != "")
					if names := strings.Contains(a.said, "SANDBOX_RUNTIME is docker and AUTH_MODE is api_key"); names != refused {
						t.Errorf("refused for the two settings: %v, want %v: %s", names, refused, a.said)
					}
					if !refused {
						t.Logf("started: %v; %s", a.started, firstLine(a.said))
						return
					}
					if a.started {
						t.Error("it listens")
					}
					if want := map[bool]int{true: 125, false: 1}[strings.HasPrefix(p.name, "agentdock ")]; a.status != want {
						t.Errorf("exit status %d, want %d", a.status, want)
					}
					if made := madeIn(a.dir); len(made) > 0 {
						t.Errorf("it made %q", made)
					}
					t.Logf("exit status %d: %s", a.status, firstLine(a.said))
				})
			}
		}
	}
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

// attempted is what came of a start.
type attempted struct {
	dir, said string
	status    int
	started   bool
}

// attempt starts a process, and stops it as soon as it listens.
func (p process) attempt(t *testing.T, bin, images, mode, runtime string) (a attempted) {
	t.Helper()
	dir, err := os.MkdirTemp("", "fb") // short: a socket's path has a limit
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	a.dir = dir
	address := freeAddress(t)
	argv := p.command(a.dir, address)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, argv[0]), argv[1:]...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + a.dir, "AGENTDOCK_IMAGE_DIR=" + images, "SANDBOX_IMAGE=" + testenv.BareImage}
	if p.environ != nil {
		cmd.Env = append(cmd.Env, p.environ(a.dir, address)...)
	}
	for name, value := range map[string]string{"AUTH_MODE": mode, "SANDBOX_RUNTIME": runtime} {
		if value != "" {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	for {
		select {
		case <-ended:
			a.said, a.status = out.String(), cmd.ProcessState.ExitCode()
			return a
		case <-time.After(time.Millisecond):
		}
		if a.started || !listens(a.dir, address) {
			continue
		}
		a.started = true
		_ = cmd.Process.Signal(unix.SIGTERM)
	}
}

func listens(dir, address string) bool {
	for network, at := range map[string]string{"tcp": address, "unix": dir + "/made/socket"} {
		if c, err := net.Dial(network, at); err == nil {
			c.Close()
			return true
		}
	}
	return false
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// madeIn lists what a process made. The directory of private services may be there:
// it is where one would have been started.
func madeIn(dir string) (made []string) {
	top := filepath.Join(dir, "made")
	_ = filepath.WalkDir(top, func(path string, _ os.DirEntry, err error) error {
		if err == nil && path != top && path != filepath.Join(top, "run") {
			made = append(made, path)
		}
		return nil
	})
	return made
}
