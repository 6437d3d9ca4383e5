package testenv

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/testenv/capture"
)

// server is a program of somebody else that tests use: a database, a broker. It
// runs as an unprivileged user in a directory of its own.
type server struct {
	t    testing.TB
	dir  string
	argv []string
	// ready is in the line of its log that says it takes work.
	ready string
	// stop is the signal on which it ends in order.
	stop unix.Signal
	// credential is nil where the test is not root, and for what becomes another
	// user by itself.
	credential *syscall.Credential
	// environ is added to its environment.
	environ []string
	// unshare are namespaces that it does not share with the test.
	unshare uintptr

	cmd  *exec.Cmd
	log  capture.Buffer
	gone chan struct{}
}

// serverPatience is how long a server may take to start or to end.
const serverPatience = 2 * time.Minute

// newServer makes the directory. The test's clean-up stops the server and
// removes it.
func newServer(t testing.TB, name string, users ...string) *server {
	t.Helper()
	dir, err := os.MkdirTemp("", name) // short: a socket's path has a limit
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, dir: dir, stop: unix.SIGTERM}
	t.Cleanup(func() {
		if s.cmd != nil {
			s.Resume()
			s.Stop()
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			log := s.log.String()
			t.Logf("the end of the log of %s:\n%s", name, log[max(0, len(log)-8<<10):])
		}
	})
	if os.Geteuid() == 0 {
		s.credential = credentialOf(t, users)
		if err := os.Chown(dir, int(s.credential.Uid), int(s.credential.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// credentialOf finds the first of some users that exists here.
func credentialOf(t testing.TB, users []string) *syscall.Credential {
	t.Helper()
	for _, name := range users {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUID := strconv.ParseUint(u.Uid, 10, 32)
		gid, errGID := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(errUID, errGID); err != nil {
			t.Fatal(err)
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	t.Fatalf("none of the users %q exists here", users)
	return nil
}

// command is a program run as the server's user.
func (s *server) command(argv ...string) *exec.Cmd {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8", "TZ=UTC"}
	cmd.Env = append(cmd.Env, s.environ...)
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: s.stop, Credential: s.credential, Unshareflags: s.unshare}
	return cmd
}

// Start starts the server, again after Stop or Kill, and returns when it takes
// work.
func (s *server) Start() {
	s.t.Helper()
	cmd := s.command(s.argv...)
	if s.credential != nil {
		// A test that is killed must leave no server, not even one that it has
		// paused, which takes no other signal: with the first process of a
		// namespace ends every other, and with the namespace its shared memory.
		cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWPID | unix.CLONE_NEWIPC
		cmd.SysProcAttr.Pdeathsig = unix.SIGKILL
	}
	out, in, err := os.Pipe()
	if err != nil {
		s.t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = in, in
	err = cmd.Start()
	in.Close()
	if err != nil {
		out.Close()
		s.t.Fatal(err)
	}
	ready, gone := make(chan struct{}), make(chan struct{})
	s.cmd, s.gone = cmd, gone
	go func() {
		defer out.Close()
		lines := bufio.NewReader(io.TeeReader(out, &s.log))
		for said := false; ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			if !said && strings.Contains(line, s.ready) {
				said = true
				close(ready)
			}
		}
	}()
	go func() {
		_ = cmd.Wait()
		close(gone)
	}()
	select {
	case <-ready:
	case <-gone:
		s.t.Fatalf("%s ended at its start:\n%s", filepath.Base(s.argv[0]), s.log.String())
	case <-time.After(serverPatience):
		s.t.Fatalf("%s did not start:\n%s", filepath.Base(s.argv[0]), s.log.String())
	}
}

// Stop ends the server in order and waits until it is gone. It may be called
// again.
func (s *server) Stop() { s.end(s.stop) }

func (s *server) end(signal unix.Signal) {
	s.t.Helper()
	select {
	case <-s.gone:
		return
	default:
	}
	_ = s.cmd.Process.Signal(signal)
	select {
	case <-s.gone:
	case <-time.After(serverPatience):
		_ = s.cmd.Process.Kill()
		s.t.Errorf("%s did not end after %v", filepath.Base(s.argv[0]), signal)
		<-s.gone
	}
}

// Pause stops every process of the server where it is: connections stay, and
// nobody answers.
func (s *server) Pause() { s.signalAll(unix.SIGSTOP) }

// Resume lets a paused server go on.
func (s *server) Resume() { s.signalAll(unix.SIGCONT) }

func (s *server) signalAll(signal unix.Signal) {
	select {
	case <-s.gone:
		return
	default:
	}
	// The first process goes first, so that it makes no more of them.
	for _, pid := range append([]int{s.cmd.Process.Pid}, Descendants(s.cmd.Process.Pid)...) {
		_ = unix.Kill(pid, signal)
	}
}

// requireProgram finds a program that tests need. Where it is not installed,
// and between edits, the test is skipped, unless it must run.
func requireProgram(t testing.TB, name, debianPackage string, patterns ...string) string {
	t.Helper()
	must := os.Getenv("AGENTDOCK_TEST_REQUIRE_REAL") == "1"
	if testing.Short() && !must {
		t.Skipf("%s is not started between edits (-short)", name)
	}
	for _, pattern := range patterns {
		found, _ := filepath.Glob(pattern)
		slices.Sort(found) // the newest version is last
		if len(found) > 0 {
			return found[len(found)-1]
		}
	}
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	missing := name + " is not installed; it is in the Debian package " + debianPackage
	if must {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}
