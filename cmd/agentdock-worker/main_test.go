package main

import (
	"strings"
	"testing"
)

func TestStart(t *testing.T) {
	key := t.TempDir() + "/key.pem"
	for name, tc := range map[string]struct {
		args, environ []string
		says, fails   string
	}{
		"help":          {args: []string{"--help"}, says: "AGENTDOCK_WORKER_EXECDS"},
		"public key":    {args: []string{"public-key"}, environ: []string{"AGENTDOCK_SIGNING_KEY_FILE=" + key}, says: "BEGIN PUBLIC KEY"},
		"an argument":   {args: []string{"krow"}, fails: `unknown argument "krow"`},
		"nothing set":   {fails: "REDIS_URL is not set"},
		"a bad service": {environ: []string{"AGENTDOCK_WORKER_EXECDS=here"}, fails: "NAME=unix:PATH"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errOut strings.Builder
			err := start(t.Context(), tc.args, tc.environ, &out, &errOut)
			if tc.fails == "" && (err != nil || !strings.Contains(out.String(), tc.says)) {
				t.Errorf("%v: %s", err, out.String())
			}
			if tc.fails != "" && (err == nil || !strings.Contains(err.Error(), tc.fails)) {
				t.Errorf("got %v, want it to say %q", err, tc.fails)
			}
		})
	}
}

// Asked twice, it is one key.
func TestPublicKeyStays(t *testing.T) {
	environ := []string{"AGENTDOCK_SIGNING_KEY_FILE=" + t.TempDir() + "/key.pem"}
	var first, second strings.Builder
	if err := publicKey(environ, &first); err != nil {
		t.Fatal(err)
	}
	if err := publicKey(environ, &second); err != nil || first.String() != second.String() {
		t.Errorf("%v: %s and %s", err, first.String(), second.String())
	}
}
