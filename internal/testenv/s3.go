package testenv

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/testenv/capture"
)

// versitygw is an S3 server over a directory. It is built from source at this
// version, outside our own module, so that none of its dependencies are ours.
const (
	versitygw        = "github.com/versity/versitygw/cmd/versitygw"
	versitygwVersion = "v1.8.0"
)

// S3 is a real S3 server with one bucket, in a process of its own on loopback.
type S3 struct {
	Endpoint, Region, Bucket, AccessKey, SecretKey string
	// Dir holds the bucket's objects as files.
	Dir string

	t    testing.TB
	args []string
	cmd  *exec.Cmd
	gone chan struct{}
	log  capture.Buffer
}

// RequireS3 skips where building the server would take too long, unless it
// must be there.
func RequireS3(t testing.TB) {
	t.Helper()
	if testing.Short() && os.Getenv("AGENTDOCK_TEST_REQUIRE_REAL") != "1" {
		t.Skip("an S3 server is built from source, which takes a minute or two")
	}
}

// StartS3 starts a server that keeps everything below dir; the test's clean-up
// stops it.
func StartS3(t testing.TB, dir string) *S3 {
	t.Helper()
	RequireS3(t)
	binary, err := s3Binary()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	s := &S3{
		Endpoint: "http://" + addr, Region: "us-east-1", Bucket: "agentdock", AccessKey: "test-access", SecretKey: "test-secret",
		Dir: filepath.Join(dir, "objects", "agentdock"), t: t,
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s.args = []string{binary, "--port", addr, "--region", s.Region, "--quiet", "posix", filepath.Join(dir, "objects")}
	s.Start()
	t.Cleanup(func() {
		s.Stop()
		if t.Failed() {
			t.Logf("the S3 server's log:\n%s", s.log.String())
		}
	})
	return s
}

// Start starts the server again after Stop, and waits until it answers.
func (s *S3) Start() {
	s.t.Helper()
	cmd := exec.Command(s.args[0], s.args[1:]...)
	cmd.Env = []string{"ROOT_ACCESS_KEY=" + s.AccessKey, "ROOT_SECRET_KEY=" + s.SecretKey, "PATH=" + os.Getenv("PATH")}
	cmd.Stdout, cmd.Stderr = &s.log, &s.log
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	gone := make(chan struct{})
	s.cmd, s.gone = cmd, gone
	go func() {
		_ = cmd.Wait()
		close(gone)
	}()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Endpoint, nil)
		if err != nil {
			s.t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			res.Body.Close()
			return
		}
		select {
		case <-gone:
			s.t.Fatalf("the S3 server did not start:\n%s", s.log.String())
		case <-ctx.Done():
			s.t.Fatalf("the S3 server does not answer: %v\n%s", err, s.log.String())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Stop kills the server and waits until it is gone. It may be called again.
func (s *S3) Stop() {
	_ = s.cmd.Process.Kill()
	<-s.gone
}

// s3Binary is the server, built once on a machine.
var s3Binary = sync.OnceValues(func() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	dir := filepath.Join(cache, "agentdock-test")
	binary := filepath.Join(dir, "versitygw-"+versitygwVersion)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("cannot build the S3 server: %w", err)
	}
	lock, err := os.OpenFile(binary+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", fmt.Errorf("cannot build the S3 server: %w", err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", fmt.Errorf("cannot build the S3 server: %w", err)
	}
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	into, err := os.MkdirTemp(dir, "build-")
	if err != nil {
		return "", fmt.Errorf("cannot build the S3 server: %w", err)
	}
	defer func() { _ = os.RemoveAll(into) }()
	build := exec.Command("go", "install", versitygw+"@"+versitygwVersion)
	build.Dir = into // outside our module
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOBIN="+into, "GOFLAGS=")
	build.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build the S3 server: %w\n%s", err, out)
	}
	return binary, os.Rename(filepath.Join(into, "versitygw"), binary)
})
