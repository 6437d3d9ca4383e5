package execd

import (
	"slices"
	"strings"
	"testing"
)

func TestForbiddenVariablesAreNamedAndTheirValuesAreNot(t *testing.T) {
	for _, name := range []string{
		"DATABASE_URL", "AGENTDOCK_DATABASE_URL", "REDIS_URL", "SESSION_SECRET", "DOCKER_HOST", "DOCKER_CONFIG", "KUBECONFIG",
		"SOME_API_KEY", "NPM_TOKEN", "TOKEN", "MY_TOKEN_FILE", "CLIENT_SECRET_ID", "PGPASSWORD", "DB_PASSWORD_FILE", "password",
		"AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AZURE_CLIENT_ID", "GOOGLE_APPLICATION_CREDENTIALS", "GITHUB_APP_ID", "GH_TOKEN",
		"OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_AUTH_TOKEN", "SSH_AUTH_SOCK", "SENTRY_DSN", "VAULT_ADDR",
		"GITHUB_APP_PRIVATE_KEY", "WEBHOOK_SECRET", "AGENTDOCK_EXECD_API_KEY", "MINIO_ROOT_USER", "S3_ENDPOINT",
	} {
		err := CheckEnvironment([]string{"PATH=/bin", name + "=hunter2", "TZ=UTC"})
		if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "unset it") {
			t.Errorf("%s: %v", name, err)
		} else if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "PATH") {
			t.Errorf("%s: the error says too much: %v", name, err)
		}
		if kept := ScrubbedEnvironment([]string{name + "=hunter2"}); len(kept) != 1 {
			t.Errorf("%s: scrubbing keeps %v", name, kept)
		}
	}
	for _, name := range []string{
		"PATH", "HOME", "LANG", "TZ", "TERM", "USER", "SHELL", "PWD", "INVOCATION_ID", "JOURNAL_STREAM", "NOTIFY_SOCKET",
		"SUDO_USER", "GOPATH", "AGENTDOCK_EXECD_SOCKET", "AGENTDOCK_EXECD_TLS_KEY", "AGENTDOCK_EXECD_TLS_CLIENT_CA", "KEYBOARD", "LS_COLORS",
	} {
		if err := CheckEnvironment([]string{name + "=x"}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	err := CheckEnvironment([]string{"B_TOKEN=1", "A_SECRET=2", "B_TOKEN=3"})
	if err == nil || !strings.Contains(err.Error(), "A_SECRET, B_TOKEN; unset them") {
		t.Errorf("several: %v", err)
	}
}

func TestScrubbingKeepsOnlyWhatIsListed(t *testing.T) {
	got := ScrubbedEnvironment([]string{
		"PATH=/evil", "LD_PRELOAD=x", "LANG=C", "LC_ALL=C", "TZ=UTC", "HOME=/root", "HTTPS_PROXY=x", "GODEBUG=x",
		"AGENTDOCK_EXECD_SOCKET=/s", "AGENTDOCK_DATABASE=x", "AGENTDOCK_EXECD_CLIENT_SECRET=x", "nonsense",
	})
	want := []string{"AGENTDOCK_EXECD_SOCKET=/s", "LANG=C", "LC_ALL=C", "PATH=" + Path, "TZ=UTC"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A value can be a secret under any name; a name can look like one and be none.
func TestPasswordsInURLsAreFound(t *testing.T) {
	for kv, refused := range map[string]bool{
		"HTTP_PROXY=http://user:pass@proxy:3128/": true, "X=amqp://u:p@h": true,
		"HTTP_PROXY=http://proxy:3128": false, "X=a://b@c": false, "X=http://h/p?u:x@y": false,
		"MYSQL_PWD=x": true, "PWD=/root": false, "OLDPWD=/": false, "PRIVATE_KEY=x": true,
		"AWS_CA_BUNDLE=/etc/ssl/ca.pem": false, "AWS_ACCESS_KEY_ID=x": true,
	} {
		if err := CheckEnvironment([]string{kv}); (err != nil) != refused {
			t.Errorf("%s: %v, want a refusal: %v", kv, err, refused)
		}
	}
}
