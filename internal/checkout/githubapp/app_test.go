package githubapp_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/checkout/checkouttest"
	"github.com/agentdock/agentdock/internal/checkout/githubapp"
	"github.com/agentdock/agentdock/internal/checkout/reason"
)

func start(t *testing.T) *checkouttest.GitHub {
	g := checkouttest.Start(t)
	g.Repo("acme", "app")
	g.Private["acme/app"], g.Installed["acme"] = true, true
	return g
}

func TestATokenForOneRepository(t *testing.T) {
	g := start(t)
	app, ctx := g.App(), context.Background()
	token, err := app.Mint(ctx, "acme", "app")
	if err != nil {
		t.Fatal(err)
	}
	secret := g.Tokens()[0]
	if !token.In("x "+secret+" y") || token.In("nothing of it") {
		t.Error("the token does not find itself")
	}
	req, _ := http.NewRequest(http.MethodGet, g.URL, nil)
	token.Authorize(req)
	if user, got, _ := req.BasicAuth(); user != "x-access-token" || got != secret {
		t.Errorf("a request carries %q, %q", user, got)
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "token", token)
	asJSON, _ := json.Marshal(token)
	for _, text := range []string{fmt.Sprint(token), fmt.Sprintf("%v %+v %#v %s", token, token, token, token), log.String(), string(asJSON)} {
		if strings.Contains(text, secret) {
			t.Errorf("the token prints itself: %q", text)
		}
	}
	if g.Live() != 1 {
		t.Errorf("%d tokens live before the end", g.Live())
	}
	if err := app.Revoke(ctx, token); err != nil || g.Live() != 0 {
		t.Errorf("Revoke = %v, and %d tokens live", err, g.Live())
	}
	token.Authorize(req)
	if _, got, _ := req.BasicAuth(); got != "" {
		t.Error("the token is still there after its end")
	}
	if err := app.Revoke(ctx, token); err != nil {
		t.Errorf("revoking again: %v", err)
	}
}

// A token that was made while its caller gave up, or in an answer that cannot be
// used, is revoked.
func TestATokenThatIsNotUsedIsRevoked(t *testing.T) {
	for name, change := range map[string]func(cancel func(), answer map[string]any){
		"the caller ends while it is made": func(cancel func(), _ map[string]any) { cancel() },
		"a field of another type":          func(_ func(), answer map[string]any) { answer["expires_at"] = "soon" },
		"permissions of another type": func(_ func(), answer map[string]any) {
			answer["permissions"] = map[string]any{"contents": "read", "x": true}
		},
		"too wide, and the caller ends": func(cancel func(), answer map[string]any) {
			answer["permissions"] = map[string]any{"contents": "write"}
			cancel()
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := start(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			g.Grant = func(answer map[string]any) { change(cancel, answer) }
			token, err := g.App().Mint(ctx, "acme", "app")
			if token != nil || err == nil {
				t.Errorf("Mint = %v, %v", token, err)
			}
			if len(g.Tokens()) != 1 || g.Live() != 0 {
				t.Errorf("%d tokens were made, %d live", len(g.Tokens()), g.Live())
			}
		})
	}
}

// A server may send the token back in another form, or a piece of it.
func TestATokenIsFoundInEveryForm(t *testing.T) {
	g := start(t)
	token, err := g.App().Mint(t.Context(), "acme", "app")
	if err != nil {
		t.Fatal(err)
	}
	secret := g.Tokens()[0]
	for _, form := range []string{
		secret, strings.ToUpper(secret), strings.ToLower(secret), secret[5:25],
		hex.EncodeToString([]byte(secret)), base64.StdEncoding.EncodeToString([]byte(secret)),
		base64.RawURLEncoding.EncodeToString([]byte("x-access-token:" + secret)),
	} {
		if !token.In("ERR " + form + " x") {
			t.Errorf("not found as %q", form)
		}
	}
	for _, other := range []string{"", "x-access-token", base64.StdEncoding.EncodeToString([]byte("x-access-token:")), secret[:8]} {
		if token.In(other) {
			t.Errorf("found in %q", other)
		}
	}
}

// answer makes the API give that one.
func answer(status int, message string, headers ...string) func(g *checkouttest.GitHub) {
	return func(g *checkouttest.GitHub) {
		g.API = func(w http.ResponseWriter, _ *http.Request) bool {
			for i := 0; i < len(headers); i += 2 {
				w.Header().Set(headers[i], headers[i+1])
			}
			w.WriteHeader(status)
			_ = json.NewEncoder(w).Encode(map[string]string{"message": message})
			return true
		}
	}
}

func grant(change func(answer map[string]any)) func(g *checkouttest.GitHub) {
	return func(g *checkouttest.GitHub) { g.Grant = change }
}

