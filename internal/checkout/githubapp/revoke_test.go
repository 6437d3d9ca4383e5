package githubapp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/checkout/checkouttest"
	"github.com/agentdock/agentdock/internal/checkout/githubapp"
	"github.com/agentdock/agentdock/internal/checkout/reason"
)

// onDelete answers revocations, and leaves the rest to the real thing.
func onDelete(answer func(w http.ResponseWriter)) func(w http.ResponseWriter, r *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodDelete {
			return false
		}
		answer(w)
		return true
	}
}

// TestATokenThatOpensNothingIsRevoked: GitHub answers 401 to one that is over,
// whatever its clock says.
func TestATokenThatOpensNothingIsRevoked(t *testing.T) {
	for _, off := range []time.Duration{-time.Hour, -45 * time.Second, 0, 45 * time.Second, time.Hour} {
		t.Run(off.String(), func(t *testing.T) {
			g := start(t)
			token, err := g.App().Mint(t.Context(), "acme", "app")
			if err != nil {
				t.Fatal(err)
			}
			g.Expire()
			g.API = func(w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("Date", time.Now().Add(off).UTC().Format(http.TimeFormat))
				return false
			}
			if err := g.App().Revoke(t.Context(), token); err != nil {
				t.Errorf("Revoke: %v", err)
			}
		})
	}
}

// TestATokenThatLivesOn: whatever keeps it from being revoked, the error says
// until when it opens something.
func TestATokenThatLivesOn(t *testing.T) {
	status := func(code int, message string, headers ...string) func(w http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			for i := 0; i < len(headers); i += 2 {
				w.Header().Set(headers[i], headers[i+1])
			}
			w.WriteHeader(code)
			fmt.Fprintf(w, `{"message": %q}`, message)
		}
	}
	for name, tc := range map[string]struct {
		answer func(w http.ResponseWriter)
		want   reason.Code
		says   string
	}{
		"500":         {status(500, "Server Error"), reason.Unavailable, "status 500"},
		"403":         {status(403, "Forbidden"), reason.Unavailable, "status 403"},
		"404":         {status(404, "Not Found"), reason.Unavailable, "status 404"},
		"suspended":   {status(403, "This installation has been suspended"), reason.Unavailable, "suspended"},
		"rate limit":  {status(403, "API rate limit exceeded", "X-RateLimit-Remaining", "0"), reason.RateLimited, "limit"},
		"a redirect":  {status(307, "", "Location", "https://192.0.2.1/"), reason.Unavailable, "status 307"},
		"no answer":   {func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, reason.Unavailable, "cannot reach"},
		"its own end": {nil, reason.Unavailable, context.Canceled.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			g := start(t)
			token, err := g.App().Mint(t.Context(), "acme", "app")
			if err != nil {
				t.Fatal(err)
			}
			until, secret := token.Expires, g.Tokens()[0]
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if g.API = onDelete(tc.answer); tc.answer == nil {
				cancel()
			}
			err = g.App().Revoke(ctx, token)
			var left *githubapp.Unrevoked
			if !errors.As(err, &left) || !left.Until.Equal(until) || left.Code != tc.want {
				t.Fatalf("err = %v", err)
			}
			for _, says := range []string{"could not be revoked", until.UTC().Format(time.RFC3339), tc.says} {
				if !strings.Contains(err.Error(), says) {
					t.Errorf("%v does not say %q", err, says)
				}
			}
			if g.Live() != 1 || strings.Contains(err.Error(), secret) || errors.Is(err, context.Canceled) {
				t.Errorf("%d tokens live; %v", g.Live(), err)
			}
		})
	}
}

// TestATokenThatIsRefusedAndLivesOn: both are said.
func TestATokenThatIsRefusedAndLivesOn(t *testing.T) {
	fails := onDelete(func(w http.ResponseWriter) { w.WriteHeader(500) })
	for name, tc := range map[string]struct {
		grant func(cancel func(), answer map[string]any)
		want  reason.Code
		says  []string
	}{
		"it lives too long": {func(_ func(), a map[string]any) { a["expires_at"] = "2999-01-01T00:00:00Z" }, reason.TokenRefused,
			[]string{"lives too long", "could not be revoked", "until 2999-01-01T00:00:00Z", "status 500"}},
		"its end is not known": {func(_ func(), a map[string]any) { delete(a, "expires_at") }, reason.TokenRefused,
			[]string{"no time at which it expires", "could not be revoked", "for an hour or more"}},
		"the caller ends": {func(cancel func(), _ map[string]any) { cancel() }, "",
			[]string{context.Canceled.Error(), "could not be revoked"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := start(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			g.API, g.Grant = fails, func(a map[string]any) { tc.grant(cancel, a) }
			_, err := g.App().Mint(ctx, "acme", "app")
			var left *githubapp.Unrevoked
			if reason.Of(err) != tc.want || !errors.As(err, &left) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("err = %v (%s)", err, reason.Of(err))
			}
			for _, says := range tc.says {
				if strings.Count(err.Error(), says) != 1 {
					t.Errorf("%v says %q %d times", err, says, strings.Count(err.Error(), says))
				}
			}
			if tc.want == "" && !errors.Is(err, context.Canceled) {
				t.Error("that the caller ended is not found in it")
			}
		})
	}
}

// TestServes: which repository a URL names does not depend on how it is spelled.
func TestServes(t *testing.T) {
	g := checkouttest.Start(t)
	for _, web := range []string{"https://github.com", "https://GitHub.com.:443/"} {
		app, err := githubapp.New(githubapp.Config{ID: "1", Key: g.Key, Web: web})
		if err != nil {
			t.Fatal(err)
		}
		for text, want := range map[string]bool{
			"https://github.com/acme/app": true, "https://GITHUB.com/acme/app": true, "https://github.com:443/acme/app": true,
			"https://github.com./acme/app": true, "https://github.com/acme/app/": true, "https://github.com/acme/app.git": true,
			"https://github.com/acme/app.git/": true,
			"https://github.com:8443/acme/app": false, "https://github.com/acme": false, "https://github.com/acme/app/tree": false,
			"https://github.com//acme/app": false, "https://gist.github.com/acme/app": false, "https://github.community/acme/app": false,
			"https://github.com..:443/acme/app": false,
		} {
			u, err := url.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			if owner, name, ok := app.Serves(u); ok != want || ok && owner+"/"+name != "acme/app" {
				t.Errorf("with %s, %s is %s/%s, %v", web, text, owner, name, ok)
			}
		}
	}
	if _, err := githubapp.New(githubapp.Config{ID: "1", Key: g.Key, Web: "https://github..com"}); err == nil {
		t.Error("a host without one spelling is taken")
	}
}
