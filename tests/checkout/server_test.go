package checkout

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/agentdock/agentdock/internal/control"
)

// serves is the line in which "up" says where it is.
var serves = regexp.MustCompile(`^AgentDock serves on (http://\S+);`)

// served is an "agentdock up".
type served struct {
	url string
	// cli runs the command line against it.
	cli func(args ...string) (string, error)
	// stop ends it, and returns all it said.
	stop func() string
}

// up serves with what the canary's GitHub is, and has the App only if it is
// given one.
func (c *canary) up(images, data string, app bool) *served {
	t := c.t
	t.Helper()
	cmd := exec.Command(filepath.Join(c.bin, "agentdock"), "up", "--listen", "127.0.0.1:0", "--data", data)
	cmd.Env = append(c.environment(images), "AGENTDOCK_DISK_DIR="+c.dir)
	if !app {
		cmd.Env = withoutApp(cmd.Env)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} // a test that is killed leaves nothing
	said, writes, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = writes, writes
	if err := cmd.Start(); err != nil {
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
	end := sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		if err := cmd.Wait(); err != nil {
			t.Errorf("up: %v", err)
		}
		reading.Wait()
	})
	t.Cleanup(end)
	address, ok := <-url
	if !ok {
		t.Fatalf("up does not serve:\n%s", words.String())
	}
	return &served{
		url: address,
		cli: func(args ...string) (string, error) {
			cmd := exec.Command(filepath.Join(c.bin, "agentdock"), args...)
			cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + c.dir, "AGENTDOCK_URL=" + address}
			out, err := cmd.CombinedOutput()
			return string(out), err
		},
		stop: func() string {
			end()
			return words.String()
		},
	}
}

// upload sends an archive as curl would, and returns the upload's id.
func (s *served) upload(t *testing.T, archive []byte) string {
	t.Helper()
	res, err := http.Post(s.url+"/v1/uploads", "application/x-tar", bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var u struct{ ID string }
	if err := json.NewDecoder(res.Body).Decode(&u); err != nil || res.StatusCode != http.StatusCreated || u.ID == "" {
		t.Fatalf("the upload: %d, %v", res.StatusCode, err)
	}
	return u.ID
}

// withoutApp is an environment that has no GitHub App.
func withoutApp(environ []string) []string {
	return slices.DeleteFunc(environ, func(e string) bool { return strings.HasPrefix(e, "GITHUB_APP_") })
}

// TestPrivateRepositoryThroughAServer has a private repository fetched for a job
// that came in over the API: refused to a tenant without the grant, and with it
// checked out, its token nowhere on record.
func TestPrivateRepositoryThroughAServer(t *testing.T) {
	images := images(t)
	c := newCanary(t)
	data := filepath.Join(c.dir, "data")
	up := c.up(images, data, true)
	submit := func() (string, error) {
		return up.cli("jobs", "submit", "--repo", c.github.URL+"/acme/app", "--ref", "main", "--wait", "--", "cat", "README")
	}
	if out, err := submit(); err == nil || !strings.Contains(out, "repository_not_found") {
		t.Errorf("without the grant: %v\n%s", err, out)
	}
	if len(c.github.Tokens()) != 0 {
		t.Errorf("without the grant, %d tokens were made", len(c.github.Tokens()))
	}
	if out, err := up.cli("admin", "tenant", "set", control.OperatorID, "--grant-repository", "acme/app"); err != nil {
		t.Fatalf("admin tenant set: %v\n%s", err, out)
	}
	if out, err := submit(); err != nil || !strings.HasPrefix(out, "private\n") {
		t.Errorf("with the grant: %v\n%s", err, out)
	}
	if len(c.github.Tokens()) != 1 || c.opens(c.github.Tokens()[0]) {
		t.Errorf("%d tokens were made, or the first lives", len(c.github.Tokens()))
	}
	said := up.stop()

	f := newFinds(t, c.secrets(), images)
	f.tree(record.name, data)
	f.tree(record.name, filepath.Join(c.dir, "packs"))
	f.look(record.name, "what up said", []byte(said))
	f.report([]place{record}, false)
	if f.searched[record.name] < 4 {
		t.Errorf("only %d places were searched", f.searched[record.name])
	}
}
