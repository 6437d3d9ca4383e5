package checkout

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/checkout/checkouttest"
	"github.com/agentdock/agentdock/internal/testenv"
)

// place is somewhere that secrets could be. A control plants one there.
type place struct{ name, what string }

// places are the rows of the table in docs/checkout.md.
var places = []place{
	{"environments", "of every process of the machine, during the fetch and after it"},
	{"arguments", "of every process of the machine, during the fetch and after it"},
	{"open files", "contents of every regular file that the command line, the execution service and the sandbox's processes have open, with or without a name, during the fetch"},
	{"host directories", "the directories of packs, of the private execution service with its state, and of artifacts, during the fetch and after it"},
	{"sandbox", "contents of every file below /workspace (with .git), /tmp and /dev/shm, names of files, environment and arguments of every process inside"},
	{"artifacts", "everything the run kept"},
	{"output", "standard output and standard error of the command line: the program's output, the report, messages"},
}

// inside writes all that it can read into one file, which becomes an artifact.
const inside = `
import glob, os
out = open("everything.bin", "wb")
for root in ("/workspace", "/tmp", "/dev/shm"):
    for parent, dirs, files in os.walk(root):
        for name in files:
            path = os.path.join(parent, name)
            out.write(path.encode() + b"\n")
            if name != "everything.bin" and os.path.isfile(path):
                out.write(open(path, "rb").read() + b"\n")
for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline"):
    try:
        out.write(open(path, "rb").read() + b"\n")
    except OSError:
        pass
print("searched")
`

// canary is a private repository, and all that must not be found.
type canary struct {
	t       *testing.T
	github  *checkouttest.GitHub
	dir     string
	bin     string
	mu      sync.Mutex
	signed  []string // by the App, as requests carried it
	fetched chan struct{}
	goOn    chan struct{}
}