func TestRefusals(t *testing.T) {
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	soon := fmt.Sprint(time.Now().Add(90 * time.Second).Unix())
	for name, tc := range map[string]struct {
		change func(g *checkouttest.GitHub)
		app    func(g *checkouttest.GitHub) *githubapp.App
		want   reason.Code
		says   string
	}{
		"another key": {app: func(g *checkouttest.GitHub) *githubapp.App { return g.AppAs(checkouttest.AppID, other) },
			want: reason.AppRefused, says: "do not belong together"},
		"another id": {app: func(g *checkouttest.GitHub) *githubapp.App { return g.AppAs("1", g.Key) },
			want: reason.AppRefused, says: "do not belong together"},
		"not installed": {change: func(g *checkouttest.GitHub) { g.Installed = map[string]bool{} },
			want: reason.NotInstalled, says: "acme/app"},
		"suspended": {change: func(g *checkouttest.GitHub) { g.Suspended["acme"] = true },
			want: reason.Suspended, says: "its owner can lift that"},
		"suspended meanwhile": {change: answer(403, "This installation has been suspended"), want: reason.Suspended, says: "suspended"},
		"clock behind": {change: answer(401, "'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued",
			"Date", time.Now().Add(-10*time.Minute).UTC().Format(http.TimeFormat)), want: reason.ClockSkew, says: "behind this machine's"},
		"clock ahead": {change: answer(401, "'Expiration time' claim ('exp') must be a numeric value",
			"Date", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)), want: reason.ClockSkew, says: "ahead of this machine's; set this machine's clock"},
		"primary rate limit": {change: answer(403, "API rate limit exceeded", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", soon),
			want: reason.RateLimited, says: "try again in 1m"},
		"secondary rate limit": {change: answer(403, "You have exceeded a secondary rate limit", "Retry-After", "60"),
			want: reason.RateLimited, says: "try again in 1m0s"},
		"429":     {change: answer(429, ""), want: reason.RateLimited, says: "limit"},
		"403":     {change: answer(403, "Resource not accessible by integration"), want: reason.PermissionDenied, says: "denies"},
		"422":     {change: answer(422, "The permissions requested are not granted to this installation."), want: reason.PermissionDenied, says: "permission"},
		"renamed": {change: answer(301, "Moved Permanently", "Location", "https://192.0.2.1/"), want: reason.Moved, says: "new name"},
		"500":     {change: answer(500, "Server Error"), want: reason.Unavailable, says: "status 500"},
		"no JSON": {change: func(g *checkouttest.GitHub) {
			g.API = func(w http.ResponseWriter, _ *http.Request) bool {
				fmt.Fprint(w, "<html>")
				return true
			}
		}, want: reason.Unavailable, says: "not what it should be"},
		"more rights": {change: grant(func(a map[string]any) { a["permissions"] = map[string]string{"contents": "write", "metadata": "read"} }), want: reason.TokenRefused, says: "may do more"},
		"other rights": {change: grant(func(a map[string]any) {
			a["permissions"] = map[string]string{"contents": "read", "issues": "read"}
		}), want: reason.TokenRefused, says: "may do more"},
		"no rights": {change: grant(func(a map[string]any) { a["permissions"] = map[string]string{"metadata": "read"} }), want: reason.PermissionDenied, says: "does not read"},
		"all repositories": {change: grant(func(a map[string]any) { delete(a, "repositories") }),
			want: reason.TokenRefused, says: "not for this repository alone"},
		"two repositories": {change: grant(func(a map[string]any) {
			a["repositories"] = []any{map[string]any{"full_name": "acme/app"}, map[string]any{"full_name": "acme/other"}}
		}), want: reason.TokenRefused, says: "not for this repository alone"},
		"another repository": {change: grant(func(a map[string]any) {
			a["repositories"] = []any{map[string]any{"full_name": "acme/other"}}
		}), want: reason.TokenRefused, says: "not for this repository alone"},
		"for ever":         {change: grant(func(a map[string]any) { a["expires_at"] = time.Now().Add(100 * time.Hour) }), want: reason.TokenRefused, says: "too long"},
		"without an end":   {change: grant(func(a map[string]any) { delete(a, "expires_at") }), want: reason.TokenRefused, says: "no time at which it expires"},
		"an end of null":   {change: grant(func(a map[string]any) { a["expires_at"] = nil }), want: reason.TokenRefused, says: "no time at which it expires"},
		"an end long ago":  {change: grant(func(a map[string]any) { a["expires_at"] = "1970-01-01T00:00:00Z" }), want: reason.TokenRefused, says: "expired already"},
		"an end never":     {change: grant(func(a map[string]any) { a["expires_at"] = "9999-12-31T23:59:59Z" }), want: reason.TokenRefused, says: "too long"},
		"an end in words":  {change: grant(func(a map[string]any) { a["expires_at"] = "soon" }), want: reason.TokenRefused, says: "not what it should be"},
		"an end in number": {change: grant(func(a map[string]any) { a["expires_at"] = 1 << 40 }), want: reason.TokenRefused, says: "not what it should be"},
		"no token":         {change: grant(func(a map[string]any) { a["token"] = "" }), want: reason.TokenRefused, says: "empty"},
		"a header in the token": {change: grant(func(a map[string]any) { a["token"] = "x\r\nX-Other: y" }),
			want: reason.TokenRefused, says: "malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			g := start(t)
			if tc.change != nil {
				tc.change(g)
			}
			app := g.App()
			if tc.app != nil {
				app = tc.app(g)
			}
			token, err := app.Mint(context.Background(), "acme", "app")
			if token != nil || reason.Of(err) != tc.want || !strings.Contains(err.Error(), tc.says) {
				t.Fatalf("Mint = %v, %v (%s), want %s that says %q", token, err, reason.Of(err), tc.want, tc.says)
			}
			if g.Live() != 0 && name != "no token" && name != "a header in the token" {
				t.Error("a token that was refused still lives")
			}
			for _, secret := range g.Tokens() {
				if strings.Contains(err.Error(), secret) {
					t.Error("the error holds the token")
				}
			}
		})
	}
}

