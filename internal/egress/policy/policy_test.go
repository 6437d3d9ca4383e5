package policy

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/agentdock/agentdock/internal/run"
)

func compile(t *testing.T, allow ...string) Policy {
	t.Helper()
	p, err := Compile(run.Network{Mode: run.NetworkAllow, Allow: allow})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestRulesThatAreRefused(t *testing.T) {
	for _, text := range []string{
		"", "*", "*.", "*.com", "*.1.2.3.4", "*.[::1]", "a.*.com", "**.a.com", "*a.com", "pypi.org:", "pypi.org:0", "pypi.org:65536",
		"https://pypi.org", "pypi.org/simple", "user@pypi.org", "pypi.org:443:443", "::1", "pÿpi.org", "pypi。org", "127.1", "0x7f000001",
		"a b.org", "a\nb.org", strings.Repeat("x.", 127) + "xx",
	} {
		if r, err := ParseRule(text); err == nil {
			t.Errorf("%q is allowed as %s", text, r)
		}
	}
}

func TestWhatRulesAllow(t *testing.T) {
	p := compile(t, "pypi.org", "*.files.example:8443", "1.1.1.1:443", "[2606:4700::1111]:443", "PyPI.org.:80")
	for _, tc := range []struct {
		host string
		port uint16
		want bool
	}{
		{"pypi.org", 443, true},
		{"pypi.org", 80, true},
		{"pypi.org", 22, false},
		{"www.pypi.org", 443, false},
		{"notpypi.org", 443, false},
		{"pypi.org.evil.example", 443, false},
		{"a.files.example", 8443, true},
		{"a.b.files.example", 8443, true},
		{"files.example", 8443, false},
		{"xfiles.example", 8443, false},
		{"a.files.example", 443, false},
		{"1.1.1.1", 443, true},
		{"1.1.1.2", 443, false},
		{"[2606:4700::1111]", 443, true},
	} {
		if _, got := p.Allows(tc.host, tc.port); got != tc.want {
			t.Errorf("%s:%d: %v, want %v", tc.host, tc.port, got, tc.want)
		}
	}
}

func TestNetworksThatAreRefused(t *testing.T) {
	allow := []string{"a.example"}
	for name, n := range map[string]run.Network{
		"a mode that there is not":     {Mode: "all"},
		"settings without a mode":      {Allow: allow},
		"limits without a network":     {Mode: run.NetworkNone, MaxBytes: 1},
		"nothing allowed":              {Mode: run.NetworkAllow},
		"a negative limit":             {Mode: run.NetworkAllow, Allow: allow, BytesPerSecond: -1},
		"more connections than can be": {Mode: run.NetworkAllow, Allow: allow, MaxConnections: MaxConnections + 1},
		"too many rules":               {Mode: run.NetworkAllow, Allow: slices.Repeat(allow, maxRules+1)},
		"one bad rule":                 {Mode: run.NetworkAllow, Allow: []string{"a.example", "*"}},
	} {
		if p, err := Compile(n); err == nil || p.Open() {
			t.Errorf("%s: %v, %v", name, p, err)
		}
	}
	for _, n := range []run.Network{{}, {Mode: run.NetworkNone}} {
		if p, err := Compile(n); err != nil || p.Open() {
			t.Errorf("%v: %v, %v; nothing asked for is nothing allowed", n, p, err)
		}
	}
}

func TestCeilings(t *testing.T) {
	ceiling := compile(t, "*.example.org", "pypi.org", "example.org:80")
	for _, tc := range []struct {
		allow  []string
		within bool
		left   string
	}{
		{[]string{"a.example.org"}, true, "a.example.org:443"},
		{[]string{"*.b.example.org"}, true, "*.b.example.org:443"},
		{[]string{"*.example.org"}, true, "*.example.org:443"},
		{[]string{"example.org"}, false, ""},
		{[]string{"a.example.org:80"}, false, ""},
		{[]string{"pypi.org", "npmjs.org"}, false, "pypi.org:443"},
		{[]string{"*.xexample.org"}, false, ""},
		{[]string{"*.pypi.org"}, false, ""},
	} {
		p := compile(t, tc.allow...)
		if err := p.Within(ceiling); (err == nil) != tc.within {
			t.Errorf("%v: %v, want it within: %v", tc.allow, err, tc.within)
		}
		both := p.Intersect(ceiling)
		var left []string
		for _, r := range both.Rules {
			left = append(left, r.String())
		}
		if got := strings.Join(left, " "); got != tc.left {
			t.Errorf("%v: %q is left, want %q", tc.allow, got, tc.left)
		}
		if err := both.Within(ceiling); err != nil {
			t.Errorf("%v: what both allow is not within: %v", tc.allow, err)
		}
	}
	if err := compile(t, "pypi.org").Within(Policy{}); err == nil {
		t.Error("without a ceiling something may be reached")
	}
	slow := ceiling
	slow.BytesPerSecond = 2000
	if err := compile(t, "pypi.org").Within(slow); err == nil {
		t.Error("no rate is within a rate")
	}
	if got := compile(t, "pypi.org").Intersect(slow).BytesPerSecond; got != 2000 {
		t.Errorf("%d bytes a second are left, want 2000", got)
	}
}

func TestFile(t *testing.T) {
	f, err := Parse(strings.NewReader("preset a x.example # why\npreset a *.y.example:80\n\nmirror M.corp.example. 10.1.0.0/16 fd00:1::/32\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := f.Preset("a"); err != nil || strings.Join(got, " ") != "x.example:443 *.y.example:80" {
		t.Errorf("preset a is %v, %v", got, err)
	}
	if got, err := f.Preset("b"); err == nil {
		t.Errorf("preset b is %v", got)
	}
	if got := f.Networks("m.corp.example"); len(got) != 2 || got[0] != netip.MustParsePrefix("10.1.0.0/16") {
		t.Errorf("the mirror may lead to %v", got)
	}
	if got := f.Networks("x.m.corp.example"); got != nil {
		t.Errorf("a name below the mirror may lead to %v", got)
	}
	for _, text := range []string{
		"preset a", "preset", "allow x.example", "mirror m.example", "mirror *.m.example 10.0.0.0/8", "mirror m.example 10.1.2.3/8",
		"mirror m.example 10.1.2.3", "preset a *", "preset a " + strings.Repeat("x", maxLine), strings.Repeat("#\n", maxFile),
	} {
		if _, err := Parse(strings.NewReader(text)); err == nil {
			t.Errorf("%.40q is read", text)
		}
	}
}

func TestThePresetsThatAreShipped(t *testing.T) {
	f, err := Open(t.TempDir() + "/none")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range f.Presets() {
		servers, err := f.Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		compile(t, servers...)
	}
	if got := strings.Join(f.Presets(), " "); got != "debian git go node python rust" {
		t.Errorf("presets are %s", got)
	}
}

// Everything that is allowed by what is left of two policies, both allow.
func FuzzIntersect(f *testing.F) {
	f.Add("*.a.example", "b.a.example", "c.b.a.example")
	f.Add("a.example:80", "*.a.example", "1.1.1.1")
	f.Fuzz(func(t *testing.T, left, right, host string) {
		l, errL := Compile(run.Network{Mode: run.NetworkAllow, Allow: strings.Fields(left)})
		r, errR := Compile(run.Network{Mode: run.NetworkAllow, Allow: strings.Fields(right)})
		asked, err := ParseRule(host)
		if errL != nil || errR != nil || err != nil || asked.below {
			return
		}
		if again, err := ParseRule(asked.String()); err != nil || again != asked {
			t.Errorf("%q is %s, and that is %s, %v", host, asked, again, err)
		}
		_, inL := l.Allows(asked.host, asked.port)
		_, inR := r.Allows(asked.host, asked.port)
		if _, inBoth := l.Intersect(r).Allows(asked.host, asked.port); inBoth != (inL && inR) {
			t.Errorf("%s: %v by %q, %v by %q, %v by both", asked, inL, left, inR, right, inBoth)
		}
		if l.Within(r) == nil && inL && !inR {
			t.Errorf("%q is within %q, which does not allow %s", left, right, asked)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add(builtIn)
	f.Add("mirror m.example 10.1.0.0/16\npreset a *.b.example:1")
	f.Fuzz(func(t *testing.T, text string) {
		file, err := Parse(strings.NewReader(text))
		if err != nil {
			return
		}
		for _, name := range file.Presets() {
			servers, _ := file.Preset(name)
			for _, s := range servers {
				if _, err := ParseRule(s); err != nil {
					t.Errorf("preset %q has %q: %v", name, s, err)
				}
			}
		}
	})
}
