package githubapp

import (
	"encoding/base64"
	"log/slog"
	"net/http"
	"strings"
	"time"
)

// Token reads one repository for at most an hour. It prints as nothing.
type Token struct {
	secret  []byte
	Expires time.Time
}

// user is what GitHub takes with a token in place of a password.
const user = "x-access-token"

// Authorize adds the token to a request.
func (t *Token) Authorize(r *http.Request) { r.SetBasicAuth(user, string(t.secret)) }

// In reports whether text holds the token, as it is or as requests carry it: a
// server may send back what it was sent.
func (t *Token) In(text string) bool {
	if len(t.secret) == 0 {
		return false
	}
	return strings.Contains(text, string(t.secret)) ||
		strings.Contains(text, base64.StdEncoding.EncodeToString([]byte(user+":"+string(t.secret))))
}

// Drop overwrites the token. Copies that the HTTP client made are left to the
// garbage collector; that they are worth nothing is what Revoke is for.
func (t *Token) Drop() {
	clear(t.secret)
	t.secret = nil
}

func (t *Token) String() string   { return "[token]" }
func (t *Token) GoString() string { return "[token]" }

// LogValue keeps the token out of structured logs.
func (t *Token) LogValue() slog.Value { return slog.StringValue(t.String()) }

// MarshalJSON keeps it out of everything that is written as JSON.
func (t *Token) MarshalJSON() ([]byte, error) { return []byte(`"[token]"`), nil }
