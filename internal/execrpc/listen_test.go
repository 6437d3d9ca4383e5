package execrpc_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/execrpc"
)

// TestMain lets the test binary be the process of another user that dials.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "dial" {
		os.Exit(dialAsChild(os.Args[2]))
	}
	os.Exit(m.Run())
}

// dialAsChild exits with 0 if the service lets it in, 3 if it hangs up.
func dialAsChild(path string) int {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return 4
	}
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	// A server that speaks HTTP/2 begins by itself after the preface.
	_, _ = io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		return 3
	}
	return 0
}

func TestOnlyAllowedUsersGetIn(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("missing: root, to become another user")
	}
	const nobody = 65534
	dir, err := os.MkdirTemp("", "peer") // t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	binary := filepath.Join(dir, "dial")
	self, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o755), os.WriteFile(binary, self, 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name    string
		uids    []uint32
		uid     uint32
		mode    os.FileMode
		open    bool // set the mode to 0666, so that only credentials decide
		want    int
		logged  string
		exclude string
	}{
		{name: "root", uid: 0, mode: 0o600, want: 0},
		{name: "mode alone", uid: nobody, mode: 0o600, want: 4},
		{name: "other user", uid: nobody, mode: 0o600, open: true, want: 3, logged: `"uid":65534`},
		{name: "allowed user", uids: []uint32{nobody}, uid: nobody, mode: 0o666, want: 0},
		{name: "another one allowed", uids: []uint32{nobody - 1}, uid: nobody, mode: 0o666, want: 3, logged: "not allowed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(dir, "socket")
			var log bytes.Buffer
			l, err := execrpc.ListenUnix(path, tc.uids, slog.New(slog.NewJSONHandler(&log, nil)))
			if err != nil {
				t.Fatal(err)
			}
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != tc.mode {
				t.Errorf("mode is %v, %v, want %v", info.Mode(), err, tc.mode)
			}
			if tc.open {
				_ = os.Chmod(path, 0o666)
			}
			srv := execrpc.NewHTTPServer(execrpc.NewServer(newStub(), quiet()), nil, quiet())
			done := make(chan struct{})
			go func() { defer close(done); _ = srv.Serve(l) }()
			cmd := exec.Command(binary, "dial", path)
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: tc.uid, Gid: tc.uid}}
			_ = cmd.Run()
			_ = srv.Close()
			<-done
			if got := cmd.ProcessState.ExitCode(); got != tc.want {
				t.Errorf("exit %d, want %d", got, tc.want)
			}
			if !strings.Contains(log.String(), tc.logged) {
				t.Errorf("log is %q, want %q in it", log.String(), tc.logged)
			}
			if _, err := os.Lstat(path); err == nil {
				t.Error("the socket file is left")
			}
		})
	}
}

func TestASocketPathIsTakenOnlyWhenNobodyHasIt(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")

	// A socket whose process died.
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close()
	first, err := execrpc.ListenUnix(path, nil, quiet())
	if err != nil {
		t.Fatalf("over a stale socket: %v", err)
	}
	if _, err := execrpc.ListenUnix(path, nil, quiet()); err == nil || !strings.Contains(err.Error(), "another process is listening") {
		t.Errorf("over a live one: %v", err)
	}
	// Somebody put another file there: it is not ours to remove.
	if err := errors.Join(os.Remove(path), os.WriteFile(path, []byte("data"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := first.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if data, _ := os.ReadFile(path); string(data) != "data" {
		t.Error("Close removed a file that was not its own")
	}
	if _, err := execrpc.ListenUnix(path, nil, quiet()); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("over a file: %v", err)
	}
	if names, _ := filepath.Glob(filepath.Join(dir, ".*")); len(names) > 0 {
		t.Errorf("left over: %v", names)
	}
}
