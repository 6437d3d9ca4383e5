package checkout

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/checkout"
	"github.com/agentdock/agentdock/internal/checkout/checkouttest"
	"github.com/agentdock/agentdock/internal/checkout/reason"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/testenv"
)

func bareImages(t *testing.T) string { return testenv.BareStore(t) }

const checkedOut = "checked out"

// cases are the rows of the table in docs/checkout.md.
func cases() []hostile {
	all := append(programs(), names()...)
	return append(append(all, sizes()...), servers()...)
}

// programs want to be run.
func programs() []hostile {
	return []hostile{
		{name: "hooks", tries: "programs named like hooks, at the top and in .githooks, and a configuration that points to them",
			build: func(_ *world, r *checkouttest.Repo) string {
				hooks := []checkouttest.Entry{program(r, "post-checkout", evil), program(r, "post-index-change", evil), program(r, "reference-transaction", evil)}
				return main(r, dir(r, ".githooks", hooks...), file(r, ".gitconfig", "[core]\n\thooksPath = .githooks\n"),
					file(r, "config", "[core]\n\thooksPath = .githooks\n"), dir(r, "hooks", hooks...))
			},
			look: wantFiles("d .githooks", "d hooks", "f .gitconfig", "f .githooks/post-checkout", "f .githooks/post-index-change",
				"f .githooks/reference-transaction", "f config", "f hooks/post-checkout", "f hooks/post-index-change", "f hooks/reference-transaction"),
			got: checkedOut + "; nothing ran"},
		{name: "filters", tries: "attributes that name filters, with a configuration in the tree that defines them, and LFS",
			build: func(_ *world, r *checkouttest.Repo) string {
				return main(r, file(r, ".gitattributes", "*.txt filter=evil diff=evil merge=evil\n*.bin filter=lfs diff=lfs merge=lfs -text\n"),
					file(r, ".gitconfig", "[filter \"evil\"]\n\tsmudge = sh -c 'echo ran >>/tmp/ran'\n\tprocess = sh -c 'echo ran >>/tmp/ran'\n\trequired\n"),
					file(r, ".lfsconfig", "[lfs]\n\turl = http://169.254.169.254/\n"),
					file(r, "a.txt", "as it is\n"), file(r, "b.bin", "version https://git-lfs.github.com/spec/v1\n"))
			},
			look: func(t *testing.T, sb execenv.Sandbox) {
				if got := output(t, sb, "cat", "a.txt", "b.bin"); got != "as it is\nversion https://git-lfs.github.com/spec/v1\n" {
					t.Errorf("the files hold %q", got)
				}
			},
			got: checkedOut + "; files as they are in the repository, LFS files as pointers"},
		{name: "programs of git", tries: "programs named git, git-index-pack and ssh in the tree",
			build: func(_ *world, r *checkouttest.Repo) string {
				return main(r, program(r, "git", evil), program(r, "git-index-pack", evil), program(r, "ssh", evil))
			},
			look: wantFiles("f git", "f git-index-pack", "f ssh"), got: checkedOut + "; nothing ran"},
		{name: "a submodule", tries: "a submodule at a metadata address",
			build: func(_ *world, r *checkouttest.Repo) string {
				return main(r, file(r, ".gitmodules", "[submodule \"m\"]\n\tpath = m\n\turl = http://169.254.169.254/m\n\tupdate = checkout\n"), submodule("m"))
			},
			look: wantFiles("d m", "f .gitmodules"), got: checkedOut + "; the submodule is an empty directory, nobody was asked for it"},
		{name: "a submodule's URL", tries: "a submodule whose URL is an option",
			build: func(_ *world, r *checkouttest.Repo) string {
				return main(r, file(r, ".gitmodules", "[submodule \"m\"]\n\tpath = m\n\turl = --upload-pack=touch\n"), submodule("m"))
			}, want: reason.Malformed, says: "gitmodulesUrl", got: "refused before a file was made"},
		{name: "a submodule's path", tries: "a submodule whose path is an option",
			build: func(_ *world, r *checkouttest.Repo) string {
				return main(r, file(r, ".gitmodules", "[submodule \"m\"]\n\tpath = -m\n\turl = https://git.example/m\n"), submodule("-m"))
			}, want: reason.Malformed, says: "gitmodulesPath", got: "refused before a file was made"},
		{name: "a submodule's name", tries: "a submodule whose name leads out of .git/modules",
			build: func(_ *world, r *checkouttest.Repo) string {
				return main(r, file(r, ".gitmodules", "[submodule \"../../x\"]\n\tpath = m\n\turl = https://git.example/m\n"), submodule("m"))
			}, want: reason.Malformed, says: "gitmodulesName", got: "refused before a file was made"},
		{name: "a submodule's update", tries: "a submodule with a command as its way to be updated",
			build: func(_ *world, r *checkouttest.Repo) string {
				return main(r, file(r, ".gitmodules", "[submodule \"m\"]\n\tpath = m\n\turl = https://git.example/m\n\tupdate = !touch /tmp/ran\n"), submodule("m"))
			}, want: reason.Malformed, says: "gitmodulesUpdate", got: "refused before a file was made"},
		{name: "a linked .gitmodules", tries: ".gitmodules as a symlink",
			build: func(_ *world, r *checkouttest.Repo) string { return main(r, link(r, ".gitmodules", "/etc/passwd")) },
			want:  reason.Malformed, says: "gitmodulesSymlink", got: "refused before a file was made"},
	}
}

