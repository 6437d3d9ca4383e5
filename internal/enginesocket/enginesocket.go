// Package enginesocket finds container engines that this process could reach.
// Whoever reaches one is root on its host. What handles untrusted work must not
// be able to, so it looks before it starts, and refuses (REQUIREMENTS A2).
package enginesocket

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/fault"
)

// variables lead the clients of engines to them.
var variables = []string{"DOCKER_HOST", "DOCKER_CONTEXT", "CONTAINER_HOST", "CONTAINER_CONNECTION", "CONTAINERD_ADDRESS", "BUILDKIT_HOST", "CONTAINER_RUNTIME_ENDPOINT"}

// places are where engines listen, with /var/run as another name of /run.
var places = []string{
	"/run/docker.sock",
	"/run/docker/containerd/containerd.sock",
	"/run/cri-dockerd.sock",
	"/run/podman/podman.sock",
	"/run/containerd/containerd.sock",
	"/run/k3s/containerd/containerd.sock",
	"/run/crio/crio.sock",
	"/run/buildkit/buildkitd.sock",
	"/run/balena-engine.sock",
}

// userPlaces are those of engines without root, below a user's runtime
// directory and home.
var userPlaces = []string{"docker.sock", "podman/podman.sock", "containerd/containerd.sock", "buildkit/buildkitd.sock"}
var homePlaces = []string{".docker/run/docker.sock", ".docker/desktop/docker.sock", ".colima/default/docker.sock", ".rd/docker.sock"}

// names are those of sockets that were mounted somewhere else.
var names = []string{"docker.sock", "podman.sock", "containerd.sock", "crio.sock", "cri-dockerd.sock", "buildkitd.sock", "balena-engine.sock"}

// Surroundings are what a process can see.
type Surroundings struct {
	Environ []string
	// Root comes before every path; empty is the real root.
	Root string
	UID  int
}

// Here is where this process is.
func Here() Surroundings {
	return Surroundings{Environ: os.Environ(), UID: os.Getuid()}
}

// Refuse fails with Denied when an engine can be reached, and names all ways.
func (s Surroundings) Refuse() error {
	found, err := s.Find()
	if err != nil {
		return fault.Wrap(fault.Denied, err, "cannot start: it cannot be found out whether a container engine can be reached from here")
	}
	if len(found) == 0 {
		return nil
	}
	return fault.New(fault.Denied, "cannot start: a container engine can be reached from here (%s), and through it the whole host; "+
		"unset the variable, take the socket out of this process's reach, or run as a user who may not open it", strings.Join(found, ", "))
}

// Find names the variables and sockets that lead to an engine.
func (s Surroundings) Find() ([]string, error) {
	env := s.environment()
	var found []string
	for _, name := range variables {
		if env[name] != "" {
			found = append(found, name)
		}
	}
	sockets, err := s.sockets()
	return append(found, sockets...), err
}

func (s Surroundings) environment() map[string]string {
	env := map[string]string{}
	for _, kv := range s.Environ {
		k, v, _ := strings.Cut(kv, "=")
		env[k] = v
	}
	return env
}

// sockets names those that can be opened.
func (s Surroundings) sockets() ([]string, error) {
	env := s.environment()
	candidates := slices.Clone(places)
	for _, p := range places {
		candidates = append(candidates, "/var"+p)
	}
	runtimeDirs := []string{"/run/user/" + strconv.Itoa(s.UID)}
	if s.UID == 0 { // who may open those of all users
		all, err := os.ReadDir(s.Root + "/run/user")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range all {
			runtimeDirs = append(runtimeDirs, "/run/user/"+e.Name())
		}
	}
	if dir := env["XDG_RUNTIME_DIR"]; dir != "" {
		runtimeDirs = append(runtimeDirs, dir)
	}
	for _, dir := range runtimeDirs {
		for _, p := range userPlaces {
			candidates = append(candidates, path.Join(dir, p))
		}
	}
	if home := env["HOME"]; home != "" {
		for _, p := range homePlaces {
			candidates = append(candidates, path.Join(home, p))
		}
	}
	mounted, err := s.mounted()
	if err != nil {
		return nil, err
	}
	return s.reachable(append(candidates, mounted...))
}

// reachable returns the sockets that can be opened, each once, whatever its names.
func (s Surroundings) reachable(candidates []string) (found []string, _ error) {
	type file struct{ dev, ino uint64 }
	seen := map[file]bool{}
	for _, p := range candidates {
		var st unix.Stat_t
		err := unix.Stat(s.Root+p, &st)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR), errors.Is(err, fs.ErrPermission):
			continue // not there, or out of reach
		case err != nil:
			return nil, fmt.Errorf("cannot look at %s: %w", p, err)
		}
		id := file{dev: uint64(st.Dev), ino: st.Ino}
		if st.Mode&unix.S_IFMT != unix.S_IFSOCK || seen[id] {
			continue
		}
		if unix.Faccessat(unix.AT_FDCWD, s.Root+p, unix.W_OK, unix.AT_EACCESS) != nil {
			continue // connecting takes the right to write
		}
		seen[id] = true
		found = append(found, p)
	}
	return found, nil
}

// mounted lists mounts of single sockets that have an engine's name on either
// side: in a container they are where somebody wanted them.
func (s Surroundings) mounted() ([]string, error) {
	f, err := os.Open(s.Root + "/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var found []string
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		// 36 35 98:0 /run/docker.sock /engine rw,noatime …
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 {
			continue
		}
		from, to := unescape(fields[3]), unescape(fields[4])
		if slices.Contains(names, path.Base(from)) || slices.Contains(names, path.Base(to)) {
			found = append(found, to)
		}
	}
	return found, lines.Err()
}

// unescape undoes the kernel's \040 for a space.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
