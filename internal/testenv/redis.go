package testenv

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Redis is a real Redis server, on a unix socket in a directory of its own. It
// keeps nothing on disk: a restart is a loss of all messages.
type Redis struct {
	*server
	// URL says how to connect to it.
	URL string
}

// StartRedis starts a server; the test's clean-up stops it.
func StartRedis(t testing.TB) *Redis {
	t.Helper()
	program := requireProgram(t, "redis-server", "redis-server")
	s := newServer(t, "redis", "redis", "nobody")
	socket := filepath.Join(s.dir, "redis.sock")
	s.ready = "eady to accept connections" // "Ready", or "The server is now ready"
	s.argv = []string{program, "--port", "0", "--unixsocket", socket, "--unixsocketperm", "700",
		"--dir", s.dir, "--save", "", "--appendonly", "no", "--daemonize", "no"}
	r := &Redis{server: s, URL: "unix://" + socket}
	r.Start()
	return r
}

// Kill ends the server with SIGKILL and waits until it is gone.
func (r *Redis) Kill() { r.end(unix.SIGKILL) }
