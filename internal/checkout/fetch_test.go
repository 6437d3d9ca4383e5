package checkout_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/checkout"
	"github.com/agentdock/agentdock/internal/checkout/checkouttest"
	"github.com/agentdock/agentdock/internal/checkout/reason"
)

// world is a GitHub with a private and a public repository.
type world struct {
	*checkouttest.GitHub
	dir    string
	commit string
}

func newWorld(t *testing.T) *world {
	w := &world{GitHub: checkouttest.Start(t), dir: t.TempDir()}
	r := w.Repo("acme", "app")
	w.commit = r.Commit("refs/heads/main", r.Tree(r.File("a", "content\n")))
	w.Private["acme/app"], w.Installed["acme"] = true, true
	p := w.Repo("acme", "public")
	p.Commit("refs/heads/main", p.Tree(p.File("a", "content\n")))
	return w
}

func (w *world) open(t *testing.T, change ...func(*checkout.Config)) *checkout.Checkout {
	t.Helper()
	cfg := checkout.Config{App: w.App(), Egress: w.Egress(), Dir: w.dir, Agent: "agentdock/test"}
	for _, c := range change {
		c(&cfg)
	}
	c, err := checkout.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (w *world) private() checkout.Request {
	return checkout.Request{Repository: w.URL + "/acme/app", AppReads: everything}
}

func everything(string, string) bool { return true }

// left holds the world to what must be true after every fetch.
func (w *world) left(t *testing.T) {
	t.Helper()
	if n := w.Live(); n != 0 {
		t.Errorf("%d tokens live", n)
	}
	if names, err := os.ReadDir(w.dir); err != nil || len(names) != 0 {
		t.Errorf("files are left: %v, %v", names, err)
	}
}

func TestAPrivateRepositoryIsFetchedAndTheTokenEnds(t *testing.T) {
	w := newWorld(t)
	f, err := w.open(t).Fetch(context.Background(), w.private())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Commit != w.commit || f.Ref != "refs/heads/main" || f.Bytes == 0 {
		t.Errorf("%+v", f.Result)
	}
	if len(w.Tokens()) != 1 || w.Used() < 3 {
		t.Errorf("%d tokens were used %d times", len(w.Tokens()), w.Used())
	}
	w.left(t)
}

// TestWithoutAGrantTheAppIsNotUsed: what the App may read is not what everybody
// may read who can submit a job.
func TestWithoutAGrantTheAppIsNotUsed(t *testing.T) {
	w := newWorld(t)
	for name, reads := range map[string]func(string, string) bool{
		"nobody": nil, "another": func(owner, name string) bool { return owner == "acme" && name == "other" },
	} {
		req := w.private()
		req.AppReads = reads
		_, missing := w.open(t).Fetch(context.Background(), checkout.Request{Repository: w.URL + "/acme/missing", AppReads: reads})
		_, err := w.open(t).Fetch(context.Background(), req)
		if reason.Of(err) != reason.NotFound || reason.Of(missing) != reason.NotFound {
			t.Errorf("%s: private: %v, missing: %v", name, err, missing)
		}
		req.Repository = w.URL + "/acme/public"
		f, err := w.open(t).Fetch(context.Background(), req)
		if err != nil {
			t.Fatalf("%s: a public repository: %v", name, err)
		}
		f.Close()
	}
	if len(w.Tokens()) != 0 {
		t.Errorf("%d tokens were made", len(w.Tokens()))
	}
}

// TestAPublicRepositoryNeedsNoInstallation: the App is not everywhere, and most
// of what is public is where it is not.
func TestAPublicRepositoryNeedsNoInstallation(t *testing.T) {
	w := newWorld(t)
	w.Installed = map[string]bool{}
	req := w.private()
	if _, err := w.open(t).Fetch(context.Background(), req); reason.Of(err) != reason.NotInstalled {
		t.Errorf("a private repository: %v", err)
	}
	req.Repository = w.URL + "/acme/public"
	f, err := w.open(t).Fetch(context.Background(), req)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	w.left(t)
}

func TestTheAppIsForItsGitHubOnly(t *testing.T) {
	w, other := newWorld(t), checkouttest.Start(t)
	other.Git = func(rw http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") != "" {
			t.Error("another server was given credentials")
		}
		return false
	}
	r := other.Repo("acme", "app")
	r.Commit("refs/heads/main", r.Tree(r.File("a", "x")))
	c := w.open(t, func(cfg *checkout.Config) { cfg.Egress = other.Egress() })
	f, err := c.Fetch(context.Background(), checkout.Request{Repository: other.URL + "/acme/app", AppReads: everything})
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if len(w.Tokens()) != 0 {
		t.Error("a token was made")
	}
}

