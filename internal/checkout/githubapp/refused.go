package githubapp

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/agentdock/agentdock/internal/checkout/reason"
)

// mostSkew is by how much clocks may differ before that is taken for the reason
// of a refusal.
const mostSkew = 30 * time.Second

// errNoToken is the answer to a token that opens nothing: it has expired, was
// revoked, or never was one. Unlike a signature's, a token's life is measured by
// GitHub's clock alone, so another clock is no reason for it.
var errNoToken = errors.New("GitHub knows no such token")

// refused says why a call was, from the status, the headers, and GitHub's own
// words, which are only searched and passed on to the operator.
func (c call) refused(resp *http.Response, body []byte) error {
	var said struct {
		Message string `json:"message"`
	}
	_ = json.Unmarshal(body, &said) // words that are missing are no words
	words := strings.ToLower(said.Message)
	cause := errors.New("GitHub answers " + strconv.Itoa(resp.StatusCode) + ": " + reason.Clean(said.Message))
	if sent := (&Token{secret: []byte(strings.TrimPrefix(c.as, "Bearer "))}); sent.In(said.Message) {
		cause = errors.New("GitHub answers " + strconv.Itoa(resp.StatusCode) + " and repeats the credential")
	}
	switch code := resp.StatusCode; {
	case code == http.StatusUnauthorized && c.byToken:
		return errNoToken
	case limited(resp, words):
		return reason.Wrap(reason.RateLimited, cause, "GitHub's limit of requests is reached%s", until(resp, time.Now()))
	case c.byToken:
		return reason.Wrap(reason.Unavailable, cause, "GitHub does not revoke the token (status %d)", code)
	case strings.Contains(words, "suspended"):
		return suspended(c.repository)
	case code == http.StatusUnauthorized:
		if by, ok := skew(resp, time.Now()); ok && by.Abs() > mostSkew {
			return reason.Wrap(reason.ClockSkew, cause, "GitHub refuses the App's signature, and its clock is %s this machine's; set this machine's clock", aheadOrBehind(by))
		}
		return reason.Wrap(reason.AppRefused, cause, "GitHub does not accept the App: its id and its private key do not belong together, or the key was deleted")
	case code == http.StatusNotFound:
		return reason.Wrap(reason.NotInstalled, cause, "the GitHub App is not installed for %s, or there is no such repository", c.repository)
	case code == http.StatusUnprocessableEntity:
		return reason.Wrap(reason.PermissionDenied, cause, "the GitHub App's installation does not cover %s, or lacks the permission to read contents", c.repository)
	case code == http.StatusForbidden:
		return reason.Wrap(reason.PermissionDenied, cause, "GitHub denies the App access to %s", c.repository)
	case code/100 == 3:
		return reason.Wrap(reason.Moved, cause, "%s was renamed or moved; use its new name", c.repository)
	}
	return reason.Wrap(reason.Unavailable, cause, "GitHub's API fails (status %d)", resp.StatusCode)
}

func suspended(repository string) error {
	return reason.New(reason.Suspended, "the GitHub App's installation for %s is suspended; its owner can lift that on GitHub", repository)
}

// limited tells both kinds of limits, which come as 403 or 429, from a denial.
func limited(resp *http.Response, words string) bool {
	switch resp.StatusCode {
	case http.StatusTooManyRequests:
		return true
	case http.StatusForbidden:
		return resp.Header.Get("X-RateLimit-Remaining") == "0" || resp.Header.Get("Retry-After") != "" || strings.Contains(words, "rate limit")
	}
	return false
}

// until says for how long, as far as that is known.
func until(resp *http.Response, now time.Time) string {
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s >= 0 {
		return "; try again in " + (time.Duration(s) * time.Second).String()
	}
	if s, err := strconv.ParseInt(resp.Header.Get("X-RateLimit-Reset"), 10, 64); err == nil {
		if left := time.Unix(s, 0).Sub(now); left > 0 && left < 24*time.Hour {
			return "; try again in " + left.Round(time.Second).String()
		}
	}
	return ""
}

func aheadOrBehind(by time.Duration) string {
	if by < 0 {
		return by.Abs().Round(time.Second).String() + " behind"
	}
	return by.Round(time.Second).String() + " ahead of"
}

// skew is how far the server's clock is ahead of ours.
func skew(resp *http.Response, now time.Time) (time.Duration, bool) {
	date, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return 0, false
	}
	return date.Sub(now), true
}
