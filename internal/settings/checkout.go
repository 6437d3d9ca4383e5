package settings

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"time"
)

// Checkout is how repositories are fetched (docs/checkout.md).
type Checkout struct {
	CheckoutMode string `env:"SANDBOX_CHECKOUT_MODE" help:"github: repositories are fetched; fixture: every job gets the sample repository instead, so that everything can be tried without credentials"`

	GitHubAppID  string `env:"GITHUB_APP_ID" help:"id or client id of the GitHub App that reads private repositories; without it only public ones are found"`
	GitHubAppKey Secret `env:"GITHUB_APP_PRIVATE_KEY" help:"the App's private key, PEM; better as a file"`
	GitHubAPIURL string `env:"GITHUB_API_URL" help:"base of GitHub's API; https://HOST/api/v3 for GitHub Enterprise Server"`
	GitHubWebURL string `env:"GITHUB_WEB_URL" help:"where the App's repositories are"`

	CheckoutDir      string         `env:"SANDBOX_CHECKOUT_DIR" help:"where packs lie on their way, in files without names"`
	CheckoutMaxBytes Size           `env:"SANDBOX_CHECKOUT_MAX_BYTES" help:"largest pack; the disk of the sandbox bounds it too"`
	CheckoutTimeout  time.Duration  `env:"SANDBOX_CHECKOUT_TIMEOUT" help:"from the first request to the last file"`
	CheckoutNetworks []netip.Prefix `env:"SANDBOX_CHECKOUT_ALLOW_NETWORKS" help:"networks that are not public and may be connected to, separated by commas; metadata addresses only by a network that is no wider than they are"`
	CheckoutCAFile   string         `env:"SANDBOX_CHECKOUT_CA_FILE" help:"PEM file with authorities that servers may have besides the system's"`
}

// DefaultCheckout is what is done when nothing is set.
func DefaultCheckout() Checkout {
	return Checkout{
		CheckoutMode: CheckoutGitHub, GitHubAPIURL: "https://api.github.com", GitHubWebURL: "https://github.com",
		CheckoutDir: "/var/lib/agentdock/checkout", CheckoutMaxBytes: 1 << 30, CheckoutTimeout: 5 * time.Minute,
	}
}

// LoadCheckout reads and checks, for a process that reads nothing else.
func LoadCheckout(environ []string) (Checkout, error) {
	s := DefaultCheckout()
	if err := Load(&s, environ); err != nil {
		return s, err
	}
	return s, together([]error{s.check()})
}

// Ways to get the files of a job whose source is a repository.
const (
	CheckoutGitHub  = "github"
	CheckoutFixture = "fixture"
)

func (c Checkout) check() error {
	var wrong []error
	if c.CheckoutMode != CheckoutGitHub && c.CheckoutMode != CheckoutFixture {
		wrong = append(wrong, fmt.Errorf("SANDBOX_CHECKOUT_MODE is %q; give %s or %s", c.CheckoutMode, CheckoutGitHub, CheckoutFixture))
	}
	switch {
	case c.GitHubAppID == "" && c.GitHubAppKey != "":
		wrong = append(wrong, errors.New("GITHUB_APP_ID is not set, and the App's private key is; give both or none"))
	case c.GitHubAppID != "" && c.GitHubAppKey == "":
		wrong = append(wrong, errors.New("GITHUB_APP_ID is set; set GITHUB_APP_PRIVATE_KEY_FILE too, to the file that GitHub gave out"))
	}
	for name, text := range map[string]string{"GITHUB_API_URL": c.GitHubAPIURL, "GITHUB_WEB_URL": c.GitHubWebURL} {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			wrong = append(wrong, fmt.Errorf("%s is no address like https://HOST or https://HOST/api/v3", name))
		}
	}
	if c.CheckoutDir == "" {
		wrong = append(wrong, errors.New("SANDBOX_CHECKOUT_DIR is empty; name a directory"))
	}
	if c.CheckoutMaxBytes <= 0 {
		wrong = append(wrong, fmt.Errorf("SANDBOX_CHECKOUT_MAX_BYTES is %s; give more than nothing", c.CheckoutMaxBytes))
	}
	if c.CheckoutTimeout <= 0 {
		wrong = append(wrong, fmt.Errorf("SANDBOX_CHECKOUT_TIMEOUT is %s; give more than nothing", c.CheckoutTimeout))
	}
	return errors.Join(wrong...)
}