// names want to be paths somewhere else.
func names() []hostile {
	refused := func(name, tries, says string, entries func(r *checkouttest.Repo) []checkouttest.Entry) hostile {
		return hostile{name: name, tries: tries, want: reason.Malformed, says: says, got: "refused before a file was made",
			build: func(_ *world, r *checkouttest.Repo) string { return main(r, entries(r)...) }}
	}
	type entries = []checkouttest.Entry
	all := []hostile{
		refused("a path .git", "a directory .git with a config and hooks", "hasDotgit", func(r *checkouttest.Repo) entries {
			return entries{dir(r, ".git", file(r, "config", "[core]\n\tfsmonitor = touch /tmp/ran\n"), dir(r, "hooks", program(r, "post-checkout", evil)))}
		}),
		refused("a linked .git", ".git as a symlink", "hasDotgit", func(r *checkouttest.Repo) entries { return entries{link(r, ".git", "/tmp")} }),
		refused("a path ..", "a directory called ..", "hasDotdot", func(r *checkouttest.Repo) entries {
			return entries{dir(r, "..", file(r, "x", "x"))}
		}),
		refused("a path with slashes", "a file called ../../x", "fullPathname", func(r *checkouttest.Repo) entries { return entries{file(r, "../../x", "x")} }),
		refused("a name twice", "a symlink and a directory of one name, so that files of the second go through the first", "duplicateEntries", func(r *checkouttest.Repo) entries {
			return entries{link(r, "a", "/tmp"), dir(r, "a", file(r, "x", "x"))}
		}),
	}
	for _, look := range []string{".GIT", "git~1", ".git ", ".g\u200cit"} {
		all = append(all, refused(fmt.Sprintf("a name like .git: %q", look), "a directory that other file systems take for .git", "hasDotgit", func(r *checkouttest.Repo) entries {
			return entries{dir(r, look, file(r, "config", "x"))}
		}))
	}
	return append(all,
		hostile{name: "symlinks", tries: "symlinks to /etc/shadow, out of the tree, and in a circle",
			build: func(_ *world, r *checkouttest.Repo) string {
				return main(r, link(r, "circle", "circle"), link(r, "shadow", "/etc/shadow"), link(r, "up", "../../.."))
			},
			look: wantFiles("l circle circle", "l shadow /etc/shadow", "l up ../../.."), got: checkedOut + "; symlinks inside the sandbox, never followed"},
		hostile{name: "colliding names", tries: "names that are one where case or composition does not matter",
			build: func(_ *world, r *checkouttest.Repo) string {
				return main(r, dir(r, "A", file(r, "x", "1")), link(r, "a", "A"), file(r, "e\u0301", "2"), file(r, "\u00e9", "3"))
			},
			look: wantFiles("d A", "f A/x", "f e\u0301", "f \u00e9", "l a A"), got: checkedOut + "; four different names"},
		hostile{name: "odd names", tries: "names with newlines, escapes, options and bytes that are not UTF-8",
			build: func(_ *world, r *checkouttest.Repo) string {
				return main(r, file(r, "\x1b[31m", "1"), file(r, "--help", "2"), file(r, "a\nb", "3"), file(r, "\xff\xfe", "4"))
			},
			look: func(t *testing.T, sb execenv.Sandbox) {
				if got := output(t, sb, "sh", "-c", "ls -A -b | sort"); strings.Count(got, "\n") != 5 {
					t.Errorf("the workspace holds %q", got)
				}
			}, got: checkedOut + "; names like others"},
		hostile{name: "a branch like an option", tries: "a branch called --upload-pack=touch${IFS}/tmp/ran",
			build: func(_ *world, r *checkouttest.Repo) string {
				const branch = "--upload-pack=touch${IFS}/tmp/ran"
				r.Commit("refs/heads/"+branch, r.RawTree(file(r, "a", "x")))
				return branch
			},
			look: func(t *testing.T, sb execenv.Sandbox) {
				if got := output(t, sb, "git", "symbolic-ref", "HEAD"); got != "refs/heads/--upload-pack=touch${IFS}/tmp/ran\n" {
					t.Errorf("HEAD is on %q", got)
				}
			}, got: checkedOut + "; a branch like others"},
		hostile{name: "a tag by its hash", tries: "a tag object where a commit is meant, so that the record would say something else",
			build: func(_ *world, r *checkouttest.Repo) string {
				main(r, file(r, "a", "x"))
				r.Git("tag", "-a", "-m", "x", "v1", "main")
				return r.Git("rev-parse", "refs/tags/v1")
			}, want: reason.Malformed, says: "no commit", got: "refused before a file was made"},
	)
}

