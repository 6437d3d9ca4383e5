package checkout

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/checkout"
	"github.com/agentdock/agentdock/internal/checkout/checkouttest"
	"github.com/agentdock/agentdock/internal/checkout/reason"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/run"
)

// hostile is a repository that tries something.
type hostile struct {
	name, tries string
	// build makes it and says which ref is asked for.
	build func(w *world, r *checkouttest.Repo) (ref string)
	// limits changes the sandbox's; config how it is fetched.
	limits func(*run.Limits)
	config func(*checkout.Config)
	// want is the reason for which it is refused; without one, it is checked
	// out, and look finds it harmless.
	want reason.Code
	says string
	look func(t *testing.T, sb execenv.Sandbox)
	// got is for the table: what came of it.
	got string
}

// main makes a commit of the entries on the branch main.
func main(r *checkouttest.Repo, entries ...checkouttest.Entry) string {
	r.Commit("refs/heads/main", r.RawTree(sorted(entries)...))
	return "main"
}

// sorted puts entries in the order of a tree, in which a directory's name ends
// with a slash.
func sorted(entries []checkouttest.Entry) []checkouttest.Entry {
	key := func(e checkouttest.Entry) string {
		if e.Mode == "40000" {
			return e.Name + "/"
		}
		return e.Name
	}
	slices.SortStableFunc(entries, func(a, b checkouttest.Entry) int { return cmp.Compare(key(a), key(b)) })
	return entries
}

func file(r *checkouttest.Repo, name, content string) checkouttest.Entry {
	return checkouttest.Entry{Mode: "100644", Hash: r.Raw("blob", []byte(content)), Name: name}
}

func program(r *checkouttest.Repo, name, content string) checkouttest.Entry {
	return checkouttest.Entry{Mode: "100755", Hash: r.Raw("blob", []byte(content)), Name: name}
}

func link(r *checkouttest.Repo, name, target string) checkouttest.Entry {
	return checkouttest.Entry{Mode: "120000", Hash: r.Raw("blob", []byte(target)), Name: name}
}

func dir(r *checkouttest.Repo, name string, entries ...checkouttest.Entry) checkouttest.Entry {
	return checkouttest.Entry{Mode: "40000", Hash: r.RawTree(sorted(entries)...), Name: name}
}

func submodule(name string) checkouttest.Entry {
	return checkouttest.Entry{Mode: "160000", Hash: strings.Repeat("12", 20), Name: name}
}

// evil says, wherever it is run, that it was.
const evil = "#!/bin/sh\necho ran >>/tmp/ran\n"

func wantFiles(want ...string) func(t *testing.T, sb execenv.Sandbox) {
	return func(t *testing.T, sb execenv.Sandbox) {
		t.Helper()
		got := output(t, sb, "sh", "-c", `find . -path ./.git -prune -o ! -name . -printf '%y %P %l\n' | sort`)
		var lines []string
		for line := range strings.Lines(got) {
			lines = append(lines, strings.TrimSpace(line))
		}
		if fmt.Sprint(lines) != fmt.Sprint(want) {
			t.Errorf("the workspace holds %q, want %q", lines, want)
		}
	}
}

func TestHostileRepositories(t *testing.T) {
	w := newWorld(t, images(t))
	for i, h := range cases() {
		t.Run(strings.ReplaceAll(h.name, " ", "_"), func(t *testing.T) {
			w.t = t
			r := w.github.Repo("acme", fmt.Sprintf("case-%d", i))
			ref := h.build(w, r)
			defer func() {
				w.github.Lock()
				w.github.Git = nil
				w.github.Unlock()
			}()
			limits := run.DefaultLimits()
			if h.limits != nil {
				h.limits(&limits)
			}
			c := w.open(h.config)
			w.sandbox(t, fmt.Sprintf("hostile-%d", i), "default", limits, func(sb execenv.Sandbox) {
				began := time.Now()
				res, err := c.Into(context.Background(), sb, checkout.Request{Repository: w.github.URL + "/acme/" + fmt.Sprintf("case-%d", i), Ref: ref})
				t.Logf("%v after %s: %v", res, time.Since(began).Round(time.Millisecond), err)
				if h.want != "" {
					if reason.Of(err) != h.want || !strings.Contains(err.Error(), h.says) {
						t.Errorf("err = %v (%s), want %s that says %q", err, reason.Of(err), h.want, h.says)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if ran := output(t, sb, "sh", "-c", "cat /tmp/ran 2>/dev/null; true"); ran != "" {
					t.Error("something of it ran")
				}
				if head := strings.TrimSpace(output(t, sb, "git", "rev-parse", "HEAD")); head != res.Commit {
					t.Errorf("HEAD is %s, and the result says %s", head, res.Commit)
				}
				if status := output(t, sb, "git", "status", "--porcelain"); status != "" {
					t.Errorf("git sees changes: %s", status)
				}
				h.look(t, sb)
			})
			w.empty(t)
		})
	}
	if _, err := os.Stat("/tmp/ran"); err == nil {
		t.Error("something ran on the host")
	}
}

// TestAnImageWithoutGit: the one thing that an image must have.
func TestAnImageWithoutGit(t *testing.T) {
	images(t)
	w := newWorld(t, bareImages(t))
	r := w.github.Repo("acme", "app")
	main(r, file(r, "a", "x"))
	w.sandbox(t, "bare", "bare", run.DefaultLimits(), func(sb execenv.Sandbox) {
		_, err := w.open(nil).Into(context.Background(), sb, checkout.Request{Repository: w.github.URL + "/acme/app"})
		if reason.Of(err) != reason.NoGit {
			t.Errorf("err = %v", err)
		}
	})
	w.empty(t)
}
