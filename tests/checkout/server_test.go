package checkout

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/agentdock/agentdock/internal/control"
)

// serves is the line in which "up" says where it is.
var serves = regexp.MustCompile(`^AgentDock serves on (http://\S+);`)

// TestPrivateRepositoryThroughAServer has a private repository fetched for a job
// that came in over the API: refused to a tenant without the grant, and with it
// checked out, its token nowhere on record.
func TestPrivateRepositoryThroughAServer(t *testing.T) {
	images := images(t)
	c := newCanary(t)
	data := filepath.Join(c.dir, "data")

	up := exec.Command(filepath.Join(c.bin, "agentdock"), "up", "--listen", "127.0.0.1:0", "--data", data)
	up.Env = append(c.environment(images), "AGENTDOCK_DISK_DIR="+c.dir)
	up.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} // a test that is killed leaves nothing
	said, writes, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	up.Stdout, up.Stderr = writes, writes
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	_ = writes.Close()
	url := make(chan string, 1)
	var words strings.Builder
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(url)
		for lines := bufio.NewScanner(said); lines.Scan(); {
			words.WriteString(lines.Text() + "\n")
			if m := serves.FindStringSubmatch(lines.Text()); m != nil {
				url <- m[1]
			}
		}
		_, _ = io.Copy(io.Discard, said)
	})
	stop := sync.OnceFunc(func() {
		_ = up.Process.Signal(syscall.SIGINT)
		if err := up.Wait(); err != nil {
			t.Errorf("up: %v", err)
		}
		reading.Wait()
	})
	defer stop()
	address, ok := <-url
	if !ok {
		t.Fatalf("up does not serve:\n%s", words.String())
	}

	cli := func(args ...string) (string, error) {
		cmd := exec.Command(filepath.Join(c.bin, "agentdock"), args...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + c.dir, "AGENTDOCK_URL=" + address}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	submit := func() (string, error) {
		return cli("jobs", "submit", "--repo", c.github.URL+"/acme/app", "--ref", "main", "--wait", "--", "cat", "README")
	}
	if out, err := submit(); err == nil || !strings.Contains(out, "repository_not_found") {
		t.Errorf("without the grant: %v\n%s", err, out)
	}
	if len(c.github.Tokens()) != 0 {
		t.Errorf("without the grant, %d tokens were made", len(c.github.Tokens()))
	}
	if out, err := cli("admin", "tenant", "set", control.OperatorID, "--grant-repository", "acme/app"); err != nil {
		t.Fatalf("admin tenant set: %v\n%s", err, out)
	}
	if out, err := submit(); err != nil || !strings.HasPrefix(out, "private\n") {
		t.Errorf("with the grant: %v\n%s", err, out)
	}
	if len(c.github.Tokens()) != 1 || c.github.Live() != 0 {
		t.Errorf("%d tokens were made, %d live", len(c.github.Tokens()), c.github.Live())
	}
	stop()

	f, secrets := newFinds(), c.secrets()
	f.tree(record.name, data, secrets)
	f.tree(record.name, filepath.Join(c.dir, "packs"), secrets)
	f.look(record.name, "what up said", []byte(words.String()), secrets)
	for where, what := range f.found {
		t.Errorf("%s: %v", where, what)
	}
	t.Logf("searched %d files and streams, %d bytes", f.searched[record.name], f.bytes)
	if f.searched[record.name] < 4 {
		t.Errorf("only %d places were searched", f.searched[record.name])
	}
}
