package checkout

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentdock/agentdock/internal/settings"
)

func TestOpen(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	text := string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
	file := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		env  []string
		says string // "" is no error
		app  bool
	}{
		"nothing":          {},
		"fixture":          {env: []string{"SANDBOX_CHECKOUT_MODE=fixture"}},
		"another mode":     {env: []string{"SANDBOX_CHECKOUT_MODE=svn"}, says: "give github or fixture"},
		"a file":           {env: []string{"GITHUB_APP_ID=1", "GITHUB_APP_PRIVATE_KEY_FILE=" + file}, app: true},
		"a variable":       {env: []string{"GITHUB_APP_ID=1", "GITHUB_APP_PRIVATE_KEY=" + text}, app: true},
		"both":             {env: []string{"GITHUB_APP_ID=1", "GITHUB_APP_PRIVATE_KEY=" + text, "GITHUB_APP_PRIVATE_KEY_FILE=" + file}, says: "unset one"},
		"id only":          {env: []string{"GITHUB_APP_ID=1"}, says: "set GITHUB_APP_PRIVATE_KEY_FILE"},
		"key only":         {env: []string{"GITHUB_APP_PRIVATE_KEY=" + text}, says: "GITHUB_APP_ID is not set"},
		"no such file":     {env: []string{"GITHUB_APP_ID=1", "GITHUB_APP_PRIVATE_KEY_FILE=" + file + "x"}, says: "no such file"},
		"a path as a key":  {env: []string{"GITHUB_APP_ID=1", "GITHUB_APP_PRIVATE_KEY=" + file}, says: "not its path"},
		"API without TLS":  {env: []string{"GITHUB_API_URL=http://x/"}, says: "GITHUB_API_URL is no address like https://HOST"},
		"Enterprise":       {env: []string{"GITHUB_APP_ID=1", "GITHUB_APP_PRIVATE_KEY=" + text, "GITHUB_API_URL=https://ghe/api/v3", "GITHUB_WEB_URL=https://ghe"}, app: true},
		"a size":           {env: []string{"SANDBOX_CHECKOUT_MAX_BYTES=64m"}},
		"no size":          {env: []string{"SANDBOX_CHECKOUT_MAX_BYTES=many"}, says: "SANDBOX_CHECKOUT_MAX_BYTES"},
		"no duration":      {env: []string{"SANDBOX_CHECKOUT_TIMEOUT=soon"}, says: "SANDBOX_CHECKOUT_TIMEOUT"},
		"no time at all":   {env: []string{"SANDBOX_CHECKOUT_TIMEOUT=0s"}, says: "more than nothing"},
		"networks":         {env: []string{"SANDBOX_CHECKOUT_ALLOW_NETWORKS=10.1.0.0/16,fd00::/8"}},
		"no network":       {env: []string{"SANDBOX_CHECKOUT_ALLOW_NETWORKS=10.1.0.1"}, says: "SANDBOX_CHECKOUT_ALLOW_NETWORKS"},
		"no certificates":  {env: []string{"SANDBOX_CHECKOUT_CA_FILE=" + file}, says: "no certificate"},
		"a CA that is not": {env: []string{"SANDBOX_CHECKOUT_CA_FILE=" + file + "x"}, says: "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := settings.LoadCheckout(append(tc.env, "SANDBOX_CHECKOUT_DIR="+t.TempDir()))
			var r Repositories
			if err == nil {
				r, err = Open(s, "agentdock/test")
			}
			if tc.says != "" {
				if err == nil || !strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), text[100:140]) {
					t.Errorf("err = %v, want it to say %q and nothing of the key", err, tc.says)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			c, ok := r.(*Checkout)
			if ok == (name == "fixture") {
				t.Errorf("it is a %T", r)
			}
			if ok && (c.cfg.App != nil) != tc.app {
				t.Errorf("there is an App: %v", c.cfg.App != nil)
			}
		})
	}
}
