package egress

import (
	"strings"
	"testing"
)

// Programs as the default image has them install what is allowed, and are told why
// not where it is not.
func TestClients(t *testing.T) {
	w := newWorld(t)
	index, files := w.index()
	git, forbidden := w.git(), w.forbidden()
	for _, tc := range []struct {
		name, script string
		allow        []string
		says         string // where it is allowed
		refused      string // where only something else is
	}{
		{
			"pip", "pip install --disable-pip-version-check --no-cache-dir --break-system-packages --retries 1 --target lib --index-url https://" + index + "/simple greeting && PYTHONPATH=lib python3 -m greeting",
			[]string{index, files}, "hello from a wheel", "403 agentdock: no connection to " + index + ": it is not allowed",
		},
		{
			"git", "git clone -q https://" + git + "/repo && git -C repo log --format=%s", []string{git}, "first", "403",
		},
		{
			"curl", "curl -sS https://" + index + "/simple/greeting/", []string{index}, "greeting-1.0", "403",
		},
		{
			"curl over SOCKS", "curl -sS --proxy socks5h://127.0.0.1:3128 https://" + index + "/simple/greeting/", []string{index}, "greeting-1.0", "SOCKS",
		},
		{
			"python", "python3 -c 'import urllib.request as u; print(u.urlopen(\"https://" + index + "/simple/greeting/\").read())'", []string{index}, "greeting-1.0", "403 agentdock: no connection to " + index + ": it is not allowed",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := &world{t: t, dir: w.dir, environ: w.environ, bin: w.bin}
			r := w.run(tc.script, tc.allow...)
			if r.exit() != 0 || !strings.Contains(r.output(), tc.says) {
				t.Errorf("allowed: it ended with %d and said %q", r.exit(), r.output())
			}
			if r.Network == nil || len(r.Network.Connections) == 0 || len(r.Network.Denied) != 0 {
				t.Fatalf("allowed: the transcript is %+v", r.Network)
			}
			for _, c := range r.Network.Connections {
				if c.Decision != "allowed" || !strings.HasPrefix(c.Address, "127.0.0.2") || c.SentBytes == 0 || c.ReceivedBytes == 0 || !strings.HasPrefix(c.Rule, c.Name) {
					t.Errorf("allowed: a line of the transcript is %+v", c)
				}
			}
			r = w.run(tc.script, forbidden)
			if r.exit() == 0 || !strings.Contains(r.output(), tc.refused) {
				t.Errorf("not allowed: it ended with %d and said %q", r.exit(), r.output())
			}
			if r.Network == nil || len(r.Network.Denied) != 1 || r.Network.Denied[0].Count == 0 {
				t.Errorf("not allowed: the transcript is %+v", r.Network)
			}
		})
	}
	if n := w.visits.Load(); n != 0 {
		t.Errorf("a server that nobody asked for had %d requests", n)
	}
}

// What a program does to get around the proxy leads nowhere.
func TestWaysAroundTheProxy(t *testing.T) {
	w := newWorld(t)
	index, _ := w.index()
	forbidden := w.forbidden()
	_, port, _ := strings.Cut(forbidden, ":")
	for name, script := range map[string]string{
		"without a proxy":        "curl -sS --max-time 5 --noproxy '*' https://" + forbidden + "/",
		"NO_PROXY":               "NO_PROXY='*' no_proxy='*' curl -sS --max-time 5 https://" + forbidden + "/",
		"an address":             "curl -sSk --max-time 5 --noproxy '*' https://127.0.0.24:" + port + "/",
		"an address, proxied":    "curl -sSk --max-time 5 --noproxy '' https://127.0.0.24:" + port + "/",
		"another name in TLS":    "curl -sSk --max-time 5 --connect-to forbidden.test:" + port + ":" + index + " https://" + forbidden + "/",
		"the name of an allowed": "curl -sSk --max-time 5 --resolve " + index + ":127.0.0.24 --noproxy '*' https://" + index + "/",
		"UDP":                    "python3 -c 'import socket; s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.connect((\"8.8.8.8\",53)); s.send(b\"x\")'",
		"a resolver":             "python3 -c 'import socket; socket.getaddrinfo(\"forbidden.test\", 443)'",
	} {
		if r := w.run(script, index); r.exit() == 0 {
			t.Errorf("%s: it succeeded and said %q", name, r.output())
		}
	}
	if n := w.visits.Load(); n != 0 {
		t.Errorf("the server that is not allowed had %d requests", n)
	}
	if strings.Contains(w.dns.Questions(), "forbidden") {
		t.Errorf("its name was resolved: %s", w.dns.Questions())
	}
}