func newCanary(t *testing.T) *canary {
	c := &canary{t: t, github: checkouttest.Start(t), bin: testenv.Binaries(t), fetched: make(chan struct{}), goOn: make(chan struct{})}
	var err error
	if c.dir, err = os.MkdirTemp("", "ad"); err != nil { // short: a socket's path has a limit
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(c.dir) })
	r := c.github.Repo("acme", "app")
	r.Commit("refs/heads/main", r.Tree(r.File("README", "private\n")))
	c.github.Private["acme/app"], c.github.Installed["acme"] = true, true
	c.github.API = func(_ http.ResponseWriter, r *http.Request) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		if s := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "); strings.Count(s, ".") == 2 {
			c.signed = append(c.signed, s)
		}
		return false
	}
	for name, data := range map[string][]byte{
		"key.pem": pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(c.github.Key)}),
		"ca.pem":  pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.github.Certificate().Raw}),
	} {
		if err := os.WriteFile(filepath.Join(c.dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{"packs", "run", "artifacts"} {
		if err := os.Mkdir(filepath.Join(c.dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// stop holds the fetch up, once the token is in use, until goOn is closed.
func (c *canary) stop() {
	var once sync.Once
	c.github.Git = func(_ http.ResponseWriter, r *http.Request) bool {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if bytes.Contains(body, []byte("command=fetch")) {
			once.Do(func() { close(c.fetched) })
			<-c.goOn
		}
		return false
	}
}

// environment is that of whatever checks out.
func (c *canary) environment(images string) []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "AGENTDOCK_IMAGE_DIR=" + images, "AGENTDOCK_RUNTIME_DIR=" + filepath.Join(c.dir, "run"),
		"GITHUB_APP_ID=" + checkouttest.AppID, "GITHUB_APP_PRIVATE_KEY_FILE=" + filepath.Join(c.dir, "key.pem"),
		"GITHUB_API_URL=" + c.github.URL + "/api/v3", "GITHUB_WEB_URL=" + c.github.URL,
		"SANDBOX_CHECKOUT_DIR=" + filepath.Join(c.dir, "packs"), "SANDBOX_CHECKOUT_CA_FILE=" + filepath.Join(c.dir, "ca.pem"),
		"SANDBOX_CHECKOUT_ALLOW_NETWORKS=127.0.0.0/8",
	}
}

// run is the command line as an operator has it.
func (c *canary) run(images string, args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	args = append([]string{"run", "--json", "--repo", c.github.URL + "/acme/app", "--ref", "main", "--artifact", "**", "--out", filepath.Join(c.dir, "artifacts")}, args...)
	cmd = exec.Command(filepath.Join(c.bin, "agentdock"), append(args, "--", "python3", "-c", inside)...)
	cmd.Env = c.environment(images)
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd, stdout, stderr
}

// secrets are the tokens, the App's signatures and its key, in the forms in
// which they could lie around.
func (c *canary) secrets() (all [][]byte) {
	add := func(s string) { all = append(all, []byte(s)) }
	for _, t := range c.github.Tokens() {
		add(t)
		add(base64.StdEncoding.EncodeToString([]byte("x-access-token:" + t)))
		add(base64.StdEncoding.EncodeToString([]byte(t)))
		add(hex.EncodeToString([]byte(t)))
		reversed := []byte(t)
		slices.Reverse(reversed)
		add(string(reversed))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.signed {
		add(s[strings.LastIndex(s, ".")+1:])
	}
	key := x509.MarshalPKCS1PrivateKey(c.github.Key)
	add(string(key[len(key)/2 : len(key)/2+64]))
	for i, line := range strings.Split(string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: key})), "\n") {
		if len(line) == 64 && i < 4 {
			add(line)
		}
	}
	return all
}

// finds is what was found, by place; and how much was searched.
type finds struct {
	found    map[string][]string
	searched map[string]int
	bytes    int64
}

func (f *finds) look(where, name string, data []byte, secrets [][]byte) {
	f.searched[where]++
	f.bytes += int64(len(data))
	for _, s := range secrets {
		if bytes.Contains(data, s) {
			f.found[where] = append(f.found[where], fmt.Sprintf("%s (%.12s…)", name, s))
		}
	}
}

func (f *finds) processes(secrets [][]byte) {
	for where, file := range map[string]string{"environments": "environ", "arguments": "cmdline"} {
		paths, _ := filepath.Glob("/proc/[0-9]*/" + file)
		for _, p := range paths {
			if data, err := os.ReadFile(p); err == nil { // it may have ended
				f.look(where, p, data, secrets)
			}
		}
	}
}

func (f *finds) openFiles(pid int, secrets [][]byte) {
	for _, p := range append(testenv.Descendants(pid), pid) {
		paths, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p))
		for _, path := range paths {
			info, err := os.Stat(path)
			if err != nil || !info.Mode().IsRegular() || info.Size() > 64<<20 {
				continue // root images are larger, and the same for everybody
			}
			if data, err := os.ReadFile(path); err == nil {
				f.look("open files", path, data, secrets)
			}
		}
	}
}

func (f *finds) tree(where, root string, secrets [][]byte) {
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // it went away
		}
		f.look(where, path, []byte(path), secrets)
		if d.Type().IsRegular() {
			if data, err := os.ReadFile(path); err == nil {
				f.look(where, path, data, secrets)
			}
		}
		return nil
	})
}

// after searches what a run has left.
func (f *finds) after(c *canary, stdout, stderr []byte, secrets [][]byte) {
	f.processes(secrets)
	for _, d := range []string{"packs", "run"} {
		f.tree("host directories", filepath.Join(c.dir, d), secrets)
	}
	f.tree("artifacts", filepath.Join(c.dir, "artifacts"), secrets)
	everything, err := os.ReadFile(filepath.Join(c.dir, "artifacts/everything.bin"))
	if err != nil || !bytes.Contains(everything, []byte("/workspace/.git/config")) || !bytes.Contains(everything, []byte("AGENTDOCK_SANDBOX=true")) {
		c.t.Errorf("the search inside found neither .git nor the environment (%d bytes, %v), so it shows nothing", len(everything), err)
	}
	f.look("sandbox", "everything.bin", everything, secrets)
	f.look("output", "stdout", stdout, secrets)
	f.look("output", "stderr", stderr, secrets)
}

func newFinds() *finds { return &finds{found: map[string][]string{}, searched: map[string]int{}} }

