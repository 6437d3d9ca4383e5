package testenv

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Dockerd is a real rootless Docker daemon of an ordinary user, on a socket of its
// own. The machine keeps its own daemon, if it has one, and its own subordinate
// users: those of this one are in force in its mount namespace only.
type Dockerd struct {
	// Socket is the daemon's; Dir is its user's, and goes with it.
	Socket, Dir string
	// Credential is of the user who owns it.
	Credential *syscall.Credential

	server *server
	http   *http.Client
}

// firstSubordinate is the host's number of the daemon's user 1. Nothing else here
// has such a user: gVisor's sandboxes take theirs above 1879048192.
const firstSubordinate = 1_500_000_000

// StartDockerd starts a daemon; the test's clean-up stops it and fails the test if
// a process of it is left. Further flags may be given.
func StartDockerd(t testing.TB, flags ...string) *Dockerd {
	t.Helper()
	RequireRoot(t)
	script := requireProgram(t, "dockerd-rootless.sh", "docker.io", "/usr/share/docker.io/contrib/dockerd-rootless.sh")
	for program, pkg := range map[string]string{"rootlesskit": "rootlesskit", "newuidmap": "uidmap", "dockerd": "docker.io"} {
		requireProgram(t, program, pkg)
	}
	d := newDockerd(t)
	s := d.server
	for _, sub := range []string{"home", "run"} {
		dir := filepath.Join(s.dir, sub)
		if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, int(s.credential.Uid), int(s.credential.Gid))); err != nil {
			t.Fatal(err)
		}
	}
	// By name: RootlessKit takes a line with the number twice.
	owner, err := user.LookupId(fmt.Sprint(s.credential.Uid))
	if err != nil {
		t.Fatal(err)
	}
	ranges := fmt.Sprintf("%s:%d:65536\n", owner.Username, firstSubordinate)
	if err := os.WriteFile(filepath.Join(s.dir, "subordinate"), []byte(ranges), 0o644); err != nil {
		t.Fatal(err)
	}
	// As root until the ranges are in force, and then as the user.
	const launch = `mount --bind "$1" /etc/subuid && mount --bind "$1" /etc/subgid && exec setpriv --reuid "$2" --regid "$3" --clear-groups --pdeathsig TERM -- "${@:4}"`
	s.argv = append([]string{"bash", "-c", launch, "bash", filepath.Join(s.dir, "subordinate"),
		fmt.Sprint(s.credential.Uid), fmt.Sprint(s.credential.Gid), script}, append(d.flags(), flags...)...)
	s.environ = []string{
		"HOME=" + filepath.Join(s.dir, "home"), "XDG_RUNTIME_DIR=" + filepath.Join(s.dir, "run"),
		"DOCKERD_ROOTLESS_ROOTLESSKIT_NET=host", "DOCKERD_ROOTLESS_ROOTLESSKIT_PORT_DRIVER=none", "DOCKERD_ROOTLESS_ROOTLESSKIT_MTU=0",
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	}
	// It needs its own view of mounts, and the host's of processes: who looks at
	// its sandboxes from outside knows them by their number.
	s.credential = nil
	s.unshare = unix.CLONE_NEWNS
	d.run()
	return d
}

// StartRootfulDockerd starts a daemon that runs as root, which nobody should use.
func StartRootfulDockerd(t testing.TB) *Dockerd {
	t.Helper()
	RequireRoot(t)
	program := requireProgram(t, "dockerd", "docker.io")
	d := newDockerd(t)
	d.server.credential = nil
	parent := "agentdock-" + filepath.Base(d.Dir)
	d.server.argv = append([]string{program, "--ip-masq=false", "--cgroup-parent=/" + parent}, d.flags()...)
	t.Cleanup(func() { // after the daemon has stopped
		for _, pattern := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
			groups, _ := filepath.Glob(pattern + parent)
			for _, group := range groups {
				if err := os.Remove(group); err != nil {
					t.Errorf("left over: %v", err)
				}
			}
		}
	})
	// Its mounts go with it.
	d.server.unshare = unix.CLONE_NEWNS
	d.run()
	return d
}

func newDockerd(t testing.TB) *Dockerd {
	t.Helper()
	s := newServer(t, "dockerd", "games", "daemon")
	d := &Dockerd{Socket: filepath.Join(s.dir, "s"), Dir: s.dir, Credential: s.credential, server: s}
	d.http = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", d.Socket)
	}}}
	s.ready = "API listen on"
	if err := os.Chmod(s.dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return d
}

// flags keep everything of the daemon in its directory, and the host's network as
// it is.
func (d *Dockerd) flags() []string {
	return []string{"--host", "unix://" + d.Socket, "--data-root", d.Dir + "/data", "--exec-root", d.Dir + "/run/exec", "--pidfile", d.Dir + "/run/pid",
		"--iptables=false", "--ip6tables=false", "--bridge=none", "--ip-forward=false"}
}

