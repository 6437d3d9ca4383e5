package checkout

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/caarlos0/env/v11"

	"github.com/agentdock/agentdock/internal/checkout/egress"
	"github.com/agentdock/agentdock/internal/checkout/githubapp"
	"github.com/agentdock/agentdock/internal/quantity"
)

// Modes of SANDBOX_CHECKOUT_MODE.
const (
	ModeGit     = "git"
	ModeFixture = "fixture"
)

// Settings is what the operator says. The process that checks out reads them;
// nothing that it starts may see them.
type Settings struct {
	Mode string `env:"SANDBOX_CHECKOUT_MODE" envDefault:"git"`

	AppID   string `env:"GITHUB_APP_ID"`
	Key     string `env:"GITHUB_APP_PRIVATE_KEY,unset"`
	KeyFile string `env:"GITHUB_APP_PRIVATE_KEY_FILE"`
	APIURL  string `env:"GITHUB_API_URL" envDefault:"https://api.github.com"`
	WebURL  string `env:"GITHUB_WEB_URL" envDefault:"https://github.com"`

	Dir           string        `env:"SANDBOX_CHECKOUT_DIR" envDefault:"/var/lib/agentdock/checkout"`
	MaxBytes      string        `env:"SANDBOX_CHECKOUT_MAX_BYTES" envDefault:"1g"`
	Timeout       time.Duration `env:"SANDBOX_CHECKOUT_TIMEOUT" envDefault:"5m"`
	AllowNetworks []string      `env:"SANDBOX_CHECKOUT_ALLOW_NETWORKS"`
	CAFile        string        `env:"SANDBOX_CHECKOUT_CA_FILE"`
}

// ReadSettings takes them from the environment, and the private key out of it,
// so that no process started later inherits it.
func ReadSettings() (Settings, error) {
	var s Settings
	if err := env.Parse(&s); err != nil {
		// env's own error repeats values, the key's among them.
		return s, errors.New("cannot read the settings of the checkout: SANDBOX_CHECKOUT_TIMEOUT must be a duration such as 5m")
	}
	return s, nil
}

// Open makes what the settings describe. agent names us to servers.
func (s Settings) Open(agent string) (Repositories, error) {
	switch s.Mode {
	case ModeFixture:
		return Fixture{}, nil
	case ModeGit:
	default:
		return nil, fmt.Errorf("cannot use SANDBOX_CHECKOUT_MODE: it is %q, and must be %s or %s", s.Mode, ModeGit, ModeFixture)
	}
	maxBytes, err := quantity.ParseSize(s.MaxBytes)
	if err != nil || maxBytes <= 0 {
		return nil, fmt.Errorf("cannot use SANDBOX_CHECKOUT_MAX_BYTES: %q is not a size such as 512m", s.MaxBytes)
	}
	if s.Timeout <= 0 {
		return nil, errors.New("cannot use SANDBOX_CHECKOUT_TIMEOUT: it must be more than nothing")
	}
	policy, err := s.egress()
	if err != nil {
		return nil, err
	}
	cfg := Config{Egress: policy, Dir: s.Dir, MaxBytes: maxBytes, Timeout: s.Timeout, Agent: agent}
	if cfg.App, err = s.app(policy, agent); err != nil {
		return nil, err
	}
	return New(cfg)
}

func (s Settings) egress() (p egress.Policy, err error) {
	for _, text := range s.AllowNetworks {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			return p, fmt.Errorf("cannot use SANDBOX_CHECKOUT_ALLOW_NETWORKS: %q is not a network such as 10.1.0.0/16", text)
		}
		p.Allow = append(p.Allow, network)
	}
	if s.CAFile == "" {
		return p, nil
	}
	data, err := os.ReadFile(s.CAFile)
	if err != nil {
		return p, fmt.Errorf("cannot use SANDBOX_CHECKOUT_CA_FILE: %w", err)
	}
	if p.Roots, err = x509.SystemCertPool(); err != nil {
		p.Roots = x509.NewCertPool()
	}
	if !p.Roots.AppendCertsFromPEM(data) {
		return p, errors.New("cannot use SANDBOX_CHECKOUT_CA_FILE: there is no certificate in it")
	}
	return p, nil
}

// app is nil where none is configured; half of one is an error.
func (s Settings) app(policy egress.Policy, agent string) (*githubapp.App, error) {
	switch {
	case s.AppID == "" && s.Key == "" && s.KeyFile == "":
		return nil, nil
	case s.AppID == "":
		return nil, errors.New("cannot act as a GitHub App: there is a private key, and GITHUB_APP_ID is not set")
	case s.Key != "" && s.KeyFile != "":
		return nil, errors.New("cannot act as a GitHub App: GITHUB_APP_PRIVATE_KEY and GITHUB_APP_PRIVATE_KEY_FILE are both set; set one")
	case s.Key == "" && s.KeyFile == "":
		return nil, errors.New("cannot act as a GitHub App: GITHUB_APP_ID is set; set GITHUB_APP_PRIVATE_KEY_FILE or GITHUB_APP_PRIVATE_KEY too")
	}
	text := []byte(s.Key)
	if s.KeyFile != "" {
		var err error
		if text, err = os.ReadFile(s.KeyFile); err != nil {
			return nil, fmt.Errorf("cannot act as a GitHub App: %w", err)
		}
	}
	key, err := githubapp.ParseKey(text)
	if err != nil {
		return nil, err
	}
	return githubapp.New(githubapp.Config{
		ID: s.AppID, Key: key, API: s.APIURL, Web: s.WebURL, Transport: policy.Transport(), Agent: agent,
	})
}
