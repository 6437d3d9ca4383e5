package checkout

import (
	"net/url"
	"strings"
	"unicode"

	"github.com/agentdock/agentdock/internal/checkout/egress"
	"github.com/agentdock/agentdock/internal/checkout/reason"
)

// ParseURL reads the URL of a repository and gives it the one spelling that
// everything after it goes by: which server is asked, whether the App is used
// there and for which repository, and what is kept as origin. What has no such
// spelling is refused. Only HTTPS is taken, and no credentials: they would be
// kept with the job.
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
	case u.Opaque != "":
		return bad("names no host")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return bad("must hold no ? and no #")
	case strings.Trim(u.Path, "/") == "":
		return bad("names no repository")
	}
	if u.Host, err = egress.Authority(u); err != nil {
		return bad(err.Error())
	}
	path := strings.TrimRight(u.Path, "/")
	for part := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		switch {
		case part == "":
			return bad("must hold something between slashes")
		case part == ".." || part == ".":
			return bad("must hold no . or .. between slashes")
		case strings.ContainsFunc(part, unicode.IsControl):
			return bad("must hold no control characters")
		}
	}
	if strings.Contains(strings.ToLower(u.RawPath), "%2f") {
		return bad("must hold no slash that is written as %2f")
	}
	// Encoded again from what it means.
	u.Path, u.RawPath = path, ""
	return u, nil
}