// sizes want more than they may have.
func sizes() []hostile {
	const gib = int64(1) << 30
	many := func(w *world, r *checkouttest.Repo) string {
		var files []checkouttest.Entry
		one := r.Raw("blob", []byte("x"))
		for i := range 1000 {
			files = append(files, checkouttest.Entry{Mode: "100644", Hash: one, Name: fmt.Sprintf("f%04d", i)})
		}
		sub := r.RawTree(files...)
		var dirs []checkouttest.Entry
		for i := range 200 {
			dirs = append(dirs, checkouttest.Entry{Mode: "40000", Hash: sub, Name: fmt.Sprintf("d%03d", i)})
		}
		return main(r, dirs...)
	}
	return []hostile{
		{name: "200,000 files", tries: "more files than the workspace may hold, in a pack of 3 kB", build: many,
			limits: func(l *run.Limits) { l.Inodes = 20_000 }, want: reason.TooLarge, says: "inodes", got: "refused; the sandbox's limit of inodes held"},
		{name: "200,000 files where they fit", tries: "the same with limits that allow it", build: many,
			limits: func(l *run.Limits) { l.Inodes, l.DiskBytes, l.MemoryBytes, l.MilliCPU = 300_000, gib, 2*gib, 2000 },
			look: func(t *testing.T, sb execenv.Sandbox) {
				if got := strings.TrimSpace(output(t, sb, "sh", "-c", "find . -name 'f*' | wc -l")); got != "200000" {
					t.Errorf("there are %s files", got)
				}
			}, got: checkedOut},
		{name: "10,000,000,000 files", tries: "trees of trees of the same tree", build: func(_ *world, r *checkouttest.Repo) string {
			hash, mode := r.Raw("blob", []byte("x")), "100644"
			for range 10 {
				var entries []checkouttest.Entry
				for i := range 10 {
					entries = append(entries, checkouttest.Entry{Mode: mode, Hash: hash, Name: fmt.Sprint(i)})
				}
				hash, mode = r.RawTree(entries...), "40000"
			}
			r.Commit("refs/heads/main", hash)
			return "main"
		}, want: reason.TooLarge, says: "memory", got: "refused; the sandbox's limit of memory held"},
		{name: "a blob of 2 GiB", tries: "a file of 2 GiB in a pack of some megabytes", build: func(w *world, r *checkouttest.Repo) string {
			return serve(func() []byte { return bigBlob(r, 2*gib) })(w, r)
		}, want: reason.TooLarge, says: "raise", got: "refused; the sandbox's limits of disk and memory held"},
		{name: "a delta bomb", tries: "1 KiB of deltas that become 1 GiB", build: serve(deltaBomb),
			want: reason.TooLarge, says: "memory", got: "refused; the sandbox's limit of memory held"},
		{name: "a deep chain", tries: "3,000 directories in one another", build: func(_ *world, r *checkouttest.Repo) string {
			e := file(r, "x", "x")
			for range 3000 {
				e = dir(r, "d", e)
			}
			return main(r, e)
		}, want: reason.Malformed, says: "cannot create directory", got: "refused; a path has a greatest length"},
		{name: "an incompressible file", tries: "a pack larger than the limit for a fetch", build: func(_ *world, r *checkouttest.Repo) string {
			return main(r, file(r, "noise", noise(2<<20)))
		}, config: func(c *checkout.Config) { c.MaxBytes = 1 << 20 }, want: reason.TooLarge, says: "more than 1.0 MiB", got: "refused; not a byte more was kept"},
	}
}

