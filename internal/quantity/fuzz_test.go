package quantity

import (
	"strings"
	"testing"
)

// FuzzParse: what is accepted is an amount above nothing, written as one.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"512m", "1.5GiB", "9223372036854775807", "8EiB", "-1", "+1", "1e9", "0x10", "90s", "1m30s", "+1h", ".5s", "1h-5m", "0.5", "64", "NaN", "١", "1\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		accepted := func(what string, ok bool) {
			t.Helper()
			if !ok || strings.HasPrefix(s, "+") || strings.HasPrefix(s, "-") || strings.TrimSpace(s) != s {
				t.Fatalf("%q was accepted as %s", s, what)
			}
		}
		if n, err := ParseSize(s); err == nil {
			accepted("a size", n > 0)
			_ = Size(n)
		}
		if d, err := ParseDuration(s); err == nil {
			accepted("a duration", d > 0)
			_ = Duration(d)
		}
		if n, err := ParseCPUs(s); err == nil {
			accepted("processors", n >= 10 && n <= 64_000)
		}
		if n, err := ParseCount(s); err == nil {
			accepted("a count", n > 0)
			_ = Count(n)
		}
	})
}
