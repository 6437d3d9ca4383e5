package address

import (
	"strings"
	"testing"
)

func TestHostPort(t *testing.T) {
	for _, tc := range []struct {
		text, host string
		port       uint16
	}{
		{"pypi.org", "pypi.org", 443},
		{"PyPI.org.:8443", "pypi.org", 8443},
		{"pypi.org:00443", "pypi.org", 443},
		{"[2606:50C0:8000::154]:443", "[2606:50c0:8000::154]", 443},
		{"[::ffff:1.1.1.1]", "1.1.1.1", 443},
		{"1.1.1.1:53", "1.1.1.1", 53},
		{"pypi.org:", "", 0},
		{"pypi.org:+1", "", 0},
		{"pypi.org:0", "", 0},
		{"pypi.org:65536", "", 0},
		{"2606:50c0:8000::154", "", 0}, // where the port begins is a guess
		{"[1.1.1.1]", "", 0},
		{"[::1", "", 0},
		{"[fe80::1%eth0]", "", 0},
		{"127.1:443", "", 0},
		{"0x7f.0.0.1", "", 0},
		{"017700000001", "", 0},
		{"a b", "", 0},
		{"\u212a.example", "", 0}, // the Kelvin sign, which has k for a small letter
		{"a\x00b", "", 0},
		{"a@b", "", 0},
		{"a/b", "", 0},
		{"", "", 0},
		{strings.Repeat("x", 64) + ".org", "", 0},
	} {
		host, port, err := HostPort(tc.text, 443)
		if (err == nil) != (tc.host != "") || err == nil && (host != tc.host || port != tc.port) {
			t.Errorf("%q: %q, %d, %v, want %q, %d", tc.text, host, port, err, tc.host, tc.port)
		}
	}
}

func FuzzHost(f *testing.F) {
	for _, s := range []string{"a.b", "[::1]", "127.0.0.1", "0x7f.1", "ü.org", "*.a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		host, err := Host(text)
		if err != nil {
			return
		}
		if again, err := Host(host); err != nil || again != host {
			t.Errorf("%q is %q, and that is %q, %v", text, host, again, err)
		}
		if strings.ContainsAny(host, " /@\\\x00%*") || len(host) > 253 {
			t.Errorf("%q is %q", text, host)
		}
	})
}
