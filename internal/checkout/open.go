package checkout

import (
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/agentdock/agentdock/internal/checkout/egress"
	"github.com/agentdock/agentdock/internal/checkout/githubapp"
	"github.com/agentdock/agentdock/internal/checkout/reason"
	"github.com/agentdock/agentdock/internal/settings"
)

// Open makes what the settings describe. agent names us to servers.
func Open(s settings.Checkout, agent string) (Repositories, error) {
	r, err := open(s, agent)
	return r, reason.Line(err)
}

func open(s settings.Checkout, agent string) (Repositories, error) {
	if s.CheckoutMode == settings.CheckoutFixture {
		return Fixture{}, nil
	}
	policy := egress.Policy{Allow: s.CheckoutNetworks}
	if s.CheckoutCAFile != "" {
		data, err := os.ReadFile(s.CheckoutCAFile)
		if err != nil {
			return nil, fmt.Errorf("cannot use SANDBOX_CHECKOUT_CA_FILE: %w", err)
		}
		if policy.Roots, err = x509.SystemCertPool(); err != nil {
			policy.Roots = x509.NewCertPool()
		}
		if !policy.Roots.AppendCertsFromPEM(data) {
			return nil, errors.New("cannot use SANDBOX_CHECKOUT_CA_FILE: there is no certificate in it")
		}
	}
	cfg := Config{
		Egress: policy, Dir: s.CheckoutDir, MaxBytes: int64(s.CheckoutMaxBytes), Timeout: s.CheckoutTimeout, Agent: agent,
	}
	if s.GitHubAppID != "" {
		key, err := githubapp.ParseKey([]byte(s.GitHubAppKey.Reveal()))
		if err != nil {
			return nil, fmt.Errorf("cannot use GITHUB_APP_PRIVATE_KEY: %w", err)
		}
		cfg.App, err = githubapp.New(githubapp.Config{
			ID: s.GitHubAppID, Key: key, API: s.GitHubAPIURL, Web: s.GitHubWebURL, Transport: policy.Transport(), Agent: agent,
		})
		if err != nil {
			return nil, err
		}
	}
	return New(cfg)
}
