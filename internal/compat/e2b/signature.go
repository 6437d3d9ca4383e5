package e2b

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"strconv"
	"time"

	"github.com/agentdock/agentdock/internal/control"
	"github.com/agentdock/agentdock/internal/fault"
)

// openFiles is open for /files, where a signature in the URL will do instead of
// the token: it allows one operation on one path, until a time.
func (f *Facade) openFiles(r *http.Request, operation string) error {
	query := r.URL.Query()
	if r.Header.Get("X-Access-Token") != "" || query.Get("signature") == "" {
		return f.open(r, r.Header.Get("X-Access-Token"))
	}
	x := exchangeOf(r.Context())
	caller, box, err := f.live.CallerBy(r.Context(), x.target.sandbox, x.gate.Remote(), func(token string) error {
		return checkSignature(query.Get("path"), operation, query.Get("username"), token,
			query.Get("signature"), query.Get("signature_expiration"), time.Now())
	})
	return f.enter(r, x, caller, box, err)
}

// checkSignature refuses a signature that was not made with the token, for that
// operation of that user on that path, or whose time is over.
func checkSignature(path, operation, user, token, signature, expiration string, now time.Time) error {
	signed := path + ":" + operation + ":" + user + ":" + token
	if expiration != "" {
		signed += ":" + expiration
	}
	sum := sha256.Sum256([]byte(signed))
	want := "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
	if token == "" || subtle.ConstantTimeCompare([]byte(signature), []byte(want)) != 1 {
		return fault.New(control.Unauthenticated, "the signature is not valid for this")
	}
	if expiration == "" {
		return nil
	}
	until, err := strconv.ParseInt(expiration, 10, 64)
	if err != nil || now.Unix() > until {
		return fault.New(control.Unauthenticated, "the signature's time is over")
	}
	return nil
}