// TestCanary runs a private repository end to end, from the command line, and
// looks for its secrets everywhere.
func TestCanary(t *testing.T) {
	images := images(t)
	c := newCanary(t)
	c.stop()
	cmd, stdout, stderr := c.run(images)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case <-c.fetched:
	case err := <-done:
		t.Fatalf("it ended before the fetch: %v\n%s%s", err, stdout, stderr)
	case <-time.After(2 * time.Minute):
		t.Fatal("no fetch began")
	}
	f, secrets := newFinds(), c.secrets()
	if len(c.github.Tokens()) != 1 || c.github.Live() != 1 || len(secrets) < 8 {
		t.Errorf("during the fetch there are %d tokens, %d live, %d secrets", len(c.github.Tokens()), c.github.Live(), len(secrets))
	}
	f.processes(secrets)
	f.openFiles(cmd.Process.Pid, secrets)
	for _, d := range []string{"packs", "run"} {
		f.tree("host directories", filepath.Join(c.dir, d), secrets)
	}
	close(c.goOn)
	if err := <-done; err != nil {
		t.Fatalf("the run: %v\n%s%s", err, stdout, stderr)
	}
	var report struct{ State, Commit, Stdout string }
	if err := json.Unmarshal(stdout.Bytes(), &report); err != nil || report.State != "succeeded" || len(report.Commit) != 40 || report.Stdout != "searched\n" {
		t.Errorf("the report is %s (%v)", stdout, err)
	}
	if c.github.Live() != 0 {
		t.Error("the token lives after the run")
	}
	f.after(c, stdout.Bytes(), stderr.Bytes(), c.secrets())
	for _, p := range places {
		t.Logf("%s: %d searched, %d found", p.name, f.searched[p.name], len(f.found[p.name]))
		if f.searched[p.name] == 0 {
			t.Errorf("%s: nothing was searched", p.name)
		}
		for _, found := range f.found[p.name] {
			t.Errorf("%s: a secret is in %s", p.name, found)
		}
	}
	t.Logf("%d bytes searched for %d forms of secrets", f.bytes, len(secrets))
	if names, err := os.ReadDir(filepath.Join(c.dir, "packs")); err != nil || len(names) != 0 {
		t.Errorf("packs are left: %v, %v", names, err)
	}
}

// TestCanaryControl plants a token in every place, where the search must find
// it.
func TestCanaryControl(t *testing.T) {
	images := images(t)
	c := newCanary(t)
	token, err := c.github.App().Mint(t.Context(), "acme", "app")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.github.App().Revoke(t.Context(), token) }()
	secret := c.github.Tokens()[0]

	// In a process, and a file without a name that it has open.
	file, err := os.CreateTemp(c.dir, "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString("a pack with " + secret); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(file.Name()); err != nil {
		t.Fatal(err)
	}
	planted := exec.Command("sleep", "600")
	planted.Args = []string{"sleep", "600"}
	planted.Env = []string{"TOKEN=" + secret}
	planted.ExtraFiles = []*os.File{file}
	argument := exec.Command("sh", "-c", "sleep 600; true", secret)
	for _, cmd := range []*exec.Cmd{planted, argument} {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			for _, p := range append(testenv.Descendants(cmd.Process.Pid), cmd.Process.Pid) {
				if proc, err := os.FindProcess(p); err == nil {
					_ = proc.Kill()
				}
			}
			_ = cmd.Wait()
		})
	}
	// In a directory, the sandbox, an artifact and the output.
	encoded := base64.StdEncoding.EncodeToString([]byte("x-access-token:" + secret))
	if err := os.WriteFile(filepath.Join(c.dir, "packs/planted"), []byte("Authorization: Basic "+encoded), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd, stdout, stderr := c.run(images, "--env", "PLANTED="+secret)
	if err := cmd.Run(); err != nil {
		t.Fatalf("the run: %v\n%s%s", err, stdout, stderr)
	}
	stderr.WriteString("fatal: cannot fetch with " + secret)

	f, secrets := newFinds(), c.secrets()
	f.openFiles(planted.Process.Pid, secrets)
	f.after(c, stdout.Bytes(), stderr.Bytes(), secrets)
	for _, p := range places {
		if len(f.found[p.name]) == 0 {
			t.Errorf("%s: what was planted there was not found", p.name)
		}
	}
}
