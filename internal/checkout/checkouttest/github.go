package checkouttest

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/checkout/egress"
	"github.com/agentdock/agentdock/internal/checkout/githubapp"
)

// AppID is the App's.
const AppID = "123456"

// GitHub is the server. Its fields may be changed under Lock.
type GitHub struct {
	sync.Mutex
	// URL is where it is, without a slash at its end.
	URL string
	// Root holds repositories as OWNER/NAME.git.
	Root string
	Key  *rsa.PrivateKey

	// Private repositories take a token; "owner/name".
	Private map[string]bool
	// Installed are the owners who have installed the App.
	Installed map[string]bool
	Suspended map[string]bool
	// TokenLife is how long tokens live.
	TokenLife time.Duration

	// API and Git answer in place of the real thing, if set and they return
	// true.
	API, Git func(w http.ResponseWriter, r *http.Request) bool
	// Grant changes what a request for a token is answered.
	Grant func(answer map[string]any)

	tokens map[string]*token
	t      testing.TB
	server *httptest.Server
}

type token struct {
	owner, name string
	expires     time.Time
	revoked     bool
	used        int
}

// appKey is the App's in a whole test process: making one takes a while.
var appKey = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

// Start starts a server with an empty Root.
func Start(t testing.TB) *GitHub {
	t.Helper()
	key, err := appKey()
	if err != nil {
		t.Fatal(err)
	}
	g := &GitHub{
		Root: t.TempDir(), Key: key, Private: map[string]bool{}, Installed: map[string]bool{}, Suspended: map[string]bool{},
		TokenLife: time.Hour, tokens: map[string]*token{}, t: t,
	}
	g.server = httptest.NewTLSServer(http.HandlerFunc(g.serve))
	t.Cleanup(g.server.Close)
	g.URL = g.server.URL
	return g
}

// Egress allows the server's address, and trusts its certificate.
func (g *GitHub) Egress() egress.Policy {
	roots := x509.NewCertPool()
	roots.AddCert(g.server.Certificate())
	return egress.Policy{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Roots: roots}
}

// Certificate is the server's own authority.
func (g *GitHub) Certificate() *x509.Certificate { return g.server.Certificate() }

// App is an App that the server knows.
func (g *GitHub) App() *githubapp.App {
	g.t.Helper()
	return g.AppAs(AppID, g.Key)
}

// AppAs is an App with another id or key.
func (g *GitHub) AppAs(id string, key *rsa.PrivateKey) *githubapp.App {
	g.t.Helper()
	app, err := githubapp.New(githubapp.Config{
		ID: id, Key: key, API: g.URL + "/api/v3", Web: g.URL, Transport: g.Egress().Transport(), Agent: "agentdock/test",
	})
	if err != nil {
		g.t.Fatal(err)
	}
	return app
}

// Repo makes a repository.
func (g *GitHub) Repo(owner, name string, args ...string) *Repo {
	g.t.Helper()
	return NewRepo(g.t, filepath.Join(g.Root, owner, name+".git"), args...)
}

// Tokens are all that were ever given out.
func (g *GitHub) Tokens() []string {
	g.Lock()
	defer g.Unlock()
	var all []string
	for t := range g.tokens {
		all = append(all, t)
	}
	return all
}

// Expire lets every token's time be over.
func (g *GitHub) Expire() {
	g.Lock()
	defer g.Unlock()
	for _, t := range g.tokens {
		t.expires = time.Now()
	}
}

// Used counts the requests that tokens have opened repositories for.
func (g *GitHub) Used() (n int) {
	g.Lock()
	defer g.Unlock()
	for _, t := range g.tokens {
		n += t.used
	}
	return n
}

// Live counts the tokens that still open something.
func (g *GitHub) Live() (n int) {
	g.Lock()
	defer g.Unlock()
	for _, t := range g.tokens {
		if t.live() {
			n++
		}
	}
	return n
}

func (t *token) live() bool { return !t.revoked && time.Now().Before(t.expires) }

func (g *GitHub) serve(w http.ResponseWriter, r *http.Request) {
	g.Lock()
	api, git := g.API, g.Git
	g.Unlock()
	if path, ok := strings.CutPrefix(r.URL.Path, "/api/v3"); ok {
		if api == nil || !api(w, r) {
			g.serveAPI(w, r, path)
		}
		return
	}
	if git == nil || !git(w, r) {
		g.serveGit(w, r)
	}
}

// serveGit is git's own server behind the checks that GitHub makes.
func (g *GitHub) serveGit(w http.ResponseWriter, r *http.Request) {
	parts := strings.SplitN(strings.TrimPrefix(r.URL.Path, "/"), "/", 3)
	if len(parts) < 3 {
		http.NotFound(w, r)
		return
	}
	owner, name := parts[0], strings.TrimSuffix(parts[1], ".git")
	if !g.mayRead(w, r, owner, name) {
		return
	}
	exe, err := exec.LookPath("git")
	if err != nil {
		g.t.Error(err)
		return
	}
	r.Header.Del("Authorization")
	r.URL.Path = "/" + owner + "/" + name + ".git/" + parts[2]
	handler := cgi.Handler{
		Path: exe, Args: []string{"http-backend"}, Root: "/",
		Logger: log.New(io.Discard, "", 0), // clients that go away are what tests are about
		Env:    []string{"GIT_PROJECT_ROOT=" + g.Root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "HOME=/nonexistent"},
	}
	handler.ServeHTTP(w, r)
}

func (g *GitHub) mayRead(w http.ResponseWriter, r *http.Request, owner, name string) bool {
	g.Lock()
	defer g.Unlock()
	user, secret, given := r.BasicAuth()
	if given {
		t := g.tokens[secret]
		if user != "x-access-token" || t == nil || !t.live() || g.Suspended[owner] {
			w.Header().Set("WWW-Authenticate", `Basic realm="GitHub"`)
			http.Error(w, "Bad credentials", http.StatusUnauthorized)
			return false
		}
		if t.owner != owner || t.name != name {
			http.Error(w, "Repository not found.", http.StatusNotFound)
			return false
		}
		t.used++
		return true
	}
	if g.Private[owner+"/"+name] {
		w.Header().Set("WWW-Authenticate", `Basic realm="GitHub"`)
		http.Error(w, "Authentication required", http.StatusUnauthorized)
		return false
	}
	return true
}
