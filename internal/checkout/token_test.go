package checkout_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/checkout"
	"github.com/agentdock/agentdock/internal/checkout/githubapp"
	"github.com/agentdock/agentdock/internal/checkout/reason"
)

// revocation answers requests to revoke a token.
func revocation(answer func(rw http.ResponseWriter)) func(http.ResponseWriter, *http.Request) bool {
	return func(rw http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodDelete {
			return false
		}
		answer(rw)
		return true
	}
}

// TestARevocationThatFailsIsSaid, whatever became of the fetch: an operator must
// know that a token lives on, and until when.
func TestARevocationThatFailsIsSaid(t *testing.T) {
	fails := revocation(func(rw http.ResponseWriter) { rw.WriteHeader(http.StatusInternalServerError) })
	for name, tc := range map[string]struct {
		change func(w *world, req *checkout.Request, cancel func())
		config func(*checkout.Config)
		want   reason.Code
		says   string
	}{
		"after a good fetch": {want: reason.Unavailable, says: "status 500"},
		"after a ref that is not there": {want: reason.RefNotFound, says: "nothing",
			change: func(_ *world, req *checkout.Request, _ func()) { req.Ref = "nothing" }},
		"after a server that fails": {want: reason.Unavailable, says: "status 503",
			change: func(w *world, _ *checkout.Request, _ func()) {
				w.Git = func(rw http.ResponseWriter, _ *http.Request) bool {
					rw.WriteHeader(http.StatusServiceUnavailable)
					return true
				}
			}},
		"after the time limit": {want: reason.TimedOut, says: "longer than 1s", config: func(c *checkout.Config) { c.Timeout = time.Second },
			change: func(w *world, _ *checkout.Request, _ func()) {
				w.Git = func(_ http.ResponseWriter, r *http.Request) bool {
					<-r.Context().Done()
					return true
				}
			}},
		"after the time limit, while the token was made": {want: reason.TimedOut, says: "longer than 1s", config: func(c *checkout.Config) { c.Timeout = time.Second },
			change: func(w *world, _ *checkout.Request, _ func()) {
				w.Grant = func(map[string]any) { time.Sleep(1100 * time.Millisecond) }
			}},
		"after the caller's end": {want: "", says: context.Canceled.Error(),
			change: func(w *world, _ *checkout.Request, cancel func()) {
				w.Git = func(_ http.ResponseWriter, r *http.Request) bool {
					cancel()
					<-r.Context().Done()
					return true
				}
			}},
		"after a token that was not used": {want: reason.TokenRefused, says: "may do more",
			change: func(w *world, _ *checkout.Request, _ func()) {
				w.Grant = func(a map[string]any) { a["permissions"] = map[string]string{"contents": "write"} }
			}},
		"after this machine's own fault": {want: "", says: "cannot make a file",
			config: func(c *checkout.Config) { c.Dir += "/sub" },
			change: func(w *world, _ *checkout.Request, _ func()) { removeAll(t, w.dir+"/sub") }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.API = fails
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c := w.open(t, orNothing(tc.config))
			req := w.private()
			if tc.change != nil {
				tc.change(w, &req, cancel)
			}
			f, err := c.Fetch(ctx, req)
			var left *githubapp.Unrevoked
			if f != nil || err == nil || reason.Of(err) != tc.want || !errors.As(err, &left) {
				t.Fatalf("err = %v (%s), want %q and a token that lives on", err, reason.Of(err), tc.want)
			}
			for _, says := range []string{tc.says, "could not be revoked", "until " + left.Until.UTC().Format(time.RFC3339)} {
				if !strings.Contains(err.Error(), says) {
					t.Errorf("%v does not say %q", err, says)
				}
			}
			var why *reason.Error
			if errors.As(err, &why) && !strings.Contains(why.Outcome().Evidence, "could not be revoked") {
				t.Errorf("the outcome does not say it: %v", why.Outcome())
			}
			if w.Live() != 1 {
				t.Errorf("%d tokens live, so this tests nothing", w.Live())
			}
			oneLine(t, err)
		})
	}
}

// TestATokenThatIsOverIsNoFailure: GitHub answers 401 to the revocation of one
// that expired or that somebody else revoked, and a clock that is off by less
// than is taken for a reason of its own must not make a failure of that.
func TestATokenThatIsOverIsNoFailure(t *testing.T) {
	for _, off := range []time.Duration{-time.Hour, -45 * time.Second, 45 * time.Second} {
		w := newWorld(t)
		w.API = func(rw http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodDelete {
				w.Expire()
				rw.Header().Set("Date", time.Now().Add(off).UTC().Format(http.TimeFormat))
			}
			return false
		}
		f, err := w.open(t).Fetch(t.Context(), w.private())
		if err != nil {
			t.Fatalf("with a clock off by %s: %v", off, err)
		}
		if f.Commit != w.commit {
			t.Errorf("%+v", f.Result)
		}
		_ = f.Close()
		w.left(t)
	}
}

// TestTokensThatEndDuringAFetch are not taken for a repository that is not there.
func TestTokensThatEndDuringAFetch(t *testing.T) {
	for name, tc := range map[string]struct {
		life time.Duration
		want reason.Code
		says string
	}{
		"expired":                 {30 * time.Second, reason.TokenExpired, "expired at "},
		"revoked by somebody":     {time.Hour, reason.TokenRefused, "does not accept the token"},
		"suspended in the middle": {time.Hour, reason.TokenRefused, "suspended"},
	} {
		for _, command := range []string{"command=ls-refs", "command=fetch", ""} {
			t.Run(fmt.Sprint(name, ", ", command), func(t *testing.T) {
				w := newWorld(t)
				w.TokenLife = tc.life
				w.Git = func(_ http.ResponseWriter, r *http.Request) bool {
					body, _ := io.ReadAll(r.Body)
					r.Body = io.NopCloser(strings.NewReader(string(body)))
					if strings.Contains(string(body), command) {
						w.Expire()
					}
					return false
				}
				_, err := w.open(t).Fetch(t.Context(), w.private())
				if reason.Of(err) != tc.want || !strings.Contains(err.Error(), tc.says) {
					t.Errorf("err = %v (%s), want %s", err, reason.Of(err), tc.want)
				}
				w.left(t)
				oneLine(t, err)
			})
		}
	}
}

// TestEverySpellingOfAURL finds the private repository, and is kept as one.
func TestEverySpellingOfAURL(t *testing.T) {
	w := newWorld(t)
	port := w.URL[strings.LastIndex(w.URL, ":")+1:]
	for _, text := range []string{
		w.URL + "/acme/app", w.URL + "/acme/app/", w.URL + "/acme/app///", "HTTPS://127.0.0.1:0" + port + "/acme/app",
		"https://[::ffff:127.0.0.1]:" + port + "/acme/app", w.URL + "/%61cme/app",
	} {
		req := w.private()
		req.Repository = text
		f, err := w.open(t).Fetch(t.Context(), req)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if f.Commit != w.commit || f.Origin() != w.URL+"/acme/app" {
			t.Errorf("%s: %+v, origin %s", text, f.Result, f.Origin())
		}
		_ = f.Close()
	}
	w.left(t)
}
