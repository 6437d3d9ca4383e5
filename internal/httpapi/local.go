package httpapi

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/agentdock/agentdock/api"
)

// AuthMode says how callers are told apart.
type AuthMode string

const (
	// AuthAPIKey: every caller shows a key.
	AuthAPIKey AuthMode = "api_key"
	// AuthDev: whoever reaches the service may do everything. It listens on the
	// loopback interface only.
	AuthDev AuthMode = "dev"
)

// ParseAuthMode reads AUTH_MODE; empty is AuthAPIKey.
func ParseAuthMode(s string) (AuthMode, error) {
	switch m := AuthMode(s); m {
	case "":
		return AuthAPIKey, nil
	case AuthAPIKey, AuthDev:
		return m, nil
	}
	return "", fmt.Errorf("cannot use AUTH_MODE=%q: it is neither api_key nor dev", s)
}

// Listen opens the address to serve on. Without keys it opens only what this
// machine alone can reach.
func Listen(mode AuthMode, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", address, err)
	}
	if err := checkListener(mode, l); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func checkListener(mode AuthMode, l net.Listener) error {
	if mode != AuthDev {
		return nil
	}
	tcp, ok := l.Addr().(*net.TCPAddr)
	if ok && tcp.IP.IsLoopback() {
		return nil
	}
	return fmt.Errorf("cannot listen on %s with AUTH_MODE=dev: it asks nobody for a key, so it listens on a loopback address only; "+
		"listen on 127.0.0.1, or set AUTH_MODE=api_key", l.Addr())
}

// checkLocal refuses requests that a web page made: in a browser, any page can
// send requests to this machine, and a page whose name is made to resolve to
// 127.0.0.1 can read the answers too. The first says so in Origin or
// Sec-Fetch-Site, and the second in Host.
func checkLocal(r *http.Request) error {
	if !isLocalHost(r.Host) {
		return refuse(api.ProblemCodeDenied, "with AUTH_MODE=dev, requests must be made to localhost or a loopback address, not to \""+clip(r.Host)+"\"")
	}
	for _, origin := range r.Header.Values("Origin") {
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host) {
			return refuse(api.ProblemCodeDenied, "with AUTH_MODE=dev, requests of other web pages are refused")
		}
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return nil
	}
	return refuse(api.ProblemCodeDenied, "with AUTH_MODE=dev, requests of other web pages are refused")
}

func isLocalHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && ip.Unmap().IsLoopback()
}
