package checkout

import (
	"net/url"
	"strings"

	"github.com/agentdock/agentdock/internal/checkout/reason"
)

// ParseURL reads the URL of a repository. Only HTTPS is taken, and no
// credentials: they would be kept with the job.
func ParseURL(text string) (*url.URL, error) {
	bad := func(why string) (*url.URL, error) {
		return nil, reason.New(reason.BadSource, "the repository's URL %s", why)
	}
	if text == "" {
		return bad("is empty")
	}
	if len(text) > 2048 {
		return bad("is longer than 2048 bytes")
	}
	u, err := url.Parse(text)
	// The text itself is not repeated: it may hold a password.
	switch {
	case err != nil:
		return bad("is malformed")
	case u.User != nil:
		return bad("holds credentials; leave them out, and have the GitHub App installed there instead")
	case u.Scheme != "https":
		return bad("must begin with https://")
	case u.Hostname() == "" || u.Opaque != "":
		return bad("names no host")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return bad("must hold no ? and no #")
	case strings.Trim(u.Path, "/") == "":
		return bad("names no repository")
	}
	for part := range strings.SplitSeq(u.Path, "/") {
		if part == ".." || part == "." {
			return bad("must hold no . or .. between slashes")
		}
	}
	u.Host = strings.ToLower(u.Host)
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), strings.TrimRight(u.RawPath, "/")
	return u, nil
}
