package localexecd

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/agentdock/agentdock/internal/fault"
)

const (
	// RuntimeEnv, AuthModeEnv and DockerSocketEnv are the environment variables
	// that say what sandboxes are made of.
	RuntimeEnv      = "SANDBOX_RUNTIME"
	AuthModeEnv     = "AUTH_MODE"
	DockerSocketEnv = "AGENTDOCK_EXECD_DOCKER_SOCKET"

	docker = "docker"
)

// defaultDir is where instances are if nobody says so. The development fallback
// needs no root, and so no directory of root's.
func (c Config) defaultDir() string {
	if c.Runtime != docker || os.Geteuid() == 0 {
		return DefaultDir
	}
	return filepath.Join(userDir(), "agentdock")
}

// userDir is this user's own for as long as it is logged in.
func userDir() string {
	return cmp.Or(os.Getenv("XDG_RUNTIME_DIR"), fmt.Sprintf("/run/user/%d", os.Geteuid()))
}

// dockerSocket is the path of the daemon's socket, by the rule that the service has:
// the one that is named, or this user's own. The service has no variable of ours to
// find that by.
func (c Config) dockerSocket() (string, error) {
	path, _ := strings.CutPrefix(c.DockerSocket, "unix://")
	switch {
	case strings.Contains(path, "://"):
		return "", fault.New(fault.Invalid, "cannot start the execution service: %s is %q, and only a daemon on a unix socket of this host is spoken to; give that socket's path", DockerSocketEnv, c.DockerSocket)
	case path == "" && c.Runtime == docker && os.Geteuid() != 0:
		return filepath.Join(userDir(), "docker.sock"), nil
	}
	return path, nil
}

// owner is the user that the service runs as, if that is another than this one:
// with the development fallback, root hands over to whoever has the daemon.
func (c Config) owner() (*syscall.Credential, error) {
	if c.Runtime != docker || os.Geteuid() != 0 {
		return nil, nil
	}
	if c.DockerSocket == "" {
		return nil, fault.New(fault.Invalid, "cannot start the execution service: %s is %s and this is root, who has no Docker daemon of its own; set %s to the socket of the user's who has one", RuntimeEnv, docker, DockerSocketEnv)
	}
	info, err := os.Stat(c.DockerSocket)
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "cannot start the execution service: %s names no socket", DockerSocketEnv)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || st.Uid == 0 {
		return nil, nil // the service says what it thinks of that
	}
	return &syscall.Credential{Uid: st.Uid, Gid: st.Gid}, nil
}

// handOver gives an instance's directory to the service's user.
func (c Config) handOver(i *instance) error {
	owner, err := c.owner()
	if err != nil || owner == nil {
		return err
	}
	if err := os.Chown(i.dir, int(owner.Uid), int(owner.Gid)); err != nil {
		return fault.Wrap(fault.Internal, err, "cannot start the execution service")
	}
	return nil
}
