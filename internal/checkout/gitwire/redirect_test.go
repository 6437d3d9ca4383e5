package gitwire_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/agentdock/agentdock/internal/checkout/checkouttest"
	"github.com/agentdock/agentdock/internal/checkout/reason"
)

// redirects is a server on which acme/old is now acme/new.
type redirects struct {
	*checkouttest.GitHub
	t *testing.T
	// carried counts requests for the new name that carry the credentials.
	carried int
}

func newRedirects(t *testing.T) *redirects {
	g := &redirects{GitHub: checkouttest.Start(t), t: t}
	r := g.Repo("acme", "new")
	r.Commit("refs/heads/main", r.Tree(r.File("a", "1")))
	return g
}

const testCredentials = "Test of-the-session"

// fetch asks for acme/old. The server sends the first requests, or with post
// the commands, to what next says for the n-th of them and the rest of the path.
func (g *redirects) fetch(post bool, next func(n int, rest string) string) error {
	asked := 0
	g.Git = func(w http.ResponseWriter, r *http.Request) bool {
		rest, old := strings.CutPrefix(r.URL.Path, "/acme/old")
		switch {
		case !old:
			if "https://"+r.Host != g.URL {
				g.t.Errorf("the server was called %s", r.Host)
			}
			if r.Header.Get("Authorization") == testCredentials {
				g.carried++
			}
			r.Header.Del("Authorization")
			return false
		case post != (r.Method == http.MethodPost):
			r.URL.Path = "/acme/new" + rest
			r.Header.Del("Authorization")
			return false
		}
		asked++
		http.Redirect(w, r, next(asked, rest+"?"+r.URL.RawQuery), http.StatusTemporaryRedirect)
		return true
	}
	rem := remote(g.t, g.GitHub, "/acme/old")
	rem.Authorize = func(r *http.Request) { r.Header.Set("Authorization", testCredentials) }
	_, _, err := fetch(context.Background(), rem, "", 1, &bytes.Buffer{})
	return err
}

// TestRedirectsOfTheServerItself are followed within bounds: that is how a
// repository is found under its old name.
func TestRedirectsOfTheServerItself(t *testing.T) {
	g := newRedirects(t)
	port := g.URL[strings.LastIndex(g.URL, ":"):]
	for name, next := range map[string]func(n int, rest string) string{
		"to another name":                func(_ int, rest string) string { return g.URL + "/acme/new" + rest },
		"without naming the server":      func(_ int, rest string) string { return "/acme/new" + rest },
		"to the server, spelled another": func(_ int, rest string) string { return "HTTPS://127.0.0.1" + ":0" + port[1:] + "/acme/new" + rest },
		"as often as is followed": func(n int, rest string) string {
			if n < 3 {
				return fmt.Sprintf("%s/acme/old%s&n=%d", g.URL, rest, n)
			}
			return g.URL + "/acme/new" + rest
		},
	} {
		g.carried = 0
		if err := g.fetch(false, next); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		// What it can do, which refs it has, the pack.
		if g.carried != 3 {
			t.Errorf("%s: %d requests for the new name carried the credentials, want 3", name, g.carried)
		}
	}
}

// TestRedirectsThatAreNotFollowed say which kind they are. Credentials stay on
// the server that was named.
func TestRedirectsThatAreNotFollowed(t *testing.T) {
	g := newRedirects(t)
	away := checkouttest.Start(t)
	away.Git = func(_ http.ResponseWriter, r *http.Request) bool {
		t.Errorf("a request arrived elsewhere, with credentials: %v", r.Header.Get("Authorization") != "")
		return false
	}
	for name, tc := range map[string]struct {
		to   string
		post bool
		want reason.Code
		says string
	}{
		"another server":        {to: away.URL + "/acme/new", want: reason.HostRefused, says: "a redirect to https://127.0.0.1"},
		"the metadata server":   {to: "http://169.254.169.254/latest/meta-data", want: reason.HostRefused, says: "169.254.169.254"},
		"a local file":          {to: "file:///etc/passwd", want: reason.HostRefused, says: "file://"},
		"another, second call":  {to: away.URL + "/acme/new", post: true, want: reason.HostRefused, says: "a redirect to https://127.0.0.1"},
		"without TLS":           {to: strings.Replace(g.URL, "https", "http", 1) + "/acme/new", want: reason.Moved, says: "not HTTPS"},
		"with credentials":      {to: strings.Replace(g.URL, "https://", "https://user:password@", 1) + "/acme/new", want: reason.Moved, says: "credentials in it"},
		"in a circle":           {to: g.URL + "/acme/old", want: reason.Moved, says: "for the 4th time"},
		"of the second call":    {to: g.URL + "/acme/new", post: true, want: reason.Moved, says: "in the middle of a fetch"},
		"to no repository":      {to: g.URL + "/elsewhere?x=", want: reason.Malformed, says: "no repository"},
		"to one that is not it": {to: g.URL + "/acme/missing", want: reason.NotFound, says: "status 404"},
	} {
		err := g.fetch(tc.post, func(_ int, rest string) string { return tc.to + rest })
		if reason.Of(err) != tc.want || !strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), "password") {
			t.Errorf("%s: %v (%s), want %s that says %q", name, err, reason.Of(err), tc.want, tc.says)
		}
	}
}
