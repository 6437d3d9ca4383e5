package main

import (
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	passing = `{"Action":"run","Package":"m/a","Test":"TestOne"}
{"Action":"output","Package":"m/a","Test":"TestOne","Output":"chatter\n"}
{"Action":"pass","Package":"m/a","Test":"TestOne"}
{"Action":"output","Package":"m/a","Output":"ok  \tm/a\t0.1s\n"}
{"Action":"pass","Package":"m/a"}
`
	skipping = `{"Action":"output","Package":"m/a","Test":"TestReal/boot","Output":"=== RUN   TestReal/boot\n"}
{"Action":"output","Package":"m/a","Test":"TestReal/boot","Output":"    a_test.go:9: needs root\n"}
{"Action":"output","Package":"m/a","Test":"TestReal/boot","Output":"--- SKIP: TestReal/boot (0.00s)\n"}
{"Action":"skip","Package":"m/a","Test":"TestReal/boot"}
`
	declaring = `{"Action":"output","Package":"m/a","Test":"TestReal/bomb","Output":"    a_test.go:9: not enforceable here: memory limit\n"}
{"Action":"skip","Package":"m/a","Test":"TestReal/bomb"}
{"Action":"output","Package":"m/a","Test":"TestReal/fill","Output":"    a_test.go:9: in part not enforceable here: counting\n"}
{"Action":"pass","Package":"m/a","Test":"TestReal/fill"}
`
	failing = `{"Action":"output","Package":"m/a","Test":"TestBad","Output":"    a_test.go:5: got 1\n"}
{"Action":"fail","Package":"m/a","Test":"TestBad"}
{"Action":"output","Package":"m/a","Output":"FAIL\n"}
{"Action":"fail","Package":"m/a"}
`
	panicking = `{"Action":"output","Package":"m/a","Test":"TestOpen","Output":"panic: no\n"}
{"Action":"output","Package":"m/a","Output":"FAIL\tm/a\t0.1s\n"}
{"Action":"fail","Package":"m/a"}
`
)

// What failed is kept in short, however much it printed, and in valid UTF-8.
func TestFailuresAreKeptInShort(t *testing.T) {
	var out strings.Builder
	r := newReport(&out)
	long := "begin" + strings.Repeat("ü", 1<<20) + "end"
	r.fail("m/a TestLong", long)
	r.fail("m/a TestShort", "short\n")
	kept := r.failures.String()
	if out.String() != long+"short\n" {
		t.Error("what failed is not printed whole")
	}
	for _, want := range []string{"FAILED: m/a TestLong\nbegin", "end", "FAILED: m/a TestShort\nshort\n"} {
		if !strings.Contains(kept, want) {
			t.Errorf("no %q in what is kept", want)
		}
	}
	if len(kept) > 2*enough || !utf8.ValidString(kept) {
		t.Errorf("kept %d bytes, valid: %v", len(kept), utf8.ValidString(kept))
	}
}

func TestReport(t *testing.T) {
	allowed, err := parseAllowed("f", "# why\na TestReal/... has no such part here\n")
	if err != nil {
		t.Fatal(err)
	}
	declarations, err := parseAllowed("f", "a TestReal/... not enforceable here: pids limit, memory limit\n")
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		events  string
		strict  bool
		allowed []allowance
		says    []string
		silent  string
		err     string
	}{
		"pass":            {events: passing, strict: true, says: []string{"ok  \tm/a", "1 passed"}, silent: "chatter"},
		"skip":            {events: passing + skipping, says: []string{"skipped: m/a TestReal/boot: a_test.go:9: needs root", "1 skipped"}},
		"skip, strict":    {events: passing + skipping, strict: true, says: []string{"MUST NOT SKIP: m/a TestReal/boot"}, err: "1 cases that must run"},
		"skip, allowed":   {events: passing + skipping, strict: true, allowed: allowed, says: []string{"skip allowed (has no such part here)"}},
		"declared":        {events: passing + declaring, strict: true, allowed: declarations, says: []string{"not enforceable here: memory limit: 1 cases, and parts of 0", "not enforceable here: counting: 0 cases, and parts of 1", "1 skipped"}},
		"undeclared":      {events: passing + strings.ReplaceAll(declaring, "memory limit", "network"), strict: true, allowed: declarations, says: []string{"MUST NOT SKIP: m/a TestReal/bomb"}, err: "1 cases that must run"},
		"undeclared need": {events: passing + skipping, strict: true, allowed: declarations, says: []string{"MUST NOT SKIP: m/a TestReal/boot"}, err: "1 cases that must run"},
		"fail":            {events: passing + failing, says: []string{"got 1", "1 failed"}, err: "1 tests failed"},
		"panic":           {events: passing + panicking, says: []string{"panic: no", "FAIL\tm/a"}},
		"nothing":         {err: "no test ran"},
		"not from a test": {events: "stray\n" + passing, says: []string{"stray\n"}},
		"does not build":  {events: `{"Action":"build-output","Output":"a.go:1: undefined\n"}` + "\n", says: []string{"undefined"}, err: "no test ran"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			r := newReport(&out)
			if err := r.read(strings.NewReader(tc.events)); err != nil {
				t.Fatal(err)
			}
			err := r.finish(tc.strict, tc.allowed)
			if (err == nil) != (tc.err == "") || (err != nil && !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("got error %v, want %q", err, tc.err)
			}
			if fails := tc.err != "" && tc.events != "" || name == "panic"; fails != (r.failures.Len() > 0) {
				t.Errorf("noted as failed: %q", r.failures.String())
			}
			for _, want := range tc.says {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in:\n%s", want, out.String())
				}
			}
			if tc.silent != "" && strings.Contains(out.String(), tc.silent) {
				t.Errorf("%q in:\n%s", tc.silent, out.String())
			}
		})
	}
}

func TestAllowancesNeedReasons(t *testing.T) {
	for _, text := range []string{"a", "a TestReal", "a TestReal flaky"} {
		if _, err := parseAllowed("f", text); err == nil || !strings.Contains(err.Error(), "f:1") {
			t.Errorf("%q: got %v", text, err)
		}
	}
}

func TestAllowancesAreNarrow(t *testing.T) {
	one := []allowance{{Package: "internal/a", Test: "TestReal"}}
	all := []allowance{{Package: "internal/a", Test: "TestReal/..."}}
	for name, tc := range map[string]struct {
		allowed []allowance
		test    test
		want    bool
	}{
		"the test":        {one, test{"m/internal/a", "TestReal"}, true},
		"its case":        {one, test{"m/internal/a", "TestReal/boot"}, false},
		"all its cases":   {all, test{"m/internal/a", "TestReal/boot"}, true},
		"a longer name":   {all, test{"m/internal/a", "TestRealBoot"}, false},
		"another package": {all, test{"m/internal/aa", "TestReal"}, false},
		"a package below": {all, test{"m/internal/a/b", "TestReal"}, false},
	} {
		if _, got := find(tc.allowed, tc.test, ""); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}