// TestEveryWayOut: whatever ends a fetch, the token ends and the file is gone.
func TestEveryWayOut(t *testing.T) {
	// stall serves until the pack, and then says what it is given, for ever.
	stall := func(started chan<- struct{}, tick time.Duration, piece string) func(http.ResponseWriter, *http.Request) bool {
		return func(rw http.ResponseWriter, r *http.Request) bool {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(strings.NewReader(string(body)))
			if !strings.Contains(string(body), "command=fetch") {
				return false
			}
			rw.Header().Set("Content-Type", "application/x-git-upload-pack-result")
			fmt.Fprint(rw, "000dpackfile\n")
			for {
				if _, err := fmt.Fprint(rw, piece); err != nil || r.Context().Err() != nil {
					return true
				}
				rw.(http.Flusher).Flush()
				if started != nil {
					close(started)
					started = nil
				}
				select {
				case <-r.Context().Done():
					return true
				case <-time.After(tick):
				}
			}
		}
	}
	const aByte = "0006\x01x"
	echo := func(status int, text func(authorization string) string) func(http.ResponseWriter, *http.Request) bool {
		return func(rw http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPost {
				rw.Header().Set("Content-Type", "application/x-git-upload-pack-result")
				rw.WriteHeader(status)
				fmt.Fprint(rw, text(r.Header.Get("Authorization")))
				return true
			}
			return false
		}
	}
	pkt := func(s string) string { return fmt.Sprintf("%04x%s", len(s)+4, s) }
	for name, tc := range map[string]struct {
		ref    string
		git    func(http.ResponseWriter, *http.Request) bool
		api    func(http.ResponseWriter, *http.Request) bool
		config func(*checkout.Config)
		want   reason.Code
		says   string
	}{
		"no such ref":  {ref: "nothing", want: reason.RefNotFound},
		"a status 500": {git: echo(500, func(string) string { return "" }), want: reason.Unavailable},
		"one byte a while, for ever": {git: stall(nil, 20*time.Millisecond, aByte),
			config: func(c *checkout.Config) { c.Timeout = 2 * time.Second }, want: reason.TimedOut, says: "longer than 2s"},
		"more than the limit, for ever": {git: stall(nil, 0, pkt("\x01"+strings.Repeat("x", 60_000))),
			config: func(c *checkout.Config) { c.MaxBytes = 1 << 20 }, want: reason.TooLarge, says: "1.0 MiB"},
		"the token as an error": {git: echo(200, func(a string) string {
			secret, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(a, "Basic "))
			return pkt("ERR you sent " + string(secret))
		}), want: reason.Malformed, says: "left out"},
		"the header as an error": {git: echo(200, func(a string) string { return pkt("ERR you sent " + a) }), want: reason.Malformed, says: "left out"},
		"revoking fails": {api: func(rw http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodDelete {
				rw.WriteHeader(500)
			}
			return r.Method == http.MethodDelete
		}, want: reason.Unavailable, says: "could not be revoked"},
		"a directory that is gone": {config: func(c *checkout.Config) { c.Dir += "/sub" }, says: "cannot make a file"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.Git, w.API = tc.git, tc.api
			var changes []func(*checkout.Config)
			if tc.config != nil {
				changes = append(changes, tc.config)
			}
			c := w.open(t, changes...)
			_ = os.Remove(w.dir + "/sub")
			req := w.private()
			req.Ref = tc.ref
			f, err := c.Fetch(context.Background(), req)
			if f != nil || err == nil || reason.Of(err) != tc.want || !strings.Contains(err.Error(), tc.says) {
				t.Fatalf("err = %v (%s), want %s that says %q", err, reason.Of(err), tc.want, tc.says)
			}
			for _, secret := range w.Tokens() {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("the error holds the token: %v", err)
				}
			}
			if name == "revoking fails" {
				if w.Live() != 1 {
					t.Error("the token lives no longer, so this tests nothing")
				}
				return
			}
			w.left(t)
		})
	}
	t.Run("cancelled", func(t *testing.T) {
		w := newWorld(t)
		started := make(chan struct{})
		w.Git = stall(started, time.Millisecond, aByte)
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			<-started
			cancel()
		}()
		if _, err := w.open(t).Fetch(ctx, w.private()); !errors.Is(err, context.Canceled) || reason.Of(err) != "" {
			t.Errorf("err = %v", err)
		}
		w.left(t)
	})
	t.Run("the caller's own deadline", func(t *testing.T) {
		w := newWorld(t)
		w.Git = stall(nil, time.Millisecond, aByte)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err := w.open(t).Fetch(ctx, w.private()); !errors.Is(err, context.DeadlineExceeded) || reason.Of(err) != "" {
			t.Errorf("err = %v", err)
		}
		w.left(t)
	})
}

