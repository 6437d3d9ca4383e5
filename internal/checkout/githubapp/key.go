package githubapp

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ParseKey reads the private key that GitHub gave out for the App. Errors say
// what is wrong with it and hold nothing of it.
func ParseKey(text []byte) (*rsa.PrivateKey, error) {
	bad := func(format string, args ...any) (*rsa.PrivateKey, error) {
		return nil, fmt.Errorf("cannot use the GitHub App's private key: "+format, args...)
	}
	trimmed := strings.TrimSpace(string(text))
	switch {
	case trimmed == "":
		return bad("it is empty")
	case !strings.Contains(trimmed, "\n") && strings.Contains(trimmed, `\n`):
		// What becomes of a key in many kinds of variable files.
		trimmed = strings.ReplaceAll(trimmed, `\n`, "\n")
	case !strings.Contains(trimmed, "\n") && strings.Contains(trimmed, "-----BEGIN"):
		return bad("its line breaks are gone; set the file that GitHub gave you, or keep each line break or write it as \\n")
	case !strings.Contains(trimmed, "-----BEGIN"):
		return bad("it is not PEM: there is no line -----BEGIN RSA PRIVATE KEY-----; give the .pem file itself, or its text, not its path")
	}
	block, rest := pem.Decode([]byte(trimmed))
	switch {
	case block == nil:
		return bad("its PEM is damaged or cut: a line is missing or was changed")
	case strings.TrimSpace(string(rest)) != "":
		return bad("there is something after the key; give the key alone")
	case block.Type == "ENCRYPTED PRIVATE KEY", block.Headers["DEK-Info"] != "":
		return bad("it is encrypted; decrypt it first: openssl rsa -in KEY -out PLAIN")
	case block.Type == "PUBLIC KEY", block.Type == "RSA PUBLIC KEY":
		return bad("it is a public key; GitHub gives the private one out once, when it is made")
	case block.Type == "CERTIFICATE":
		return bad("it is a certificate")
	}
	var key *rsa.PrivateKey
	switch block.Type {
	case "RSA PRIVATE KEY":
		k, err := x509.ParsePKCS1PrivateKey(block.Bytes)
		if err != nil {
			return bad("what is in its PEM is damaged")
		}
		key = k
	case "PRIVATE KEY":
		k, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			return bad("what is in its PEM is damaged")
		}
		rsaKey, ok := k.(*rsa.PrivateKey)
		if !ok {
			return bad("it is no RSA key, which is what GitHub takes")
		}
		key = rsaKey
	default:
		return bad("its PEM holds %.40q", block.Type)
	}
	if key.N.BitLen() < 2048 {
		return bad("it has %d bits; GitHub's have 2048", key.N.BitLen())
	}
	return key, nil
}

const (
	// GitHub takes ten minutes at most, and refuses a signature from the future.
	backdate = time.Minute
	validity = 8 * time.Minute
)

// sign makes the JSON Web Token (RFC 7519, RS256) by which the App shows who it
// is.
func sign(key *rsa.PrivateKey, appID string, now time.Time) (string, error) {
	claims, err := json.Marshal(map[string]any{
		"iat": now.Add(-backdate).Unix(), "exp": now.Add(validity).Unix(), "iss": appID,
	})
	if err != nil {
		return "", err
	}
	enc := base64.RawURLEncoding
	text := enc.EncodeToString([]byte(`{"alg":"RS256","typ":"JWT"}`)) + "." + enc.EncodeToString(claims)
	digest := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, digest[:])
	if err != nil {
		return "", errors.New("cannot sign with the GitHub App's private key")
	}
	return text + "." + enc.EncodeToString(signature), nil
}
