package enginesocket

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentdock/agentdock/internal/fault"
)

// world is a root directory with nothing in it but a list of mounts.
func world(t *testing.T, mounts string) string {
	t.Helper()
	root, err := os.MkdirTemp("", "es") // short: a socket's path has a limit
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	write(t, root+"/proc/self/mountinfo", mounts)
	return root
}

func write(t *testing.T, name, data string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
}

func listen(t *testing.T, name string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
}

const harmless = "21 1 8:1 / / rw - ext4 /dev/sda1 rw\n22 21 0:5 / /proc rw - proc proc rw\n"

func TestEverySocketIsFound(t *testing.T) {
	sockets := []string{
		"/var/run/docker.sock", "/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock",
		"/run/k3s/containerd/containerd.sock", "/run/crio/crio.sock", "/run/cri-dockerd.sock", "/run/buildkit/buildkitd.sock",
		"/run/user/1234/docker.sock", "/run/user/1234/podman/podman.sock", "/xdg/podman/podman.sock", "/h/.docker/run/docker.sock",
	}
	for _, socket := range sockets {
		root := world(t, harmless)
		s := Surroundings{Root: root, UID: 1234, Environ: []string{"HOME=/h", "XDG_RUNTIME_DIR=/xdg", "PATH=/bin"}}
		if err := s.Refuse(); err != nil {
			t.Fatalf("without a socket: %v", err)
		}
		listen(t, root+socket)
		if err := s.Refuse(); !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), socket) {
			t.Errorf("with %s: %v", socket, err)
		}
	}
}

func TestMountedSocketsAreFound(t *testing.T) {
	for name, mount := range map[string]string{
		"under another name": "40 21 0:24 /docker.sock /engine/control rw - tmpfs tmpfs rw\n",
		"in another place":   "40 21 0:24 /x /some\\040where/podman.sock rw - tmpfs tmpfs rw\n",
	} {
		root := world(t, harmless+mount)
		to := map[string]string{"under another name": "/engine/control", "in another place": "/some where/podman.sock"}[name]
		listen(t, root+to)
		if err := (Surroundings{Root: root}).Refuse(); !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), to) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestVariablesAreFound(t *testing.T) {
	root := world(t, harmless)
	for _, name := range []string{"DOCKER_HOST", "CONTAINER_HOST", "CONTAINERD_ADDRESS"} {
		s := Surroundings{Root: root, Environ: []string{name + "=tcp://10.0.0.1:2375"}}
		if err := s.Refuse(); !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		s.Environ = []string{name + "="}
		if err := s.Refuse(); err != nil {
			t.Errorf("%s is empty: %v", name, err)
		}
	}
}

// TestWhatIsNoWayThere: files that are no sockets, and sockets that are not an
// engine's, stop nobody.
func TestWhatIsNoWayThere(t *testing.T) {
	root := world(t, harmless+"41 21 0:24 /execd.sock /run/agentdock/execd.sock rw - tmpfs tmpfs rw\n")
	write(t, root+"/run/docker.sock", "")
	listen(t, root+"/run/agentdock/execd.sock")
	listen(t, root+"/run/user/99/docker.sock") // of somebody else
	if err := (Surroundings{Root: root, UID: 1234}).Refuse(); err != nil {
		t.Error(err)
	}
}

// TestNotKnowingIsNoLeave: without a list of mounts nobody can say.
func TestNotKnowingIsNoLeave(t *testing.T) {
	root := world(t, harmless)
	if err := os.Remove(root + "/proc/self/mountinfo"); err != nil {
		t.Fatal(err)
	}
	if err := (Surroundings{Root: root}).Refuse(); !fault.Is(err, fault.Denied) {
		t.Error(err)
	}
}

func TestASocketIsNamedOnce(t *testing.T) {
	root := world(t, harmless)
	listen(t, root+"/run/docker.sock")
	if err := os.Symlink("run", root+"/var"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(".", root+"/run/run"); err != nil {
		t.Fatal(err)
	}
	found, err := (Surroundings{Root: root}).Find()
	if err != nil || len(found) != 1 {
		t.Errorf("%q, %v", found, err)
	}
}