func (d *Dockerd) run() {
	t := d.server.t
	t.Helper()
	d.Start()
	t.Cleanup(func() {
		d.Stop()
		for _, p := range d.processes() {
			t.Errorf("left over: %s", p)
		}
	})
}

// Start starts the daemon again after Stop or Kill.
func (d *Dockerd) Start() {
	d.server.t.Helper()
	d.server.Start()
}

// Stop stops it in order, with all its containers.
func (d *Dockerd) Stop() { d.server.Stop() }

// Kill ends the daemon with SIGKILL, and nothing that it started, and waits until
// it is gone.
func (d *Dockerd) Kill() {
	t := d.server.t
	t.Helper()
	data, err := os.ReadFile(filepath.Join(d.Dir, "run", "pid"))
	var pid int
	if _, scanErr := fmt.Sscan(string(data), &pid); err != nil || scanErr != nil {
		t.Fatalf("cannot find the daemon's process: %q, %v", data, err)
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-d.server.gone:
	case <-time.After(serverPatience):
		t.Fatal("the daemon's launcher did not end with it")
	}
	d.forgetContainerd()
}

// forgetContainerd removes the daemon's note of the containerd that ended with it.
// The machine's first process may never collect the dead, and a daemon that starts
// again takes a dead one that was not collected for one that runs.
func (d *Dockerd) forgetContainerd() {
	t := d.server.t
	t.Helper()
	note := filepath.Join(d.Dir, "run", "exec", "containerd", "containerd.pid")
	data, err := os.ReadFile(note)
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(serverPatience); ; time.Sleep(5 * time.Millisecond) {
		status, err := os.ReadFile("/proc/" + strings.TrimSpace(string(data)) + "/status")
		if err != nil || bytes.Contains(status, []byte("State:\tZ")) || !bytes.Contains(status, []byte("Name:\tcontainerd\n")) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("containerd did not end with the daemon")
		}
	}
	if err := os.Remove(note); err != nil {
		t.Fatal(err)
	}
}

// processes are those that have the daemon's directory in their command line.
func (d *Dockerd) processes() []string {
	var found []string
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		data, _ := os.ReadFile(dir + "/cmdline")
		if argv := strings.ReplaceAll(string(data), "\x00", " "); strings.Contains(argv, d.Dir+"/") {
			found = append(found, fmt.Sprintf("process %s: %s", filepath.Base(dir), argv))
		}
	}
	return found
}

// ImportBare gives the daemon an image without contents, under BareImage.
func (d *Dockerd) ImportBare() {
	d.server.t.Helper()
	var image bytes.Buffer
	w := tar.NewWriter(&image)
	for _, dir := range []string{"proc", "sys", "dev", "tmp", "workspace", "run", "etc", "usr", "home"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}); err != nil {
			d.server.t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		d.server.t.Fatal(err)
	}
	d.call("POST", "/images/create?fromSrc=-&repo="+BareImage+"&tag=latest", &image, nil)
}

// Containers lists the daemon's containers, ended ones too, with a label ("" for
// all).
func (d *Dockerd) Containers(label string) []string {
	var list []struct {
		ID    string `json:"Id"`
		Names []string
	}
	path := "/containers/json?all=1"
	if label != "" {
		path += "&filters=" + url.QueryEscape(fmt.Sprintf(`{"label":[%q]}`, label))
	}
	d.call("GET", path, nil, &list)
	ids := make([]string, len(list))
	for i, c := range list {
		ids[i] = c.ID
	}
	return ids
}

// Pid is the first process of the container with that ID or name.
func (d *Dockerd) Pid(id string) int {
	var c struct{ State struct{ Pid int } }
	d.call("GET", "/containers/"+id+"/json", nil, &c)
	return c.State.Pid
}

// Inspect is what the daemon has on record for a container.
func (d *Dockerd) Inspect(id string, into any) { d.call("GET", "/containers/"+id+"/json", nil, into) }

func (d *Dockerd) call(method, path string, body io.Reader, into any) {
	t := d.server.t
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), serverPatience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://docker/v1.41"+path, body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := d.http.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		t.Fatalf("%s %s: %s %s %v", method, path, resp.Status, data, err)
	}
	if into == nil {
		return
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
}

// Running says whether the daemon has been started and has not ended.
func (d *Dockerd) Running() bool {
	select {
	case <-d.server.gone:
		return false
	default:
		return true
	}
}

// Programs is a directory with the execution service, its helper and others that
// the daemon's user can reach.
func (d *Dockerd) Programs(others ...string) string {
	t := d.server.t
	t.Helper()
	dir := filepath.Join(d.Dir, "bin")
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	from := Binaries(t)
	for _, name := range append([]string{"agentdock-execd", "agentdock-guest"}, others...) {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			continue // an earlier service of this daemon runs it
		}
		data, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
