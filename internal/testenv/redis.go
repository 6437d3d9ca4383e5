package testenv

import (
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/testenv/capture"
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

// Watch collects every command that the server gets from now on, until the
// function returned is called, which returns them.
func (r *Redis) Watch() (commands func() string) {
	r.t.Helper()
	socket := strings.TrimPrefix(r.URL, "unix://")
	monitor := r.command("redis-cli", "-s", socket, "MONITOR")
	var said capture.Buffer
	monitor.Stdout, monitor.Stderr = &said, &said
	if err := monitor.Start(); err != nil {
		r.t.Fatalf("cannot watch the server: %v", err)
	}
	stop := sync.OnceFunc(func() {
		_ = monitor.Process.Kill()
		_ = monitor.Wait()
	})
	r.t.Cleanup(stop)
	// It watches once it has seen something, and has seen all once it has seen
	// what came last.
	seen := func(word string) {
		for deadline := time.Now().Add(serverPatience); !strings.Contains(said.String(), word); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				r.t.Fatalf("the watch does not see %s: %s", word, said.String())
			}
			r.Do("ECHO", word)
		}
	}
	seen("the-watch-begins")
	return func() string {
		seen("the-watch-ends")
		stop()
		return said.String()
	}
}

// Do sends the server a command.
func (r *Redis) Do(args ...string) {
	r.t.Helper()
	out, err := r.command(append([]string{"redis-cli", "-s", strings.TrimPrefix(r.URL, "unix://")}, args...)...).CombinedOutput()
	if err != nil {
		r.t.Fatalf("redis-cli %q: %v\n%s", args, err, out)
	}
}

// Kill ends the server with SIGKILL and waits until it is gone.
func (r *Redis) Kill() { r.end(unix.SIGKILL) }
