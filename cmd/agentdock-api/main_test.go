package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentdock/agentdock/internal/testenv"
)

func TestStart(t *testing.T) {
	for name, tc := range map[string]struct {
		args, environ []string
		says, fails   string
	}{
		"help":             {args: []string{"--help"}, says: "SANDBOX_MEMORY_LIMIT"},
		"version":          {args: []string{"--version"}, says: "go1"},
		"an argument":      {args: []string{"sreve"}, fails: `unknown argument "sreve"`},
		"two arguments":    {args: []string{"migrate", "now"}, fails: "more than one argument"},
		"nothing set":      {fails: "DATABASE_URL is not set"},
		"dev for everyone": {environ: []string{"AUTH_MODE=dev", "AGENTDOCK_API_LISTEN=0.0.0.0:1"}, fails: "no loopback address"},
		"an engine": {environ: []string{"DATABASE_URL=postgres://u:hunter2@127.0.0.1:1/x", "REDIS_URL=redis://127.0.0.1:1/0", "ARTIFACT_DIR=" + t.TempDir(),
			"DOCKER_HOST=tcp://127.0.0.1:2375"}, fails: "DOCKER_HOST"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, kv := range tc.environ { // the check of engines looks at the process's own
				k, v, _ := strings.Cut(kv, "=")
				t.Setenv(k, v)
			}
			var out, errOut strings.Builder
			err := start(t.Context(), tc.args, tc.environ, &out, &errOut)
			if tc.fails == "" && (err != nil || !strings.Contains(out.String(), tc.says)) {
				t.Errorf("%v: %s", err, out.String())
			}
			if tc.fails != "" && (err == nil || !strings.Contains(err.Error(), tc.fails)) {
				t.Errorf("got %v, want it to say %q", err, tc.fails)
			}
			if err != nil && strings.Contains(err.Error()+errOut.String(), "hunter2") {
				t.Errorf("a secret is in %v", err)
			}
		})
	}
}

// TestTheFirstKeyTouchesTheRecordOnly: root may make it, and what root makes of
// the directory of artifacts is closed to the service.
func TestTheFirstKeyTouchesTheRecordOnly(t *testing.T) {
	p := testenv.StartPostgres(t)
	artifacts := filepath.Join(t.TempDir(), "artifacts")
	environ := []string{"DATABASE_URL=" + p.Database(), "REDIS_URL=redis://127.0.0.1:1/0", "ARTIFACT_DIR=" + artifacts}
	var out bytes.Buffer
	if err := start(t.Context(), []string{"migrate"}, environ, &out, &out); err != nil || out.Len() > 0 {
		t.Errorf("migrate: %v: %s", err, out.String())
	}
	if err := start(t.Context(), []string{"bootstrap-admin-key"}, environ, &out, &out); err != nil || !strings.HasPrefix(out.String(), "adk_") {
		t.Errorf("bootstrap-admin-key: %v: %s", err, out.String())
	}
	if err := start(t.Context(), []string{"bootstrap-admin-key"}, environ, &out, &out); err == nil || !strings.Contains(err.Error(), "there is one") {
		t.Errorf("a second first key: %v", err)
	}
	if _, err := os.Stat(artifacts); err == nil {
		t.Error("the directory of artifacts was made")
	}
}
