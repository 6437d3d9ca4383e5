package ingest

import (
	"cmp"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/image"
)

func host(files map[string]string) fstest.MapFS {
	fsys := fstest.MapFS{}
	for name, text := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return fsys
}

func TestHostDistribution(t *testing.T) {
	for text, want := range map[string]string{
		"ID=debian\nVERSION_CODENAME=bookworm\n":                "debian bookworm",
		"NAME=\"Ubuntu\"\nVERSION_CODENAME='noble'\nID=ubuntu":  "ubuntu noble",
		"ID=fedora\nVERSION_CODENAME=\"\"\n":                    "",
		"ID=debian\nPRETTY_NAME=\"Debian GNU/Linux sid\"\n":     "",
		"ID=debian\nVERSION_CODENAME=\"x --hook-dir=/tmp/y\"\n": "",
	} {
		d, err := hostDistribution(host(map[string]string{"etc/os-release": text}))
		if want == "" {
			if !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), "image import") {
				t.Errorf("%q: %v", text, err)
			}
			continue
		}
		if err != nil || d.String() != want {
			t.Errorf("%q: %v, %v", text, d, err)
		}
	}
}

func TestArchiveSources(t *testing.T) {
	d := distribution{"debian", "bookworm"}
	const base = "Types: deb\nURIs: http://mirror.test/debian\nSuites: bookworm\nComponents: main\n\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"one-line": {
			map[string]string{"etc/apt/sources.list": "# a comment\n" +
				"deb http://mirror.test/debian bookworm main contrib # trailing\n" +
				"deb-src http://mirror.test/debian bookworm main\n" +
				"deb [arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://mirror.test/security bookworm-security main\n"},
			base + "Types: deb\nURIs: http://mirror.test/security\nSuites: bookworm-security\nComponents: main\n" +
				"Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n\n",
		},
		"deb822": {
			map[string]string{"etc/apt/sources.list.d/debian.sources": "# comment\nTypes: deb deb-src\nURIs: http://mirror.test/debian\n" +
				"Suites: bookworm bookworm-updates bookworm-backports\nComponents: main non-free-firmware\n" +
				"Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n\nTypes: deb\nEnabled: no\nURIs: http://off.test\nSuites: bookworm\nComponents: main\n"},
			"Types: deb\nURIs: http://mirror.test/debian\nSuites: bookworm bookworm-updates\nComponents: main\n" +
				"Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n\n",
		},
		"third parties": {
			map[string]string{
				"etc/apt/sources.list":                    "deb http://mirror.test/debian bookworm main\n",
				"etc/apt/sources.list.d/a.list":           "deb [signed-by=/etc/apt/keyrings/vendor.gpg] https://vendor.test bookworm main\n",
				"etc/apt/sources.list.d/b.list":           "deb https://vendor.test bookworm stable\ndeb https://flat.test ./\ndeb https://vendor.test nodistro main\n",
				"etc/apt/sources.list.d/c.sources":        "Types: deb\nURIs: https://vendor.test\nSuites: bookworm-pgdg\nComponents: main\n",
				"etc/apt/sources.list.d/d.sources":        "Types: deb\nURIs: https://vendor.test\nSuites: bookworm\nComponents: main\nSigned-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n",
				"etc/apt/sources.list.d/e.list.disabled":  "deb http://off.test bookworm main\n",
				"etc/apt/sources.list.d/f.sources.backup": "Types: deb\nURIs: http://off.test\nSuites: bookworm\nComponents: main\n",
			},
			base,
		},
		"media and mirror lists": {
			map[string]string{
				"etc/apt/sources.list":        "deb cdrom:[Debian]/ bookworm main\ndeb mirror+file:///etc/apt/mirrors.list bookworm main\n",
				"etc/apt/mirrors.list":        "# first\nhttp://mirror.test/debian\tpriority:1\nhttp://second.test/debian\n",
				"etc/apt/sources.list.d/x.md": "",
			},
			base,
		},
	} {
		t.Run(name, func(t *testing.T) {
			sources, err := archiveSources(host(c.files), d)
			if err != nil {
				t.Fatal(err)
			}
			if got := deb822(sources); got != c.want {
				t.Errorf("got:\n%swant:\n%s", got, c.want)
			}
		})
	}
	_, err := archiveSources(host(map[string]string{"etc/apt/sources.list": "deb http://mirror.test/debian trixie main\n"}), d)
	if !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), "--sources") {
		t.Errorf("no source for the release: %v", err)
	}
}

func TestStepLog(t *testing.T) {
	var said []string
	l := &stepLog{say: func(s string) { said = append(said, s) }}
	for _, part := range []string{"I: down", "loading packages...\nE: no ", "such package\nI: using /tmp as tempdir\n", strings.Repeat("x", 10_000), "\nI: creating tarball...\nI: done\n"} {
		if _, err := l.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	l.beat()()
	if strings.Join(said, "|") != "downloading packages|creating tarball" {
		t.Errorf("said %q", said)
	}
	if len(l.said.text) > tailBytes {
		t.Errorf("kept %d bytes", len(l.said.text))
	}
	if err := l.said.withOutput("x", errors.New("exit")); !strings.Contains(err.Error(), "done") {
		t.Errorf("error: %v", err)
	}
}

// TestBuildDefault makes the real default image. It takes a minute and the
// distribution's mirrors, so it only runs where everything must, and looks at
// the image that is there already, if one from this recipe is.
func TestBuildDefault(t *testing.T) {
	requireReal(t)
	if os.Getenv("AGENTDOCK_TEST_REQUIRE_REAL") != "1" {
		t.Skip("missing: AGENTDOCK_TEST_REQUIRE_REAL=1, because this takes a minute and the network")
	}
	var w *image.Writer
	store := cmp.Or(os.Getenv(image.DirEnv), image.DefaultDir)
	d, err := hostDistribution(hostRoot())
	if err != nil {
		t.Fatal(err)
	}
	if s, err := image.Open(store); err == nil {
		if img, err := s.Resolve(image.Default); err == nil && img.Recipe == recipe(d) {
			w, err = image.OpenWriter(t.Context(), store)
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if w == nil {
		w = testWriter(t)
		if _, built, err := BuildDefault(t.Context(), w, BuildOptions{}); err != nil || !built {
			t.Fatalf("built %v, %v", built, err)
		}
		if _, built, err := BuildDefault(t.Context(), w, BuildOptions{}); err != nil || built {
			t.Fatalf("the second time: built %v, %v", built, err)
		}
	}
	img, err := w.Resolve(image.Default)
	if err != nil {
		t.Fatal(err)
	}
	root := mounted(t, img)
	for _, program := range []string{"bash", "python3", "git", "make", "tar", "patch", "curl", "node", "less", "ps"} {
		if _, err := os.Stat(filepath.Join(root, "usr/bin", program)); err != nil {
			t.Error(err)
		}
	}
	script := "import pytest, venv, pip; print(pytest.__name__)"
	out, err := exec.Command("chroot", "--userspec=10001:10001", root, "/usr/bin/python3", "-c", script).CombinedOutput()
	if err != nil || string(out) != "pytest\n" {
		t.Errorf("%s%v", out, err)
	}
	for _, empty := range []string{"etc/apt/sources.list.d", "usr/share/locale", "dev", "proc"} {
		if entries, _ := os.ReadDir(filepath.Join(root, empty)); len(entries) > 0 {
			t.Errorf("/%s is not empty", empty)
		}
	}
}
