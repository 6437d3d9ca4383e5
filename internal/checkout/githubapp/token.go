package githubapp

import (
	"encoding/base64"
	"encoding/hex"
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

// telling is how many characters of a token in a row are taken for it.
const telling = 12

// In reports whether text holds the token or a telling piece of it, as it is, as
// requests carry it, or in another of the forms in which a server may send back
// what it was sent; in letters of any case.
func (t *Token) In(text string) bool {
	text = strings.ToLower(text)
	secret := string(t.secret)
	for _, form := range []string{
		secret,
		base64.StdEncoding.EncodeToString([]byte(user + ":" + secret))[base64.StdEncoding.EncodedLen(len(user)+1):],
		base64.StdEncoding.EncodeToString([]byte(secret)),
		base64.URLEncoding.EncodeToString([]byte(user + ":" + secret))[base64.URLEncoding.EncodedLen(len(user)+1):],
		base64.URLEncoding.EncodeToString([]byte(secret)),
		hex.EncodeToString([]byte(secret)),
	} {
		form = strings.ToLower(form)
		for i := 0; i+telling <= len(form); i++ {
			if strings.Contains(text, form[i:i+telling]) {
				return true
			}
		}
	}
	return secret != "" && strings.Contains(text, strings.ToLower(secret))
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
