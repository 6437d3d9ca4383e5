package clients

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/testenv"
	"github.com/agentdock/agentdock/internal/testenv/capture"
)

// served is an "agentdock up" as a user starts it.
type served struct{ url, key string }

var (
	servesOn = regexp.MustCompile(`AgentDock serves on (\S+);`)
	firstKey = regexp.MustCompile(`AGENTDOCK_API_KEY=(\S+)`)
	lastWord = []byte("Ctrl-C stops it.")
)

// startUp starts the whole platform on a port of its own, with keys, and stops it
// when the test ends.
func startUp(t *testing.T, images string) served {
	t.Helper()
	testenv.RequireRoot(t)
	runtime, err := os.MkdirTemp("", "ad") // short: a socket's path has a limit
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(runtime) })
	up := exec.Command(filepath.Join(testenv.Binaries(t), "agentdock"),
		"up", "--listen", "127.0.0.1:0", "--data", filepath.Join(runtime, "data"), "--image-dir", images)
	up.Env = []string{"PATH=" + os.Getenv("PATH"), "AGENTDOCK_RUNTIME_DIR=" + runtime, "AUTH_MODE=api_key"}
	out := &awaited{seen: make(chan struct{})}
	up.Stdout, up.Stderr = out, out
	up.WaitDelay = time.Second
	up.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} // a test that is killed leaves nothing
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- up.Wait() }()
	t.Cleanup(func() {
		_ = up.Process.Signal(syscall.SIGTERM)
		if err := <-ended; err != nil || t.Failed() {
			t.Errorf("up ended with: %v\n%s", err, out.Tail(8000))
		}
	})
	select {
	case <-out.seen:
	case err := <-ended:
		ended <- err
		t.Fatal("it ended before it served")
	case <-time.After(time.Minute):
		t.Fatal("it does not serve")
	}
	url, key := servesOn.FindStringSubmatch(out.String()), firstKey.FindStringSubmatch(out.String())
	if url == nil || key == nil {
		t.Fatal("it says no address or no key")
	}
	return served{url: url[1], key: key[1]}
}

// awaited is output in which the last line of the welcome is awaited.
type awaited struct {
	capture.Buffer
	seen chan struct{}
}

func (a *awaited) Write(p []byte) (int, error) {
	before := bytes.Contains(a.Bytes(), lastWord)
	n, err := a.Buffer.Write(p)
	if !before && bytes.Contains(a.Bytes(), lastWord) {
		close(a.seen)
	}
	return n, err
}