func TestPrivateAddressesAreRefused(t *testing.T) {
	w := newWorld(t)
	c := w.open(t, func(cfg *checkout.Config) { cfg.Egress.Allow = nil })
	for _, host := range []string{"127.0.0.1", "localhost", "169.254.169.254", "[::ffff:169.254.169.254]", "10.0.0.1", "[fd00:ec2::254]", "0.0.0.0"} {
		_, err := c.Fetch(context.Background(), checkout.Request{Repository: "https://" + host + "/acme/app", AppReads: everything})
		if reason.Of(err) != reason.HostRefused {
			t.Errorf("%s: %v", host, err)
		}
	}
	c = w.open(t, func(cfg *checkout.Config) { cfg.Egress.Allow = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")} })
	if _, err := c.Fetch(context.Background(), checkout.Request{Repository: "https://169.254.169.254/acme/app"}); reason.Of(err) != reason.HostRefused {
		t.Errorf("metadata, where everything is allowed: %v", err)
	}
}

const killedVariable = "AGENTDOCK_TEST_FETCHES"

// TestKilled: a worker that is killed in the middle of a fetch leaves no file.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestFetchUntilKilled$")
	cmd.Env = append(os.Environ(), killedVariable+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// It says so when the pack is on its way; that it is there is in /proc.
	var said [8]byte
	if _, err := io.ReadFull(out, said[:]); err != nil || string(said[:]) != "fetching" {
		t.Fatalf("it said %q, %v", said[:], err)
	}
	open := func() (found bool) {
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", cmd.Process.Pid))
		for _, f := range files {
			target, _ := os.Readlink(f)
			found = found || strings.HasPrefix(target, dir)
		}
		return found
	}
	if !open() {
		t.Error("it has no file open, so this tests nothing")
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 0 {
		t.Errorf("during the fetch there is %v, %v", names, err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if names, err := os.ReadDir(dir); err != nil || len(names) != 0 {
		t.Errorf("after the kill there is %v, %v", names, err)
	}
}

// TestFetchUntilKilled is the process that TestKilled kills.
func TestFetchUntilKilled(t *testing.T) {
	dir := os.Getenv(killedVariable)
	if dir == "" {
		return // nothing to show by itself
	}
	w := newWorld(t)
	w.dir = dir
	w.Git = func(rw http.ResponseWriter, r *http.Request) bool {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		if !strings.Contains(string(body), "command=fetch") {
			return false
		}
		rw.Header().Set("Content-Type", "application/x-git-upload-pack-result")
		fmt.Fprint(rw, "000dpackfile\n0009\x01PACK")
		rw.(http.Flusher).Flush()
		fmt.Print("fetching")
		<-r.Context().Done()
		return true
	}
	_, _ = w.open(t).Fetch(context.Background(), w.private())
}
