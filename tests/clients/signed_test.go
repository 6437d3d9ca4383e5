package clients

import (
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/control"
	"github.com/agentdock/agentdock/internal/live"
)

// TestSignedURLs has files fetched and put by who has only a URL: the sandbox is
// in the host name, as with a domain of its own.
func TestSignedURLs(t *testing.T) {
	w := newWorld(t)
	holder, err := w.use.Authenticate(w.Context(), w.key)
	w.ok(err)
	owner := control.Caller{Principal: holder}
	box, _, err := w.live.Create(w.Context(), owner, live.Request{TTL: time.Minute})
	w.ok(err)
	sign := func(operation, path, expiration string) url.Values {
		signed := path + ":" + operation + "::" + box.AccessToken
		v := url.Values{"path": {path}}
		if expiration != "" {
			signed += ":" + expiration
			v.Set("signature_expiration", expiration)
		}
		sum := sha256.Sum256([]byte(signed))
		v.Set("signature", "v1_"+base64.RawStdEncoding.EncodeToString(sum[:]))
		return v
	}
	ask := func(method, host string, query url.Values, body string) (int, string) {
		w.Helper()
		r, err := http.NewRequestWithContext(w.Context(), method, w.url+"/files?"+query.Encode(), strings.NewReader(body))
		w.ok(err)
		r.Host = host
		r.Header.Set("Content-Type", "application/octet-stream")
		res, err := http.DefaultClient.Do(r)
		w.ok(err)
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		w.ok(err)
		return res.StatusCode, string(text)
	}
	host := "49983-" + box.ID + ".sandboxes.test"
	later, before := strconv.FormatInt(time.Now().Unix()+60, 10), strconv.FormatInt(time.Now().Unix()-1, 10)
	if status, text := ask("POST", host, sign("write", "a b.txt", later), "signed"); status != http.StatusOK {
		w.Fatalf("writing: %d %s", status, text)
	}
	if status, text := ask("GET", host, sign("read", "a b.txt", ""), ""); status != http.StatusOK || text != "signed" {
		w.Errorf("reading: %d %s", status, text)
	}
	other := sign("read", "a b.txt", later)
	other.Set("path", "/etc/passwd")
	for what, c := range map[string]struct {
		method, host string
		query        url.Values
		status       int
	}{
		"no signature":           {"GET", host, url.Values{"path": {"a b.txt"}}, http.StatusUnauthorized},
		"a signature to write":   {"GET", host, sign("write", "a b.txt", ""), http.StatusUnauthorized},
		"a signature to read":    {"POST", host, sign("read", "a b.txt", ""), http.StatusUnauthorized},
		"of another path":        {"GET", host, other, http.StatusUnauthorized},
		"whose time is over":     {"GET", host, sign("read", "a b.txt", before), http.StatusUnauthorized},
		"of no such sandbox":     {"GET", "49983-0000000000000000000000000a.sandboxes.test", sign("read", "a b.txt", ""), http.StatusBadGateway},
		"without any host of it": {"GET", "sandboxes.test", sign("read", "a b.txt", ""), http.StatusBadRequest},
		"another port":           {"GET", "8080-" + box.ID + ".sandboxes.test", sign("read", "a b.txt", ""), http.StatusNotImplemented},
	} {
		if status, text := ask(c.method, c.host, c.query, "x"); status != c.status {
			w.Errorf("%s: %d %s", what, status, text)
		}
	}
	_, err = w.live.Kill(w.Context(), owner, box.ID)
	w.ok(err)
}
