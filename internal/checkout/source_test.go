package checkout

import (
	"strings"
	"testing"

	"github.com/agentdock/agentdock/internal/checkout/reason"
)

func TestURLs(t *testing.T) {
	for text, want := range map[string]string{
		"https://github.com/acme/app":                           "https://github.com/acme/app",
		"https://GitHub.com/acme/app.git/":                      "https://github.com/acme/app.git",
		"https://GITHUB.com.:0443/acme/app///":                  "https://github.com/acme/app",
		"HTTPS://github.com:443/acme/app":                       "https://github.com/acme/app",
		"https://github.com:/acme/app":                          "https://github.com/acme/app",
		"https://github.com/%61cme/app":                         "https://github.com/acme/app",
		"https://[2001:DB8::0:1]:443/acme/app":                  "https://[2001:db8::1]/acme/app",
		"https://github.com..:443/acme/app":                     "",
		"https://ｇithub.com/acme/app":                           "",
		"https://github.com:0/acme/app":                         "",
		"https://0x7f.1/acme/app":                               "",
		"https://github.com//acme/app":                          "",
		"https://github.com/acme//app":                          "",
		"https://github.com/acme%2fapp/x":                       "",
		"https://github.com/acme%2F..%2Fapp/x":                  "",
		"https://github.com/acme/app%0a":                        "",
		"https://github.com/acme/./app":                         "",
		"https://git.example:8443/a/b/c":                        "https://git.example:8443/a/b/c",
		"https://git.example/a%20b/c":                           "https://git.example/a%20b/c",
		`https://git.example/a/b"c`:                             "https://git.example/a/b%22c",
		"":                                                      "",
		"https://":                                              "",
		"https://github.com":                                    "",
		"https://github.com/":                                   "",
		"http://github.com/acme/app":                            "",
		"ssh://git@github.com/acme/app":                         "",
		"git@github.com:acme/app.git":                           "",
		"git://github.com/acme/app":                             "",
		"file:///etc/passwd":                                    "",
		"ext::sh -c touch% /tmp/x":                              "",
		"--upload-pack=touch /tmp/x":                            "",
		"/etc":                                                  "",
		"https://user@github.com/acme/app":                      "",
		"https://u:hunter2@github.com/a/b":                      "",
		"https://github.com/acme/app?x=y":                       "",
		"https://github.com/acme/app?":                          "",
		"https://github.com/acme/app#x":                         "",
		"https://github.com/acme/../app":                        "",
		"https://github.com/acme/%2e%2e/app":                    "",
		"https://github.com/acme/app\n[core]\n\tsshCommand = x": "",
		"https://git hub.com/acme/app":                          "",
		"https:github.com/acme/app":                             "",
		"https://github.com/" + strings.Repeat("x", 3000):       "",
	} {
		u, err := ParseURL(text)
		switch {
		case want == "" && reason.Of(err) != reason.BadSource:
			t.Errorf("%.60q: %v, %v", text, u, err)
		case want == "" && strings.Contains(err.Error(), "hunter2"):
			t.Errorf("%q: the error holds the password", text)
		case want != "" && (err != nil || u.String() != want):
			t.Errorf("%q: %v, %v, want %s", text, u, err, want)
		case want != "":
			if again, err := ParseURL(u.String()); err != nil || again.String() != want {
				t.Errorf("%q: its one spelling is read as %v, %v", text, again, err)
			}
		}
	}
}
