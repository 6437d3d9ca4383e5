package gitwire_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/checkout/checkouttest"
	"github.com/agentdock/agentdock/internal/checkout/gitwire"
	"github.com/agentdock/agentdock/internal/checkout/reason"
)

func remote(t *testing.T, g *checkouttest.GitHub, path string) gitwire.Remote {
	t.Helper()
	u, err := url.Parse(g.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	return gitwire.Remote{URL: u, Transport: g.Egress().Transport(), Agent: "agentdock/test"}
}

// fetch is all three calls.
func fetch(ctx context.Context, r gitwire.Remote, ref string, depth int, pack *bytes.Buffer) (gitwire.Target, gitwire.Fetched, error) {
	s, err := gitwire.Open(ctx, r)
	if err != nil {
		return gitwire.Target{}, gitwire.Fetched{}, err
	}
	target, err := s.Resolve(ctx, ref)
	if err != nil {
		return target, gitwire.Fetched{}, err
	}
	got, err := s.Fetch(ctx, target, depth, pack)
	return target, got, err
}

// objects counts what is in a pack, with git's own eyes.
func objects(t *testing.T, pack []byte, args ...string) int {
	t.Helper()
	into := checkouttest.NewRepo(t, t.TempDir()+"/into.git", args...)
	into.GitIn(pack, "index-pack", "--strict", "--stdin")
	return len(strings.Split(into.Git("cat-file", "--batch-all-objects", "--batch-check"), "\n"))
}

// TestAgainstGit asks git's own server for everything a ref can be.
func TestAgainstGit(t *testing.T) {
	g := checkouttest.Start(t)
	r := g.Repo("acme", "app")
	one := r.Commit("refs/heads/main", r.Tree(r.File("a", "1")))
	two := r.Commit("refs/heads/main", r.Tree(r.File("a", "2")), one)
	side := r.Commit("refs/heads/feature/x", r.Tree(r.File("a", "3")), one)
	option := r.Commit("refs/heads/--upload-pack=touch", r.Tree(r.File("a", "4")), one)
	pull := r.Commit("refs/pull/7/head", r.Tree(r.File("a", "5")), one)
	merge := r.Commit("refs/pull/7/merge", r.Tree(r.File("a", "6")), two, pull)
	r.Commit("refs/heads/both", r.Tree(r.File("a", "7")), one)
	r.Git("update-ref", "refs/tags/both", one)
	r.Git("tag", "light", one)
	r.Git("tag", "-a", "-m", "annotated", "v1", one)
	r.Git("tag", "-a", "-m", "annotated twice", "v2", "v1")
	v1, v2 := r.Git("rev-parse", "refs/tags/v1"), r.Git("rev-parse", "refs/tags/v2")

	for _, tc := range []struct {
		ref            string
		object, commit string
		full           string
		why            reason.Code
	}{
		{ref: "", object: two, commit: two, full: "refs/heads/main"},
		{ref: "HEAD", object: two, commit: two, full: "refs/heads/main"},
		{ref: "main", object: two, commit: two, full: "refs/heads/main"},
		{ref: "heads/main", object: two, commit: two, full: "refs/heads/main"},
		{ref: "refs/heads/main", object: two, commit: two, full: "refs/heads/main"},
		{ref: "feature/x", object: side, commit: side, full: "refs/heads/feature/x"},
		{ref: "--upload-pack=touch", object: option, commit: option, full: "refs/heads/--upload-pack=touch"},
		{ref: "light", object: one, commit: one, full: "refs/tags/light"},
		{ref: "v1", object: v1, commit: one, full: "refs/tags/v1"},
		{ref: "tags/v1", object: v1, commit: one, full: "refs/tags/v1"},
		{ref: "v2", object: v2, commit: one, full: "refs/tags/v2"},
		{ref: "pull/7", object: pull, commit: pull, full: "refs/pull/7/head"},
		{ref: "pull/7/head", object: pull, commit: pull, full: "refs/pull/7/head"},
		{ref: "pull/7/merge", object: merge, commit: merge, full: "refs/pull/7/merge"},
		{ref: one, object: one, commit: one},
		{ref: "both", why: reason.RefAmbiguous},
		{ref: "refs/tags/both", object: one, commit: one, full: "refs/tags/both"},
		{ref: "mai", why: reason.RefNotFound},
		{ref: "feature", why: reason.RefNotFound},
		{ref: "pull/8", why: reason.RefNotFound},
		{ref: one[:12], why: reason.RefNotFound},
		{ref: strings.Repeat("0123456789", 4), why: reason.RefNotFound},
		{ref: strings.Repeat("01234567", 8), why: reason.RefNotFound},
		{ref: "a b", why: reason.BadSource},
		{ref: "a..b", why: reason.BadSource},
		{ref: "a\nb", why: reason.BadSource},
		{ref: "main\x00", why: reason.BadSource},
		{ref: "a^{commit}", why: reason.BadSource},
		{ref: "refs/heads/.hidden", why: reason.BadSource},
		{ref: "x.lock", why: reason.BadSource},
		{ref: "*", why: reason.BadSource},
	} {
		t.Run(strings.ReplaceAll(fmt.Sprintf("%.20q", tc.ref), "/", "_"), func(t *testing.T) {
			var pack bytes.Buffer
			target, got, err := fetch(context.Background(), remote(t, g, "/acme/app"), tc.ref, 1, &pack)
			if tc.why != "" {
				if reason.Of(err) != tc.why {
					t.Fatalf("err = %v (%s), want %s", err, reason.Of(err), tc.why)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if want := (gitwire.Target{Object: tc.object, Commit: tc.commit, Ref: tc.full}); target != want {
				t.Errorf("%+v, want %+v", target, want)
			}
			want := 3 // commit, tree, blob
			if tc.object != tc.commit {
				want++
			}
			if tc.ref == "v2" {
				want++
			}
			// A pack of a shallow commit does not stand alone, so git is told.
			if n := len(got.Shallow); n > 1 || n == 1 && got.Shallow[0] != tc.commit {
				t.Errorf("the history is cut at %q", got.Shallow)
			}
			if n := bytes.Count(pack.Bytes()[:4], []byte("PACK")); n != 1 || int(pack.Bytes()[11]) != want {
				t.Errorf("the pack holds %d objects, want %d", pack.Bytes()[11], want)
			}
		})
	}

	t.Run("whole history", func(t *testing.T) {
		var pack bytes.Buffer
		_, got, err := fetch(context.Background(), remote(t, g, "/acme/app"), "main", 0, &pack)
		if err != nil || len(got.Shallow) != 0 || objects(t, pack.Bytes()) != 6 {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	t.Run("two commits", func(t *testing.T) {
		var pack bytes.Buffer
		_, got, err := fetch(context.Background(), remote(t, g, "/acme/app"), "main", 2, &pack)
		if err != nil || len(got.Shallow) != 0 && got.Shallow[0] != one || objects(t, pack.Bytes()) != 6 {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	t.Run("SHA-256", func(t *testing.T) {
		r := g.Repo("acme", "sha256", "--object-format=sha256")
		hash := r.Commit("refs/heads/main", r.Tree(r.File("a", "1")))
		var pack bytes.Buffer
		target, _, err := fetch(context.Background(), remote(t, g, "/acme/sha256"), "", 0, &pack)
		if err != nil || target.Commit != hash || len(hash) != 64 || objects(t, pack.Bytes(), "--object-format=sha256") != 3 {
			t.Errorf("got %+v, %v", target, err)
		}
	})
	t.Run("empty", func(t *testing.T) {
		g.Repo("acme", "empty")
		if _, _, err := fetch(context.Background(), remote(t, g, "/acme/empty"), "", 1, &bytes.Buffer{}); reason.Of(err) != reason.RefNotFound {
			t.Errorf("err = %v", err)
		}
	})
	t.Run("not there", func(t *testing.T) {
		if _, _, err := fetch(context.Background(), remote(t, g, "/acme/nothing"), "", 1, &bytes.Buffer{}); reason.Of(err) != reason.NotFound {
			t.Errorf("err = %v", err)
		}
	})
	t.Run("the writer fails", func(t *testing.T) {
		s, err := gitwire.Open(context.Background(), remote(t, g, "/acme/app"))
		if err != nil {
			t.Fatal(err)
		}
		target, err := s.Resolve(context.Background(), "")
		if err != nil {
			t.Fatal(err)
		}
		full := errors.New("full")
		if _, err := s.Fetch(context.Background(), target, 1, failing{full}); !errors.Is(err, full) {
			t.Errorf("err = %v", err)
		}
	})
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func line(s string) string { return fmt.Sprintf("%04x%s", len(s)+4, s) }

const (
	hash = "0123456789012345678901234567890123456789"
)

// TestHostileServers: whatever a server says, it is bounded, judged, and ends.
func TestHostileServers(t *testing.T) {
	caps := line("version 2\n") + line("ls-refs=unborn\n") + line("fetch=shallow wait-for-done\n") + line("object-format=sha1\n") + "0000"
	refs := line(hash+" refs/heads/main\n") + "0000"
	pack := func(s string) string { return line("packfile\n") + s }
	for name, tc := range map[string]struct {
		caps, refs, pack string
		want             reason.Code
	}{
		"sound":                      {caps, refs, pack(line("\x02progress") + line("\x01PACK") + "0000"), ""},
		"with the service in front":  {line("# service=git-upload-pack\n") + "0000" + caps, refs, pack("0000"), ""},
		"nothing":                    {"", refs, "", reason.Unavailable},
		"HTML":                       {"<html>hello</html>", refs, "", reason.Malformed},
		"version 1":                  {line(hash+" HEAD\x00agent=x\n") + "0000", refs, "", reason.Malformed},
		"no commands":                {line("version 2\n") + "0000", refs, "", reason.Malformed},
		"unknown hash function":      {strings.Replace(caps, "sha1", "md5x", 1), refs, "", reason.Malformed},
		"a line of length 3":         {"0003", refs, "", reason.Malformed},
		"a line of length -1":        {"-001", refs, "", reason.Malformed},
		"a line of length +1":        {"+001", refs, "", reason.Malformed},
		"a line too long":            {"fff5" + strings.Repeat("x", 65536), refs, "", reason.Malformed},
		"capabilities cut":           {caps[:len(caps)-4], refs, "", reason.Unavailable},
		"capabilities for ever":      {line("version 2\n") + strings.Repeat(line(strings.Repeat("x", 1000)), 2000), refs, "", reason.Unavailable},
		"refs for ever":              {caps, strings.Repeat(line(hash+" refs/heads/other\n"), 40000), "", reason.Unavailable},
		"refs not asked for":         {caps, line(hash+" refs/heads/other\n") + line(hash+" refs/heads/main2\n") + "0000", "", reason.RefNotFound},
		"a ref twice":                {caps, line(hash+" refs/heads/main\n") + line(hash+" refs/heads/main\n") + "0000", pack("0000"), ""},
		"a short hash":               {caps, line("0123 refs/heads/main\n") + "0000", "", reason.Malformed},
		"a hash that is an option":   {caps, line("--upload-pack=xxxxxxxxxxxxxxxxxxxxxxxxxx refs/heads/main\n") + "0000", "", reason.Malformed},
		"a peeled hash that is none": {caps, line(hash+" refs/heads/main peeled:../../x\n") + "0000", "", reason.Malformed},
		"a target outside of refs":   {caps, line(hash+" refs/heads/main symref-target:refs/../../x\n") + "0000", "", reason.Malformed},
		"a target with a newline":    {caps, line(hash+" refs/heads/main symref-target:refs/heads/a\nb\n") + "0000", "", reason.Malformed},
		"refs refused":               {caps, line("ERR go away\n"), "", reason.Malformed},
		"no pack":                    {caps, refs, "0000", reason.Malformed},
		"a part not asked for":       {caps, refs, line("packfile-uris\n") + line(hash+" http://169.254.169.254/\n") + "0001", reason.Malformed},
		"not our ref":                {caps, refs, line("ERR upload-pack: not our ref " + hash + "\n"), reason.RefNotFound},
		"refused in the pack":        {caps, refs, pack(line("\x03fatal: no\n")), reason.Malformed},
		"an unknown mark":            {caps, refs, pack(line("\x09x")), reason.Malformed},
		"no mark":                    {caps, refs, pack("0004"), reason.Malformed},
		"a pack cut":                 {caps, refs, pack(line("\x01PACK")), reason.Unavailable},
		"a boundary that is none":    {caps, refs, line("shallow-info\n") + line("shallow ../../x\n") + "0001" + pack("0000"), reason.Malformed},
		"an unshallow":               {caps, refs, line("shallow-info\n") + line("unshallow "+hash+"\n") + "0001" + pack("0000"), reason.Malformed},
		"boundaries for ever":        {caps, refs, line("shallow-info\n") + strings.Repeat(line("shallow "+hash+"\n"), 100_001), reason.TooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			g := checkouttest.Start(t)
			g.Git = func(w http.ResponseWriter, r *http.Request) bool {
				kind, text := "result", tc.pack
				var body bytes.Buffer
				_, _ = body.ReadFrom(r.Body)
				switch {
				case r.Method == http.MethodGet:
					kind, text = "advertisement", tc.caps
				case strings.Contains(body.String(), "command=ls-refs"):
					text = tc.refs
				}
				w.Header().Set("Content-Type", "application/x-git-upload-pack-"+kind)
				fmt.Fprint(w, text)
				return true
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			var pack bytes.Buffer
			_, _, err := fetch(ctx, remote(t, g, "/acme/app"), "main", 1, &pack)
			if reason.Of(err) != tc.want || tc.want == "" && err != nil {
				t.Errorf("err = %v (%s), want %q", err, reason.Of(err), tc.want)
			}
		})
	}
}

func TestStatuses(t *testing.T) {
	for status, want := range map[int]reason.Code{
		401: reason.NotFound, 404: reason.NotFound, 410: reason.NotFound, 403: reason.PermissionDenied, 429: reason.RateLimited,
		500: reason.Unavailable, 503: reason.Unavailable, 418: reason.Malformed, 204: reason.Malformed,
	} {
		g := checkouttest.Start(t)
		g.Git = func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(status)
			return true
		}
		if _, err := gitwire.Open(context.Background(), remote(t, g, "/acme/app")); reason.Of(err) != want {
			t.Errorf("status %d: %v (%s), want %s", status, err, reason.Of(err), want)
		}
	}
}

func TestPrivateAddressesAreRefused(t *testing.T) {
	g := checkouttest.Start(t)
	rem := remote(t, g, "/acme/app")
	policy := g.Egress()
	policy.Allow = nil
	rem.Transport = policy.Transport()
	if _, err := gitwire.Open(context.Background(), rem); reason.Of(err) != reason.HostRefused {
		t.Errorf("err = %v", err)
	}
	rem = remote(t, g, "/acme/app")
	policy = g.Egress()
	policy.Roots = nil // the system's do not know this server
	rem.Transport = policy.Transport()
	if _, err := gitwire.Open(context.Background(), rem); reason.Of(err) != reason.Unavailable {
		t.Errorf("with a certificate nobody vouches for: %v", err)
	}
}

func TestMain(m *testing.M) {
	if _, err := exec.LookPath("git"); err != nil {
		panic("these tests need git; install the package git")
	}
	m.Run()
}
