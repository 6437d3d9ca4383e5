package settings

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"slices"
)

// Record is where the truth about jobs is, what wakes workers, and where bytes
// are: what api and worker share.
type Record struct {
	DatabaseURL Secret `env:"DATABASE_URL" help:"PostgreSQL, as postgres://USER@HOST/DATABASE"`
	RedisURL    Secret `env:"REDIS_URL" help:"Redis, as redis://HOST:6379/0; it only wakes workers"`

	ArtifactDir       string `env:"ARTIFACT_DIR" help:"directory for artifacts and uploads; this or S3_BUCKET"`
	S3Bucket          string `env:"S3_BUCKET" help:"bucket for artifacts and uploads; this or ARTIFACT_DIR"`
	S3Endpoint        string `env:"S3_ENDPOINT" help:"object store, as https://HOST[:PORT]"`
	S3Region          string `env:"S3_REGION" help:"region of the bucket"`
	S3AccessKeyID     Secret `env:"S3_ACCESS_KEY_ID" help:"key of the object store"`
	S3SecretAccessKey Secret `env:"S3_SECRET_ACCESS_KEY" help:"secret that goes with the key"`
}

func (r Record) check() error {
	var wrong []error
	wrong = append(wrong,
		isURL("DATABASE_URL", r.DatabaseURL, "a PostgreSQL URL such as postgres://agentdock@db.internal/agentdock", "postgres", "postgresql"),
		isURL("REDIS_URL", r.RedisURL, "a Redis URL such as redis://redis.internal:6379/0", "redis", "rediss", "unix"))
	switch {
	case r.ArtifactDir == "" && r.S3Bucket == "":
		wrong = append(wrong, errors.New("neither ARTIFACT_DIR nor S3_BUCKET is set; say where artifacts are kept"))
	case r.ArtifactDir != "" && r.S3Bucket != "":
		wrong = append(wrong, errors.New("ARTIFACT_DIR and S3_BUCKET are both set; unset one"))
	case r.S3Bucket != "":
		wrong = append(wrong, isURL("S3_ENDPOINT", Secret(r.S3Endpoint), "a URL such as https://s3.internal", "http", "https"))
		for name, v := range map[string]Secret{"S3_ACCESS_KEY_ID": r.S3AccessKeyID, "S3_SECRET_ACCESS_KEY": r.S3SecretAccessKey} {
			if v == "" {
				wrong = append(wrong, fmt.Errorf("%s is not set; S3_BUCKET needs it", name))
			}
		}
	}
	return errors.Join(wrong...)
}

// isURL never prints the value: it may hold a password.
func isURL(name string, value Secret, want string, schemes ...string) error {
	if value == "" {
		return fmt.Errorf("%s is not set; give it %s", name, want)
	}
	u, err := url.Parse(value.Reveal())
	if err != nil || !slices.Contains(schemes, u.Scheme) || u.Host == "" && u.Scheme != "unix" && u.Query().Get("host") == "" {
		return fmt.Errorf("%s is not %s", name, want)
	}
	return nil
}

// Log is how a process says what it does.
type Log struct {
	Level Level `env:"AGENTDOCK_LOG_LEVEL" help:"debug, info, warn or error"`
}

// Auth is who is let in.
type Auth struct {
	Mode string `env:"AUTH_MODE" help:"api_key: every request has a key; dev: none has, on a loopback address only. agentdock up chooses dev on a loopback address when nothing is set"`
}

// Ways to know who is asking.
const (
	AuthAPIKey = "api_key"
	AuthDev    = "dev"
)

func (a Auth) check(listen string) error {
	if a.Mode == AuthDev && !Loopback(listen) {
		return fmt.Errorf("AUTH_MODE is dev and %s is no loopback address: everybody who reaches it could do anything; listen on 127.0.0.1, or set AUTH_MODE to %s", listen, AuthAPIKey)
	}
	return a.known()
}

