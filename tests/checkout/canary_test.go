package checkout

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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
	{"mapped files", "the same for files they have mapped, the sandbox's memory among them"},
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
	t      *testing.T
	github *checkouttest.GitHub
	dir    string
	bin    string
	commit string
	mu     sync.Mutex
	signed []string // by the App, as requests carried it
}

func newCanary(t *testing.T) *canary {
	c := &canary{t: t, github: checkouttest.Start(t), bin: testenv.Binaries(t)}
	var err error
	if c.dir, err = os.MkdirTemp("", "ad"); err != nil { // short: a socket's path has a limit
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(c.dir) })
	r := c.github.Repo("acme", "app")
	c.commit = r.Commit("refs/heads/main", r.Tree(r.File("README", "private\n")))
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

// gate holds fetches up, once their token is in use.
type gate struct {
	// reached gets one for each that is held up; open lets all of them through.
	reached chan struct{}
	open    func()
	fetches atomic.Int64
}

// hold holds up the fetches to come. echo, if it is not nil, is what they get of
// a pack meanwhile.
func (c *canary) hold(echo func(authorization string) string) *gate {
	opened := make(chan struct{})
	g := &gate{reached: make(chan struct{}, 100), open: sync.OnceFunc(func() { close(opened) })}
	c.t.Cleanup(g.open)
	c.github.Lock()
	defer c.github.Unlock()
	c.github.Git = func(rw http.ResponseWriter, r *http.Request) bool {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if !bytes.Contains(body, []byte("command=fetch")) {
			return false
		}
		g.fetches.Add(1)
		if echo != nil {
			text := "\x01PACK" + echo(r.Header.Get("Authorization"))
			rw.Header().Set("Content-Type", "application/x-git-upload-pack-result")
			fmt.Fprintf(rw, "000dpackfile\n%04x%s", len(text)+4, text)
			rw.(http.Flusher).Flush()
		}
		g.reached <- struct{}{}
		select {
		case <-opened:
		case <-r.Context().Done(): // whoever asked was killed
		}
		if echo != nil {
			fmt.Fprint(rw, "0000")
		}
		return echo != nil
	}
	return g
}

// wait waits for a fetch that is held up.
func (g *gate) wait(t *testing.T, ended <-chan error) {
	t.Helper()
	select {
	case <-g.reached:
	case err := <-ended:
		t.Fatalf("it ended before the fetch: %v", err)
	case <-time.After(2 * time.Minute):
		t.Fatal("no fetch began")
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

// secrets are the tokens, the App's signatures and its key.
func (c *canary) secrets() *needles {
	n := newNeedles()
	for _, t := range c.github.Tokens() {
		n.add("a token", t)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.signed {
		n.add("a signature of the App", s[strings.LastIndex(s, ".")+1:])
	}
	key := x509.MarshalPKCS1PrivateKey(c.github.Key)
	n.form("the App's key", string(key[len(key)/2:len(key)/2+64]))
	for i, line := range strings.Split(string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: key})), "\n") {
		if len(line) == 64 && i < 4 {
			n.form("the App's key", line)
		}
	}
	return n
}

// opens reports whether the repository is given out for a token: whether it
// lives is asked of the server, as whoever found it would, and not of its books.
func (c *canary) opens(token string) bool {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.github.URL+"/acme/app/info/refs?service=git-upload-pack", nil)
	if err != nil {
		c.t.Fatal(err)
	}
	req.SetBasicAuth("x-access-token", token)
	transport := c.github.Egress().Transport()
	defer transport.CloseIdleConnections()
	res, err := transport.RoundTrip(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// after searches what a run has left.
func (f *finds) after(c *canary, stdout, stderr []byte) {
	f.processes()
	for _, d := range []string{"packs", "run"} {
		f.tree("host directories", filepath.Join(c.dir, d))
	}
	f.tree("artifacts", filepath.Join(c.dir, "artifacts"))
	everything, err := os.ReadFile(filepath.Join(c.dir, "artifacts/everything.bin"))
	if err != nil || !bytes.Contains(everything, []byte("/workspace/.git/config")) || !bytes.Contains(everything, []byte("AGENTDOCK_SANDBOX=true")) {
		c.t.Errorf("the search inside found neither .git nor the environment (%d bytes, %v), so it shows nothing", len(everything), err)
	}
	f.look("sandbox", "everything.bin", everything)
	f.look("output", "stdout", stdout)
	f.look("output", "stderr", stderr)
}

// TestCanary runs a private repository end to end, from the command line, and
// looks for its secrets everywhere.
func TestCanary(t *testing.T) {
	images := images(t)
	c := newCanary(t)
	g := c.hold(nil)
	cmd, stdout, stderr := c.run(images)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	g.wait(t, done)
	f := newFinds(t, c.secrets(), images)
	if len(c.github.Tokens()) != 1 || !c.opens(c.github.Tokens()[0]) || len(c.signed) != 2 {
		t.Errorf("during the fetch there are %d tokens, and %d requests were signed", len(c.github.Tokens()), len(c.signed))
	}
	f.processes()
	f.openFiles("open files", cmd.Process.Pid)
	f.mappedFiles("mapped files", cmd.Process.Pid)
	for _, d := range []string{"packs", "run"} {
		f.tree("host directories", filepath.Join(c.dir, d))
	}
	g.open()
	if err := <-done; err != nil {
		t.Fatalf("the run: %v\n%s%s", err, stdout, stderr)
	}
	var report struct{ State, Commit, Stdout string }
	if err := json.Unmarshal(stdout.Bytes(), &report); err != nil || report.State != "succeeded" || len(report.Commit) != 40 || report.Stdout != "searched\n" {
		t.Errorf("the report is %s (%v)", stdout, err)
	}
	if c.opens(c.github.Tokens()[0]) || c.github.Live() != 0 {
		t.Error("the token lives after the run")
	}
	f.needles = c.secrets()
	f.after(c, stdout.Bytes(), stderr.Bytes())
	f.report(places, false)
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
	mapped := mapNameless(t, c.dir, "a page with "+secret)
	defer mapped()
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

	f := newFinds(t, c.secrets(), images)
	f.openFiles("open files", planted.Process.Pid)
	f.mappedFiles("mapped files", os.Getpid())
	f.after(c, stdout.Bytes(), stderr.Bytes())
	f.report(places, true)
}

// mapNameless maps a file with a text, which is neither open nor has a name.
func mapNameless(t *testing.T, dir, text string) (unmap func()) {
	t.Helper()
	file, err := os.CreateTemp(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	_, writeErr := file.WriteString(text)
	page, mapErr := unix.Mmap(int(file.Fd()), 0, len(text), unix.PROT_READ, unix.MAP_SHARED)
	if err := errors.Join(writeErr, mapErr, os.Remove(file.Name()), file.Close()); err != nil {
		t.Fatal(err)
	}
	return func() { _ = unix.Munmap(page) }
}