// servers are hostile themselves.
func servers() []hostile {
	redirect := func(to string) func(*world, *checkouttest.Repo) string {
		return func(w *world, _ *checkouttest.Repo) string {
			w.github.Lock()
			defer w.github.Unlock()
			w.github.Git = func(rw http.ResponseWriter, r *http.Request) bool {
				http.Redirect(rw, r, to, http.StatusFound)
				return true
			}
			return "main"
		}
	}
	return []hostile{
		{name: "a redirect to metadata", tries: "a server that sends to 169.254.169.254", build: redirect("http://169.254.169.254/latest/meta-data/iam/"),
			want: reason.HostRefused, says: "redirect", got: "refused; nobody was asked"},
		{name: "a redirect elsewhere", tries: "a server that sends to another", build: redirect("https://git.example/x/info/refs"),
			want: reason.HostRefused, says: "redirect", got: "refused; nobody was asked"},
		{name: "a redirect in a circle", tries: "a server that sends to itself, for ever", build: redirect("/acme/app/info/refs?service=git-upload-pack"),
			want: reason.Moved, says: "for the 4th time", got: "refused after the third"},
		{name: "one byte a while", tries: "a server that sends a byte now and then, for ever",
			build: func(w *world, r *checkouttest.Repo) string {
				main(r, file(r, "a", "x"))
				w.answerFetch(func(rw http.ResponseWriter, req *http.Request) {
					fmt.Fprint(rw, "000dpackfile\n")
					for req.Context().Err() == nil {
						fmt.Fprint(rw, "0006\x01x")
						rw.(http.Flusher).Flush()
						select {
						case <-req.Context().Done():
						case <-time.After(100 * time.Millisecond):
						}
					}
				})
				return "main"
			}, config: func(c *checkout.Config) { c.Timeout = 3 * time.Second }, want: reason.TimedOut, says: "longer than 3s", got: "ended by the time limit"},
		{name: "a pack that was changed", tries: "a pack with one byte flipped", build: func(w *world, r *checkouttest.Repo) string {
			main(r, file(r, "a", strings.Repeat("content\n", 100)))
			return serve(func() []byte {
				pack := r.GitIn([]byte(r.Git("rev-parse", "main")+"\n"), "pack-objects", "--revs", "--stdout", "-q")
				b := []byte(pack)
				b[len(b)/2] ^= 0x40
				return b
			})(w, r)
		}, want: reason.Malformed, says: "git refuses", got: "refused before a file was made"},
		{name: "a pack without the commit", tries: "a sound pack that does not hold what was asked for", build: serve(func() []byte { return packOf() }),
			want: reason.Malformed, says: "no commit", got: "refused before a file was made"},
		{name: "no pack", tries: "an answer without any bytes of a pack", build: serve(func() []byte { return nil }),
			want: reason.Malformed, says: "no pack", got: "refused; nothing went into the sandbox"},
	}
}

// answerFetch answers the request for the pack; the rest is git's.
func (w *world) answerFetch(answer func(rw http.ResponseWriter, r *http.Request)) {
	w.github.Lock()
	defer w.github.Unlock()
	w.github.Git = func(rw http.ResponseWriter, r *http.Request) bool {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		if !strings.Contains(string(body), "command=fetch") {
			return false
		}
		rw.Header().Set("Content-Type", "application/x-git-upload-pack-result")
		answer(rw, r)
		return true
	}
}

// serve serves a pack that git would not make.
func serve(pack func() []byte) func(w *world, r *checkouttest.Repo) string {
	return func(w *world, r *checkouttest.Repo) string {
		if _, err := os.Stat(filepath.Join(r.Dir, "refs/heads/main")); err != nil {
			main(r, file(r, "a", "x"))
		}
		bytes := pack()
		w.answerFetch(func(rw http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(rw, "000dpackfile\n")
			for len(bytes) > 0 {
				n := min(len(bytes), 60_000)
				fmt.Fprintf(rw, "%04x\x01%s", n+5, bytes[:n])
				bytes = bytes[n:]
			}
			fmt.Fprint(rw, "0000")
		})
		return "main"
	}
}
