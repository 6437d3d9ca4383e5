package checkouttest

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

func say(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"message": message})
}

func (g *GitHub) serveAPI(w http.ResponseWriter, r *http.Request, path string) {
	g.Lock()
	defer g.Unlock()
	if r.Header.Get("Accept") != "application/vnd.github+json" || r.Header.Get("X-GitHub-Api-Version") == "" || r.Header.Get("User-Agent") == "" {
		say(w, http.StatusBadRequest, "The request lacks a header that GitHub asks for")
		return
	}
	bearer := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if r.Method == http.MethodDelete && path == "/installation/token" {
		t := g.tokens[bearer]
		if t == nil || !t.live() {
			say(w, http.StatusUnauthorized, "Bad credentials")
			return
		}
		t.revoked = true
		w.WriteHeader(http.StatusNoContent)
		return
	}
	if why := g.checkJWT(bearer, time.Now()); why != "" {
		say(w, http.StatusUnauthorized, why)
		return
	}
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	switch {
	case r.Method == http.MethodGet && len(parts) == 4 && parts[0] == "repos" && parts[3] == "installation":
		g.installation(w, parts[1], parts[2])
	case r.Method == http.MethodPost && len(parts) == 4 && parts[0] == "app" && parts[1] == "installations" && parts[3] == "access_tokens":
		g.accessToken(w, r, parts[2])
	default:
		say(w, http.StatusNotFound, "Not Found")
	}
}

// checkJWT says in GitHub's words what is wrong with the App's signature.
func (g *GitHub) checkJWT(text string, now time.Time) string {
	const bad = "A JSON web token could not be decoded"
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return bad
	}
	var header struct{ Alg, Typ string }
	var claims struct {
		Iat, Exp int64
		Iss      string
	}
	for i, to := range []any{&header, &claims} {
		data, err := base64.RawURLEncoding.DecodeString(parts[i])
		if err != nil || json.Unmarshal(data, to) != nil {
			return bad
		}
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	digest := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if err != nil || header.Alg != "RS256" || rsa.VerifyPKCS1v15(&g.Key.PublicKey, crypto.SHA256, digest[:], signature) != nil {
		return bad
	}
	switch {
	case claims.Iss != AppID:
		return "Integration not found"
	case claims.Iat > now.Unix():
		return "'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued"
	case claims.Exp <= now.Unix():
		return "'Expiration time' claim ('exp') must be a numeric value representing the future time at which the assertion expires"
	case claims.Exp > now.Add(10*time.Minute).Unix():
		return "'Expiration time' claim ('exp') is too far in the future"
	}
	return ""
}

func installationID(owner string) int64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(owner)) // never fails
	return int64(h.Sum32())
}

func (g *GitHub) exists(owner, name string) bool {
	_, err := os.Stat(filepath.Join(g.Root, owner, name+".git"))
	return err == nil
}

func (g *GitHub) installation(w http.ResponseWriter, owner, name string) {
	if !g.Installed[owner] || !g.exists(owner, name) {
		say(w, http.StatusNotFound, "Not Found")
		return
	}
	answer := map[string]any{"id": installationID(owner), "suspended_at": nil}
	if g.Suspended[owner] {
		answer["suspended_at"] = time.Now().UTC().Format(time.RFC3339)
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func (g *GitHub) accessToken(w http.ResponseWriter, r *http.Request, id string) {
	var ask struct {
		Repositories []string          `json:"repositories"`
		Permissions  map[string]string `json:"permissions"`
	}
	owner := ""
	for o := range g.Installed {
		if fmt.Sprint(installationID(o)) == id {
			owner = o
		}
	}
	switch err := json.NewDecoder(r.Body).Decode(&ask); {
	case err != nil:
		say(w, http.StatusBadRequest, "Problems parsing JSON")
		return
	case owner == "":
		say(w, http.StatusNotFound, "Not Found")
		return
	case g.Suspended[owner]:
		say(w, http.StatusForbidden, "This installation has been suspended")
		return
	case len(ask.Repositories) != 1 || !g.exists(owner, ask.Repositories[0]):
		say(w, http.StatusUnprocessableEntity, "There is at least one repository that does not exist or is not accessible to the parent installation.")
		return
	case len(ask.Permissions) != 1 || ask.Permissions["contents"] != "read":
		say(w, http.StatusUnprocessableEntity, "The permissions requested are not granted to this installation.")
		return
	}
	secret := "ghs_" + rand.Text() + rand.Text()
	t := &token{owner: owner, name: ask.Repositories[0], expires: time.Now().Add(g.TokenLife)}
	g.tokens[secret] = t
	answer := map[string]any{
		"token": secret, "expires_at": t.expires.UTC().Format(time.RFC3339),
		"permissions":          map[string]string{"contents": "read", "metadata": "read"},
		"repository_selection": "selected",
		"repositories":         []any{map[string]any{"full_name": owner + "/" + t.name}},
	}
	if g.Grant != nil {
		g.Grant(answer)
	}
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(answer)
}