func (a Auth) known() error {
	if a.Mode != AuthAPIKey && a.Mode != AuthDev {
		return fmt.Errorf("AUTH_MODE is %q; give %s or %s", a.Mode, AuthAPIKey, AuthDev)
	}
	return nil
}

// Loopback says whether only this machine can reach an address to listen on.
// Names are not looked up: what they mean can change.
func Loopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback() || host == "localhost"
}

// API is what agentdock-api reads.
type API struct {
	Listen  string `env:"AGENTDOCK_API_LISTEN" help:"address to serve on, host:port"`
	TLSCert string `env:"AGENTDOCK_API_TLS_CERT" help:"PEM file with its certificate; without, it speaks plain HTTP"`
	TLSKey  string `env:"AGENTDOCK_API_TLS_KEY" help:"PEM file with the certificate's key"`
	// The private key is the worker's alone.
	Execds       []Endpoint `env:"AGENTDOCK_API_EXECDS" help:"execution services for live sandboxes, separated by commas: NAME=unix:PATH or NAME=HOST:PORT; empty for none. Sandboxes have the name on record, so every API process gives a service the same one, and every worker too"`
	ExecdTLSCert string     `env:"AGENTDOCK_API_EXECD_TLS_CERT" help:"PEM file with the certificate shown to services on TCP"`
	ExecdTLSKey  string     `env:"AGENTDOCK_API_EXECD_TLS_KEY" help:"PEM file with its key"`
	ExecdTLSCA   string     `env:"AGENTDOCK_API_EXECD_TLS_CA" help:"PEM file with the authority that signs those services"`
	ReceiptKeys  string     `env:"AGENTDOCK_RECEIPT_KEYS_FILE" help:"PEM file with the public keys that verify receipts, for callers; agentdock-worker public-key prints a worker's"`
	Auth
	Runtime
	Record
	Sandbox
	Log
}

// DefaultAPI is what it does when nothing is set.
func DefaultAPI() API {
	return API{Listen: "127.0.0.1:7300", Auth: Auth{Mode: AuthAPIKey}, Runtime: Runtime{RuntimeGVisor}, Record: Record{S3Region: "us-east-1"}, Sandbox: defaultSandbox()}
}

// LoadAPI reads and checks.
func LoadAPI(environ []string) (API, error) {
	s := DefaultAPI()
	if err := Load(&s, environ); err != nil {
		return s, err
	}
	var pair error
	if (s.TLSCert == "") != (s.TLSKey == "") {
		pair = errors.New("one of AGENTDOCK_API_TLS_CERT and AGENTDOCK_API_TLS_KEY is not set; give both or none")
	}
	return s, together([]error{OnlyKnown(environ, SandboxPrefix), s.Auth.check(s.Listen), s.Runtime.Check(s.Mode), s.Record.check(), s.Sandbox.check(), pair,
		checkExecds("AGENTDOCK_API_", s.Execds, s.ExecdTLSCert, s.ExecdTLSKey, s.ExecdTLSCA)})
}

// Worker is what agentdock-worker reads.
type Worker struct {
	Name   string `env:"AGENTDOCK_WORKER_NAME" help:"what it is called in logs and leases; empty for the host's name"`
	Listen string `env:"AGENTDOCK_WORKER_LISTEN" help:"address of /metrics, /healthz and /readyz; empty for none"`

	Execds         []Endpoint `env:"AGENTDOCK_WORKER_EXECDS" help:"execution services, separated by commas: NAME=unix:PATH or NAME=HOST:PORT. Jobs have the name on record, so it stays with the service"`
	ExecdTLSCert   string     `env:"AGENTDOCK_WORKER_EXECD_TLS_CERT" help:"PEM file with the certificate shown to services on TCP"`
	ExecdTLSKey    string     `env:"AGENTDOCK_WORKER_EXECD_TLS_KEY" help:"PEM file with its key"`
	ExecdTLSCA     string     `env:"AGENTDOCK_WORKER_EXECD_TLS_CA" help:"PEM file with the authority that signs those services"`
	SigningKeyFile string     `env:"AGENTDOCK_SIGNING_KEY_FILE" help:"PEM file with the Ed25519 key that signs receipts; made when it does not exist"`
	Auth
	Runtime
	Work
	Record
	Log
}

