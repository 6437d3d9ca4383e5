package logging

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"regexp"
	"strings"
)

const redacted = "[redacted]"

// secretNames are parts of attribute names whose values are never logged.
var secretNames = []string{"password", "passwd", "secret", "token", "authorization", "cookie", "credential", "private_key", "api_key", "apikey", "signing_key"}

func redactByName(_ []string, a slog.Attr) slog.Attr {
	name := strings.ToLower(strings.ReplaceAll(a.Key, "-", "_"))
	for _, part := range secretNames {
		if strings.Contains(name, part) {
			return slog.String(a.Key, redacted)
		}
	}
	return a
}

// secretShapes find what looks like a secret inside a line of JSON. What they
// match holds neither a quote nor a backslash, so the line stays JSON.
var secretShapes = []*regexp.Regexp{
	regexp.MustCompile(`://[^/@\s"\\]*:[^/@\s"\\]*@`),                                                // a password in a URL
	regexp.MustCompile(`(?i)\b(?:bearer\s+[A-Za-z0-9._~+/=-]{8,}|basic\s+[A-Za-z0-9+/]{12,}={0,2})`), // a header
	regexp.MustCompile(`\b(?:gh[oprsu]_|github_pat_)[A-Za-z0-9_]{16,}`),                              // GitHub
	regexp.MustCompile(`\beyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*`),                        // a JSON web token
	regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----[^"-]*(?:-----END)?`),                      // a PEM key, \n and all
	regexp.MustCompile(`\bA(?:KIA|SIA)[A-Z0-9]{16}\b`),                                               // a cloud key
	regexp.MustCompile(`\badk_[A-Za-z0-9_]{8,}`),                                                     // one of our own
	regexp.MustCompile(`(?i)\b(?:password|token|secret)=[^&\s"\\]+`),                                 // a parameter
	regexp.MustCompile(`(?i)X-Amz-(?:Signature|Credential|Security-Token)=[^&\s"\\]+`),               // a signed URL
}

// redactor looks at whole lines, which is what a JSON handler writes at once.
type redactor struct {
	w      io.Writer
	values [][]byte
}

// shortest is how long a value must be to be looked for: shorter ones are found
// everywhere and protect nothing.
const shortest = 6

func newRedactor(w io.Writer, secrets []string) *redactor {
	r := &redactor{w: w}
	for _, s := range secrets {
		if len(s) < shortest {
			continue
		}
		r.values = append(r.values, []byte(s))
		// As it stands inside JSON strings, which escape in more than one way.
		for _, html := range []bool{false, true} {
			var buf bytes.Buffer
			enc := json.NewEncoder(&buf)
			enc.SetEscapeHTML(html)
			if enc.Encode(s) == nil {
				inside := bytes.TrimSpace(buf.Bytes())
				r.values = append(r.values, bytes.Clone(inside[1:len(inside)-1]))
			}
		}
	}
	return r
}

func (r *redactor) Write(line []byte) (int, error) {
	clean := line
	for _, v := range r.values {
		clean = bytes.ReplaceAll(clean, v, []byte(redacted))
	}
	for _, shape := range secretShapes {
		clean = shape.ReplaceAllFunc(clean, func(match []byte) []byte {
			if bytes.HasPrefix(match, []byte("://")) {
				return []byte("://" + redacted + "@")
			}
			return []byte(redacted)
		})
	}
	if _, err := r.w.Write(clean); err != nil {
		return 0, err
	}
	return len(line), nil
}
