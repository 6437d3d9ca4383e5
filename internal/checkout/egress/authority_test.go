package egress

import (
	"net/url"
	"strings"
	"testing"
)

func TestAuthority(t *testing.T) {
	for text, want := range map[string]string{
		"https://github.com":                             "github.com",
		"https://GitHub.COM":                             "github.com",
		"https://github.com.":                            "github.com",
		"https://github.com:":                            "github.com",
		"https://github.com:443":                         "github.com",
		"https://GITHUB.com.:0443":                       "github.com",
		"https://github.com:8443":                        "github.com:8443",
		"https://github.com:08443":                       "github.com:8443",
		"https://xn--gthub-n4a.com":                      "xn--gthub-n4a.com",
		"https://my_host":                                "my_host",
		"https://192.0.2.1:443":                          "192.0.2.1",
		"https://[2001:DB8:0::1]:443":                    "[2001:db8::1]",
		"https://[::ffff:192.0.2.1]:8443":                "192.0.2.1:8443",
		"https://":                                       "",
		"https://.":                                      "",
		"https://:443":                                   "",
		"https://github.com..":                           "",
		"https://github..com":                            "",
		"https://.github.com":                            "",
		"https://github.com:0":                           "",
		"https://github.com:65536":                       "",
		"https://ｇithub.com":                             "", // a transport makes github.com of it
		"https://g%c3%adthub.com":                        "",
		"https://githuB。com":                             "", // a full stop of another script
		"https://git!hub.com":                            "",
		"https://127.1":                                  "",
		"https://2130706433":                             "",
		"https://0x7f000001":                             "",
		"https://0177.0.0.1":                             "",
		"https://1.2.3.4.5":                              "",
		"https://[fe80::1%25eth0]":                       "",
		"https://" + strings.Repeat("x", 64) + ".com":    "",
		"https://" + strings.Repeat("x.", 127) + "x.com": "",
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Authority(u)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v, want %q", text, got, err, want)
		}
		if err != nil {
			continue
		}
		again, err := Authority(&url.URL{Host: got})
		if err != nil || again != got {
			t.Errorf("%s: of %q it is %q, %v", text, got, again, err)
		}
	}
}
