package settings

import (
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/run"
)

var update = flag.Bool("update", false, "write docs/settings.md")

func TestThePageIsCurrent(t *testing.T) {
	const page = "../../docs/settings.md"
	if *update {
		if err := os.WriteFile(page, []byte(Page()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != Page() {
		t.Error("docs/settings.md is not what the code says; run: go test ./internal/settings -update")
	}
}

// Two fields of one name would be mistaken for each other in errors, and a
// variable without a meaning is of use to nobody.
func TestEverySettingHasANameAndAMeaning(t *testing.T) {
	for _, p := range processes() {
		seen := map[string]bool{}
		for _, s := range p.settings {
			if s.Name == "" || s.Meaning == "" || seen[s.Name] {
				t.Errorf("%s: %q: %q", p.name, s.Name, s.Meaning)
			}
			seen[s.Name] = true
		}
	}
	for _, r := range all() {
		for _, other := range all() {
			if r.Name == other.Name && r.Setting != other.Setting {
				// Only where one program has another default than the others.
				if r.Name != "AUTH_MODE" && r.Name != "AGENTDOCK_LOG_LEVEL" {
					t.Errorf("%s is two things: %+v and %+v", r.Name, r.Setting, other.Setting)
				}
			}
		}
	}
}

// REQUIREMENTS B4, in its words.
func TestDefaultsOfSandboxes(t *testing.T) {
	defaults := map[string]string{}
	for _, s := range Describe(DefaultAPI()) {
		defaults[s.Name] = s.Default
	}
	for name, want := range map[string]string{
		"SANDBOX_CPU_LIMIT": "1.0", "SANDBOX_MEMORY_LIMIT": "512m", "SANDBOX_PIDS_LIMIT": "256", "SANDBOX_TIMEOUT_SECONDS": "120",
		"SANDBOX_MAX_OUTPUT_BYTES": "256000", "SANDBOX_NETWORK_DISABLED": "true", "AUTH_MODE": "api_key",
	} {
		if defaults[name] != want {
			t.Errorf("%s is %q, want %q", name, defaults[name], want)
		}
	}
	if DefaultAPI().Limits() != run.DefaultLimits() {
		t.Errorf("got %+v", DefaultAPI().Limits())
	}
}

// production is what an API needs at least.
func production(more ...string) []string {
	return append([]string{
		"DATABASE_URL=postgres://u:hunter2@db/agentdock", "REDIS_URL=redis://:hunter2@redis:6379/0", "ARTIFACT_DIR=/srv/a",
	}, more...)
}

func TestLoadAPI(t *testing.T) {
	s, err := LoadAPI(production("SANDBOX_CPU_LIMIT=0.5", "SANDBOX_MEMORY_LIMIT=1g", "SANDBOX_TIMEOUT_SECONDS=90",
		"AGENTDOCK_API_LISTEN=0.0.0.0:80", "AGENTDOCK_LOG_LEVEL=debug", "SANDBOX_CHECKOUT_MODE=fixture", "UNRELATED=1"))
	if err != nil {
		t.Fatal(err)
	}
	l := s.Limits()
	if l.MilliCPU != 500 || l.MemoryBytes != run.GiB || l.WallClock != 90*time.Second || s.Listen != "0.0.0.0:80" ||
		slog.Level(s.Level) != slog.LevelDebug || s.DatabaseURL.Reveal() != "postgres://u:hunter2@db/agentdock" {
		t.Errorf("got %+v", s)
	}
}

func TestLoadWorker(t *testing.T) {
	s, err := LoadWorker(production("AGENTDOCK_WORKER_EXECDS=a=unix:/run/a.sock,b=10.0.0.5:7400", "AGENTDOCK_WORKER_LEASE=1m",
		"AGENTDOCK_WORKER_EXECD_TLS_CERT=c", "AGENTDOCK_WORKER_EXECD_TLS_KEY=k", "AGENTDOCK_WORKER_EXECD_TLS_CA=ca"))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Execds) != 2 || s.Execds[0] != (Endpoint{Name: "a", Socket: "/run/a.sock"}) ||
		s.Execds[1] != (Endpoint{Name: "b", Address: "10.0.0.5:7400"}) || s.Lease != time.Minute {
		t.Errorf("got %+v", s)
	}
}

func TestLoadUpChoosesDevOnLoopbackOnly(t *testing.T) {
	for listen, want := range map[string]string{
		"127.0.0.1:7300": AuthDev, "[::1]:7300": AuthDev, "localhost:0": AuthDev,
		"0.0.0.0:7300": AuthAPIKey, ":7300": AuthAPIKey, "192.168.0.4:7300": AuthAPIKey, "example.org:80": AuthAPIKey,
	} {
		if s, err := LoadUp(nil, listen); err != nil || s.Mode != want {
			t.Errorf("%s: %s, %v; want %s", listen, s.Mode, err, want)
		}
	}
	if _, err := LoadUp([]string{"AUTH_MODE=dev"}, "0.0.0.0:7300"); err == nil || !strings.Contains(err.Error(), "loopback") {
		t.Errorf("dev for everybody: %v", err)
	}
}

// Whoever reads the error knows which variable it is and what to do.
func TestErrorsNameTheVariable(t *testing.T) {
	api := func(environ []string) error { _, err := LoadAPI(environ); return err }
	worker := func(environ []string) error { _, err := LoadWorker(environ); return err }
	for _, tc := range []struct {
		load    func([]string) error
		environ []string
		says    []string
	}{
		{api, nil, []string{"DATABASE_URL is not set; give it", "REDIS_URL is not set", "neither ARTIFACT_DIR nor S3_BUCKET"}},
		{api, production("SANDBOX_CPU_LIMIT=many"), []string{"SANDBOX_CPU_LIMIT is \"many\"", "0.5 or 2"}},
		{api, production("SANDBOX_MEMORY_LIMIT=12parsecs"), []string{"SANDBOX_MEMORY_LIMIT", "parsecs"}},
		{api, production("SANDBOX_PIDS_LIMIT=x"), []string{"SANDBOX_PIDS_LIMIT is \"x\": write a number"}},
		{api, production("SANDBOX_TIMEOUT_SECONDS=0"), []string{"SANDBOX_TIMEOUT_SECONDS", "above 0"}},
		{api, production("SANDBOX_MEMORY_LIMIT=1m"), []string{"SANDBOX_ limits leave no room", "memory"}},
		{api, production("SANDBOX_NETWORK_DISABLED=maybe"), []string{"SANDBOX_NETWORK_DISABLED is \"maybe\": write true or false"}},
		{api, production("SANDBOX_NETWORK_DISABLED=false"), []string{"SANDBOX_NETWORK_DISABLED is false"}},
		{api, production("SANDBOX_MEMORY_LIMT=1g"), []string{"SANDBOX_MEMORY_LIMT is no setting"}},
		{api, production("AUTH_MODE=none"), []string{"AUTH_MODE is \"none\"; give api_key or dev"}},
		{api, production("AUTH_MODE=dev", "AGENTDOCK_API_LISTEN=:7300"), []string{"AUTH_MODE is dev", "127.0.0.1"}},
		{api, production("AGENTDOCK_API_TLS_CERT=x"), []string{"AGENTDOCK_API_TLS_KEY"}},
		{api, production("AGENTDOCK_LOG_LEVEL=loud"), []string{"AGENTDOCK_LOG_LEVEL is \"loud\": write debug, info"}},
		{api, production("S3_BUCKET=b"), []string{"ARTIFACT_DIR and S3_BUCKET are both set"}},
		{api, production("ARTIFACT_DIR=", "S3_BUCKET=b"), []string{"S3_ENDPOINT is not set", "S3_ACCESS_KEY_ID is not set", "S3_SECRET_ACCESS_KEY is not set"}},
		{api, production("DATABASE_URL=mysql://hunter2@x/y"), []string{"DATABASE_URL is not a PostgreSQL URL"}},
		{worker, production("AGENTDOCK_WORKER_LEASE=soon"), []string{"AGENTDOCK_WORKER_LEASE is \"soon\": write a length of time"}},
		{worker, production("AGENTDOCK_WORKER_LEASE=1s"), []string{"AGENTDOCK_WORKER_LEASE is 1s; give 3s"}},
		{worker, production("AGENTDOCK_WORKER_CONCURRENCY=0"), []string{"AGENTDOCK_WORKER_CONCURRENCY is 0"}},
		{worker, production("AGENTDOCK_WORKER_EXECDS=here"), []string{"AGENTDOCK_WORKER_EXECDS", "NAME=unix:PATH"}},
		{worker, production("AGENTDOCK_WORKER_EXECDS=a=unix:x"), []string{"AGENTDOCK_WORKER_EXECDS", "no absolute path"}},
		{worker, production("AGENTDOCK_WORKER_EXECDS=a=h:1"), []string{"mutual TLS"}},
		{worker, production("AGENTDOCK_WORKER_EXECDS=a=unix:/x,a=unix:/y"), []string{"two services called a"}},
		{worker, production("SANDBOX_RUNTIME=docker"), []string{"SANDBOX_RUNTIME is docker and AUTH_MODE is api_key"}},
		{worker, production("SANDBOX_RUNTIME=podman"), []string{"SANDBOX_RUNTIME is \"podman\"; give gvisor or docker"}},
	} {
		err := tc.load(tc.environ)
		for _, says := range tc.says {
			if err == nil || !strings.HasPrefix(err.Error(), "cannot start: ") || !strings.Contains(err.Error(), says) {
				t.Errorf("%q: %v; want it to say %q", tc.environ, err, says)
			}
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: a secret is in the error: %v", tc.environ, err)
		}
	}
}

func TestSecretsFromFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(file, []byte("postgres://u:hunter2@db/x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	without := production()[1:]
	s, err := LoadAPI(append(without, "DATABASE_URL_FILE="+file))
	if err != nil || s.DatabaseURL.Reveal() != "postgres://u:hunter2@db/x" {
		t.Errorf("got %v, %v", s.DatabaseURL.Reveal(), err)
	}
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for says, environ := range map[string][]string{
		"both set":          production("DATABASE_URL_FILE=" + file),
		"DATABASE_URL_FILE": append(without, "DATABASE_URL_FILE=/nothing/here"),
		"empty":             append(without, "DATABASE_URL_FILE="+empty),
	} {
		if _, err := LoadAPI(environ); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want it to say %q", err, says)
		}
	}
}

func TestSecretsShowThemselvesToNobody(t *testing.T) {
	s, err := LoadAPI(production())
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var logged strings.Builder
	slog.New(slog.NewJSONHandler(&logged, nil)).Info("x", "settings", s, "url", s.DatabaseURL)
	for _, text := range []string{string(encoded), logged.String(), fmt.Sprintf("%v %+v %#v %s", s, s, s, s.DatabaseURL), fmt.Sprint(Describe(s))} {
		if strings.Contains(text, "hunter2") {
			t.Errorf("a secret is in %s", text)
		}
	}
}

func TestSizesAreReadAsTheyArePrinted(t *testing.T) {
	for _, n := range []Size{1, 1000, 1 << 10, 256000, 512 << 20, 3 << 40, 1<<40 + 1} {
		var back Size
		if err := back.Set(n.String()); err != nil || back != n {
			t.Errorf("%s became %d, %v; want %d", n.String(), back, err, n)
		}
	}
}
