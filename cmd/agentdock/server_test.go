package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentdock/agentdock/api"
)

func TestWhichServer(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := write("good", `{"url": "https://a", "api_key": "k1"}`, 0o600)
	open := write("open", `{"url": "https://a", "api_key": "hunter2"}`, 0o640)
	bad := write("bad", `{"url": "https://a", "api_key": hunter2}`, 0o600)
	unknown := write("unknown", `{"url": "https://a", "apikey": "hunter2"}`, 0o600)
	keyFile := write("key", "k3\n", 0o600)
	t.Setenv("XDG_CONFIG_HOME", dir+"/none")
	t.Setenv("HOME", dir+"/none")
	for name, tc := range map[string]struct {
		environ        []string
		url, key, says string
	}{
		"nothing":               {},
		"variables":             {environ: []string{"AGENTDOCK_URL=https://b", "AGENTDOCK_API_KEY=k2"}, url: "https://b", key: "k2"},
		"a file":                {environ: []string{"AGENTDOCK_CONFIG=" + good}, url: "https://a", key: "k1"},
		"a key in a file":       {environ: []string{"AGENTDOCK_URL=https://b", "AGENTDOCK_API_KEY_FILE=" + keyFile}, url: "https://b", key: "k3"},
		"a variable wins":       {environ: []string{"AGENTDOCK_CONFIG=" + good, "AGENTDOCK_API_KEY=k2"}, url: "https://a", key: "k2"},
		"the key of another":    {environ: []string{"AGENTDOCK_CONFIG=" + good, "AGENTDOCK_URL=https://b"}, url: "https://b"},
		"the key of this one":   {environ: []string{"AGENTDOCK_CONFIG=" + good, "AGENTDOCK_URL=https://a"}, url: "https://a", key: "k1"},
		"a file others read":    {environ: []string{"AGENTDOCK_CONFIG=" + open}, says: "chmod 600 " + open},
		"a file that is no one": {environ: []string{"AGENTDOCK_CONFIG=" + bad}, says: "is not {"},
		"a field not known":     {environ: []string{"AGENTDOCK_CONFIG=" + unknown}, says: "is not {"},
		"a file not there":      {environ: []string{"AGENTDOCK_CONFIG=" + dir + "/x"}, says: "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			url, key, err := server(tc.environ)
			if tc.says != "" {
				if err == nil || !strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), "hunter2") {
					t.Errorf("got %v, want it to say %q and no key", err, tc.says)
				}
				return
			}
			if err != nil || url != tc.url || key != tc.key {
				t.Errorf("got %q, %q, %v; want %q, %q", url, key, err, tc.url, tc.key)
			}
		})
	}
}

// artifacts serves files whose names a hostile program chose.
func artifacts(t *testing.T, content string, paths ...string) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/jobs/{id}/artifacts", func(w http.ResponseWriter, _ *http.Request) {
		var list api.ArtifactList
		for _, p := range paths {
			list.Artifacts = append(list.Artifacts, api.Artifact{Path: p, Bytes: int64(len(content))})
		}
		_ = json.NewEncoder(w).Encode(list)
	})
	mux.HandleFunc("GET /v1/jobs/{id}/artifacts/content", func(w http.ResponseWriter, r *http.Request) {
		sum := sha256.Sum256([]byte(content))
		if r.URL.Query().Get("path") == "torn" {
			sum[0]++
		}
		w.Header().Set("Repr-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(sum[:])+":")
		_, _ = io.WriteString(w, content)
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

func TestArtifactsStayInTheirDirectory(t *testing.T) {
	base := t.TempDir()
	out := filepath.Join(base, "out")
	if err := os.MkdirAll(filepath.Join(base, "elsewhere"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		t.Fatal(err)
	}
	victim := filepath.Join(base, "elsewhere", "victim")
	if err := os.WriteFile(victim, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	// Links that an earlier fetch, or a user, has left there.
	for link, to := range map[string]string{"dir": "../elsewhere", "file": "../elsewhere/victim"} {
		if err := os.Symlink(to, filepath.Join(out, link)); err != nil {
			t.Fatal(err)
		}
	}
	for path, ok := range map[string]bool{
		"dist/report.json": true, "a b": true, "file": true, // in place of the link
		"../elsewhere/x": false, "/etc/x": false, "dir/x": false, "a/../../x": false, "": false, "torn": false,
	} {
		c, err := dialTo(artifacts(t, "theirs", path), "")
		if err != nil {
			t.Fatal(err)
		}
		got, err := fetch(t.Context(), c, "id", []api.Artifact{{Path: path}}, out)
		if (err == nil) != ok || (len(got) == 1) != ok {
			t.Errorf("%q: %v, %v", path, got, err)
		}
		text, readErr := os.ReadFile(filepath.Join(out, path))
		if ok != (readErr == nil && string(text) == "theirs") {
			t.Errorf("%q holds %q, %v", path, text, readErr)
		}
	}
	if text, err := os.ReadFile(victim); err != nil || string(text) != "mine" {
		t.Errorf("the file outside is %q, %v", text, err)
	}
	if entries, _ := os.ReadDir(filepath.Join(base, "elsewhere")); len(entries) != 1 {
		t.Errorf("outside there are %v", entries)
	}
}

// What a server cannot do is refused before anything is sent.
func TestRunOnAServerRefuses(t *testing.T) {
	t.Setenv("AGENTDOCK_URL", "http://127.0.0.1:1")
	for flag, says := range map[string]string{
		"--image-dir=/x": "the images are the server's", "--artifact-bytes=1m": "quota", "--stdin=/dev/zero": "larger than 512.0 KiB",
	} {
		root := newRoot()
		var out, errOut strings.Builder
		root.SetArgs([]string{"run", flag, "--", "true"})
		root.SetOut(&out)
		root.SetErr(&errOut)
		if err := root.ExecuteContext(t.Context()); err != exitStatus(125) || !strings.Contains(errOut.String(), says) {
			t.Errorf("%s: %v: %s", flag, err, errOut.String())
		}
	}
}

// Every command says what it is for, and has an example unless it is a group.
func TestEveryCommandHasHelp(t *testing.T) {
	all := newRoot().Commands()
	for len(all) > 0 {
		cmd := all[0]
		all = append(all[1:], cmd.Commands()...)
		if cmd.Short == "" || cmd.Example == "" && !cmd.HasSubCommands() && cmd.Name() != "version" {
			t.Errorf("%s has no help or no example", cmd.CommandPath())
		}
	}
}
