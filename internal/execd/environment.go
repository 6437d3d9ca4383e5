package execd

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Prefix of the settings of the execution service.
const Prefix = "AGENTDOCK_EXECD_"

// forbidden are patterns of variables that have no business in a process that
// runs hostile code (REQUIREMENTS A2, A3). They match upper-cased names.
var forbidden = []string{
	"DATABASE_URL", "*_DATABASE_URL", "REDIS_URL", "*_REDIS_URL", "PGPASSFILE", "PGSERVICE*",
	"DOCKER_*", "CONTAINER_HOST", "CONTAINERD_ADDRESS", "KUBECONFIG",
	"*_API_KEY", "*_APIKEY", "API_KEY", "*_ACCESS_KEY*", "*_PRIVATE_KEY*", "*_SIGNING_KEY*", "*_ENCRYPTION_KEY*",
	"*TOKEN", "*_TOKEN_*", "*SECRET*", "*PASSWORD*", "*PASSWD*", "*PASSPHRASE*", "*CREDENTIAL*", "*_DSN", "DSN",
	"*_PWD", "PRIVATE_KEY", "*BEARER*", "AMQP_URL", "*_AMQP_URL", "MONGO*_URL", "MONGO*_URI",
	"AWS_*", "AZURE_*", "ARM_*", "GCP_*", "GCLOUD_*", "GOOGLE_*", "CLOUDSDK_*", "DIGITALOCEAN_*", "S3_*", "MINIO_*",
	"GITHUB_*", "GH_*", "GITLAB_*", "GIT_ASKPASS", "SSH_AUTH_SOCK", "SSH_ASKPASS", "NETRC",
	"OPENAI_*", "ANTHROPIC_*", "GEMINI_*", "MISTRAL_*", "COHERE_*", "HF_*", "HUGGINGFACE_*", "OPENROUTER_*",
	"VAULT_*", "NPM_CONFIG_*AUTH*", "STRIPE_*",
}

// harmless are names that forbidden matches although they say only whom to
// trust, or where. They are scrubbed like all others, not refused.
var harmless = []string{"*_CA_BUNDLE", "*_CA_CERTS_FILE", "*_CA_FILE", "*_REGION", "*_DEFAULT_REGION"}

// CheckEnvironment refuses an environment ("NAME=value" each) that holds a
// credential or the way to one. The error names every such variable and never
// a value.
func CheckEnvironment(environ []string) error {
	var found []string
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if isForbidden(name) || hasPassword(value) {
			found = append(found, name)
		}
	}
	if len(found) == 0 {
		return nil
	}
	slices.Sort(found)
	found = slices.Compact(found)
	return fmt.Errorf("cannot start: the environment holds what this service must never see: %s; unset %s for it",
		strings.Join(found, ", "), them(len(found)))
}

// hasPassword reports whether a value is a URL with a password in it, as proxies
// and databases are given.
func hasPassword(value string) bool {
	_, rest, ok := strings.Cut(value, "://")
	if !ok {
		return false
	}
	authority, _, _ := strings.Cut(rest, "/")
	user, _, ok := strings.Cut(authority, "@")
	return ok && strings.Contains(user, ":")
}

func them(n int) string {
	if n == 1 {
		return "it"
	}
	return "them"
}

func isForbidden(name string) bool {
	name = strings.ToUpper(name)
	return matches(forbidden, name) && !matches(harmless, name)
}

func matches(patterns []string, name string) bool {
	for _, pattern := range patterns {
		if ok, _ := path.Match(pattern, name); ok {
			return true
		}
	}
	return false
}

// Path is the PATH of the service, whatever it was started with.
const Path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// ScrubbedEnvironment is what of environ the service keeps: the language, the
// time zone and its settings. What a list of forbidden names has missed is
// gone with the rest.
func ScrubbedEnvironment(environ []string) []string {
	kept := map[string]string{"PATH": Path}
	for _, kv := range environ {
		name, value, ok := strings.Cut(kv, "=")
		if !ok || isForbidden(name) {
			continue
		}
		switch {
		case name == "LANG", name == "LC_ALL", name == "TZ", name == "SANDBOX_RUNTIME", name == "AUTH_MODE", strings.HasPrefix(name, Prefix):
			kept[name] = value
		}
	}
	out := make([]string, 0, len(kept))
	for name, value := range kept {
		out = append(out, name+"="+value)
	}
	slices.Sort(out)
	return out
}