// A server that sends a credential back, in whatever form, gets no echo of it
// into an error.
func TestAnEchoedCredentialIsLeftOut(t *testing.T) {
	for name, form := range map[string]func(string) string{
		"as it is": func(s string) string { return s }, "in lower case": strings.ToLower, "a piece": func(s string) string { return s[len(s)-20:] },
		"in hexadecimal": func(s string) string { return hex.EncodeToString([]byte(s)) },
		"in base64":      func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
			t.Run(method+", "+name, func(t *testing.T) {
				g := start(t)
				var sent string
				g.API = func(w http.ResponseWriter, r *http.Request) bool {
					if r.Method != method {
						return false
					}
					sent = strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
					w.WriteHeader(http.StatusForbidden)
					_ = json.NewEncoder(w).Encode(map[string]string{"message": "you sent " + form(sent)})
					return true
				}
				token, err := g.App().Mint(t.Context(), "acme", "app")
				if err == nil {
					err = g.App().Revoke(t.Context(), token)
				}
				if sent == "" || err == nil || strings.Contains(err.Error(), form(sent)) || !strings.Contains(err.Error(), "repeats the credential") {
					t.Errorf("err = %v", err)
				}
			})
		}
	}
}

func TestUnreachable(t *testing.T) {
	g := start(t)
	app, err := githubapp.New(githubapp.Config{ID: "1", Key: g.Key, API: "https://127.0.0.1:1", Transport: g.Egress().Transport()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := app.Mint(context.Background(), "acme", "app"); reason.Of(err) != reason.Unavailable {
		t.Errorf("err = %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := g.App().Mint(ctx, "acme", "app"); !errors.Is(err, context.Canceled) {
		t.Errorf("after its context ended: %v", err)
	}
	for _, name := range []string{"", "..", "a/b", "a b", "a?b", "a%2fb"} {
		if _, err := g.App().Mint(context.Background(), "acme", name); reason.Of(err) != reason.BadSource {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestKeys(t *testing.T) {
	good, _ := rsa.GenerateKey(rand.Reader, 2048)
	weak, _ := rsa.GenerateKey(rand.Reader, 1024)
	curve, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	encode := func(typ string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: typ, Bytes: der}))
	}
	pkcs1 := encode("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(good))
	der8, _ := x509.MarshalPKCS8PrivateKey(good)
	ec8, _ := x509.MarshalPKCS8PrivateKey(curve)
	public, _ := x509.MarshalPKIXPublicKey(&good.PublicKey)
	lines := strings.Split(pkcs1, "\n")
	for name, tc := range map[string]struct{ text, says string }{
		"as GitHub gives it":    {pkcs1, ""},
		"PKCS 8":                {encode("PRIVATE KEY", der8), ""},
		"line breaks escaped":   {strings.ReplaceAll(pkcs1, "\n", `\n`), ""},
		"spaces around":         {"\n  " + pkcs1 + "\n\n", ""},
		"nothing":               {" \n", "it is empty"},
		"a path":                {"/etc/agentdock/key.pem", "not its path"},
		"line breaks gone":      {strings.ReplaceAll(pkcs1, "\n", " "), "line breaks are gone"},
		"a line is missing":     {strings.Join(append(append([]string{}, lines[:5]...), lines[6:]...), "\n"), "damaged"},
		"cut":                   {strings.Join(lines[:10], "\n"), "damaged or cut"},
		"encrypted":             {encode("ENCRYPTED PRIVATE KEY", der8), "it is encrypted"},
		"encrypted, older form": {"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,AB\n\nAAAA\n-----END RSA PRIVATE KEY-----\n", "it is encrypted"},
		"public":                {encode("PUBLIC KEY", public), "it is a public key"},
		"certificate":           {encode("CERTIFICATE", []byte("x")), "it is a certificate"},
		"elliptic":              {encode("PRIVATE KEY", ec8), "no RSA key"},
		"elliptic, older form":  {encode("EC PRIVATE KEY", []byte("x")), `"EC PRIVATE KEY"`},
		"weak":                  {encode("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(weak)), "1024 bits"},
		"two":                   {pkcs1 + pkcs1, "something after the key"},
	} {
		key, err := githubapp.ParseKey([]byte(tc.text))
		if tc.says == "" {
			if err != nil || !key.Equal(good) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want it to say %q", name, err, tc.says)
		} else if strings.Contains(err.Error(), lines[3][:16]) {
			t.Errorf("%s: the error holds some of the key", name)
		}
	}
}
