package e2b

import (
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/control"
	"github.com/agentdock/agentdock/internal/fault"
)

// TestSignatures has signatures that the client's own function made, for the
// token "token".
func TestSignatures(t *testing.T) {
	const (
		forever = "v1_0x52WB0sjuScrew6Oh9sqh6PEFj6DuL9U8NUzyn3tUI"
		limited = "v1_3Vob/5sqFi/rSyokUzc5OIL7Gv9S8JUwEk++xvs9lEU"
		over    = "v1_MF9I0NsZzYxizkkdhRj2KgdqNV0pP5nEGGBiAzsPXas"
	)
	now := time.Unix(1_800_000_000, 0)
	for name, c := range map[string]struct {
		path, operation, user, token, signature, expiration string
		ok                                                  bool
	}{
		"without an end":           {"a.txt", "read", "", "token", forever, "", true},
		"until later":              {"a.txt", "write", "user", "token", limited, "1800000001", true},
		"until before":             {"a.txt", "write", "user", "token", over, "1799999999", false},
		"another path":             {"b.txt", "read", "", "token", forever, "", false},
		"another operation":        {"a.txt", "write", "", "token", forever, "", false},
		"another user":             {"a.txt", "read", "root", "token", forever, "", false},
		"another token":            {"a.txt", "read", "", "tokem", forever, "", false},
		"a longer time":            {"a.txt", "write", "user", "token", limited, "1900000000", false},
		"no time":                  {"a.txt", "write", "user", "token", limited, "", false},
		"a time that is no number": {"a.txt", "write", "user", "token", limited, "x", false},
		"no token":                 {"a.txt", "read", "", "", "v1_", "", false},
		"no signature":             {"a.txt", "read", "", "token", "", "", false},
	} {
		err := checkSignature(c.path, c.operation, c.user, c.token, c.signature, c.expiration, now)
		if (err == nil) != c.ok || err != nil && !fault.Is(err, control.Unauthenticated) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