// DefaultWorker is what it does when nothing is set.
func DefaultWorker() Worker {
	return Worker{
		Listen: "127.0.0.1:7301", Execds: []Endpoint{{Name: "local", Socket: "/run/agentdock/execd.sock"}},
		SigningKeyFile: "/var/lib/agentdock/worker/signing-key.pem",
		Auth:           Auth{Mode: AuthAPIKey}, Runtime: Runtime{RuntimeGVisor}, Work: defaultWork(), Record: Record{S3Region: "us-east-1"},
	}
}

// LoadWorker reads and checks.
func LoadWorker(environ []string) (Worker, error) {
	s := DefaultWorker()
	if err := Load(&s, environ); err != nil {
		return s, err
	}
	return s, together([]error{OnlyKnown(environ, SandboxPrefix), s.Auth.known(), s.Runtime.Check(s.Mode), s.Record.check(), s.Work.check(), s.checkExecds()})
}

// checkExecds is for settings that begin with a prefix.
func checkExecds(prefix string, execds []Endpoint, cert, key, ca string) error {
	var wrong []error
	seen, tcp := map[string]bool{}, false
	for _, e := range execds {
		if seen[e.Name] {
			wrong = append(wrong, fmt.Errorf("%sEXECDS has two services called %s; give each its own name", prefix, e.Name))
		}
		seen[e.Name], tcp = true, tcp || e.Address != ""
	}
	if tcp && (cert == "" || key == "" || ca == "") {
		wrong = append(wrong, fmt.Errorf("an execution service on TCP needs mutual TLS; set %sEXECD_TLS_CERT, _KEY and _CA", prefix))
	}
	return errors.Join(wrong...)
}

func (s Worker) checkExecds() error {
	var wrong []error
	if len(s.Execds) == 0 {
		wrong = append(wrong, errors.New("AGENTDOCK_WORKER_EXECDS is empty; name an execution service"))
	}
	wrong = append(wrong, checkExecds("AGENTDOCK_WORKER_", s.Execds, s.ExecdTLSCert, s.ExecdTLSKey, s.ExecdTLSCA))
	if s.SigningKeyFile == "" {
		wrong = append(wrong, errors.New("AGENTDOCK_SIGNING_KEY_FILE is empty; name a file"))
	}
	return errors.Join(wrong...)
}

// Up is what agentdock up reads. Where things are is in its flags.
type Up struct {
	Auth
	Runtime
	Sandbox
	Work
	Log
}

// DefaultUp is what it does when nothing is set. An empty mode chooses dev on a
// loopback address, and api_key on another.
func DefaultUp() Up {
	// What is said in JSON beside the words for people is what went wrong.
	return Up{Runtime: Runtime{RuntimeGVisor}, Sandbox: defaultSandbox(), Work: defaultWork(), Log: Log{Level: Level(slog.LevelWarn)}}
}

// LoadUp reads and checks, for a given address.
func LoadUp(environ []string, listen string) (Up, error) {
	s := DefaultUp()
	if err := Load(&s, environ); err != nil {
		return s, err
	}
	if s.Mode == "" {
		s.Mode = AuthAPIKey
		if Loopback(listen) {
			s.Mode = AuthDev
		}
	}
	return s, together([]error{OnlyKnown(environ, SandboxPrefix), s.Auth.check(listen), s.Runtime.Check(s.Mode), s.Sandbox.check(), s.Work.check()})
}

// Secrets are what the logs of a process must not show: all secret values of its
// settings, and the passwords in those that are URLs.
func Secrets(loaded any) []string {
	values := secretsOf(loaded)
	for _, v := range values {
		if u, err := url.Parse(v); err == nil && u.User != nil {
			if password, ok := u.User.Password(); ok {
				values = append(values, password)
			}
		}
	}
	return values
}
