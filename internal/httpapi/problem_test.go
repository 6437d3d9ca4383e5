package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/tenant"
)

func TestProblems(t *testing.T) {
	r := newRig(t)
	_, key := r.tenant("a", tenant.Quota{}, tenant.JobsRead, tenant.JobsWrite)
	const job = `{"source":{"kind":"none"},"commands":[{"argv":["true"]}]}`
	with := func(field string) string { return job[:len(job)-1] + "," + field + "}" }
	for name, tc := range map[string]struct {
		method, path string
		body         any
		headers      []header
		code         api.ProblemCode
		says         string
	}{
		"no such path":         {"GET", "/v2", nil, nil, api.ProblemCodeNotFound, "no such path"},
		"root":                 {"GET", "/", nil, nil, api.ProblemCodeNotFound, "no such path"},
		"trailing slash":       {"GET", "/v1/jobs/", nil, nil, api.ProblemCodeNotFound, ""},
		"two slashes":          {"GET", "//v1/jobs", nil, nil, api.ProblemCodeNotFound, ""},
		"dots":                 {"GET", "/v1/jobs/../jobs", nil, nil, api.ProblemCodeNotFound, ""},
		"escaped slash":        {"GET", "/v1%2Fjobs", nil, nil, api.ProblemCodeNotFound, ""},
		"other method":         {"DELETE", "/v1/jobs", nil, nil, api.ProblemCodeMethodNotAllowed, ""},
		"made up method":       {"BREW", "/v1/jobs", nil, nil, api.ProblemCodeMethodNotAllowed, ""},
		"no page":              {"GET", "/v1/jobs?limit=0", nil, nil, api.ProblemCodeInvalid, "not from 1 to 500"},
		"less than no page":    {"GET", "/v1/jobs?limit=-1", nil, nil, api.ProblemCodeInvalid, "not from 1 to 500"},
		"a page of too many":   {"GET", "/v1/jobs?limit=501", nil, nil, api.ProblemCodeInvalid, "not from 1 to 500"},
		"a negative place":     {"GET", "/v1/jobs/x/log?after=-1", nil, nil, api.ProblemCodeInvalid, "less than 0"},
		"no number":            {"GET", "/v1/jobs?limit=x", nil, nil, api.ProblemCodeInvalid, ""},
		"no id":                {"GET", "/v1/jobs/x", nil, nil, api.ProblemCodeNotFound, `no job "x"`},
		"id in capitals":       {"GET", "/v1/jobs/01938C5E-7A1B-7C3D-9E2F-5A6B7C8D9E0F", nil, nil, api.ProblemCodeNotFound, ""},
		"wrong type":           {"POST", "/v1/jobs", []byte(job), nil, api.ProblemCodeUnsupportedMediaType, "application/json"},
		"wrong type of upload": {"POST", "/v1/uploads", "{}", nil, api.ProblemCodeUnsupportedMediaType, "application/x-tar"},
		"wrong charset":        {"POST", "/v1/jobs", job, []header{{"Content-Type", "application/json; charset=latin1"}}, api.ProblemCodeUnsupportedMediaType, "UTF-8"},
		"compressed":           {"POST", "/v1/jobs", job, []header{{"Content-Encoding", "gzip"}}, api.ProblemCodeUnsupportedMediaType, "compressed"},
		"body where none is":   {"POST", "/v1/jobs/x/cancel", "{}", nil, api.ProblemCodeInvalid, "takes no body"},
		"not acceptable":       {"GET", "/v1/jobs", nil, []header{{"Accept", "text/html"}}, api.ProblemCodeNotAcceptable, "application/json"},
		"refused weight":       {"GET", "/v1/jobs", nil, []header{{"Accept", "application/json;q=0"}}, api.ProblemCodeNotAcceptable, ""},
		"no body":              {"POST", "/v1/jobs", "", nil, api.ProblemCodeInvalid, "ends too early"},
		"cut":                  {"POST", "/v1/jobs", job[:20], nil, api.ProblemCodeInvalid, "ends too early"},
		"malformed":            {"POST", "/v1/jobs", "{]", nil, api.ProblemCodeInvalid, ""},
		"more after it":        {"POST", "/v1/jobs", job + job, nil, api.ProblemCodeInvalid, "more after"},
		"unknown field":        {"POST", "/v1/jobs", with(`"privileged":true`), nil, api.ProblemCodeInvalid, `unknown field "privileged"`},
		"unknown inner field":  {"POST", "/v1/jobs", with(`"limits":{"gpu":1}`), nil, api.ProblemCodeInvalid, `unknown field "gpu"`},
		"twice":                {"POST", "/v1/jobs", with(`"source":{"kind":"fixture"}`), nil, api.ProblemCodeInvalid, `"source" occurs twice`},
		"other capitals":       {"POST", "/v1/jobs", `{"Source":{"kind":"fixture"},"commands":[{"argv":["true"]}]}`, nil, api.ProblemCodeInvalid, `unknown field "Source"`},
		"twice, in capitals":   {"POST", "/v1/jobs", with(`"SOURCE":{"kind":"fixture"}`), nil, api.ProblemCodeInvalid, `unknown field "SOURCE"`},
		"twice, escaped":       {"POST", "/v1/jobs", with(`"\u0073ource":{"kind":"fixture"}`), nil, api.ProblemCodeInvalid, `"source" occurs twice`},
		"null":                 {"POST", "/v1/jobs", with(`"image":null`), nil, api.ProblemCodeInvalid, "null"},
		"wrong kind":           {"POST", "/v1/jobs", with(`"timeout_ms":"1"`), nil, api.ProblemCodeInvalid, "timeout_ms"},
		"fraction":             {"POST", "/v1/jobs", with(`"timeout_ms":1.5`), nil, api.ProblemCodeInvalid, "timeout_ms"},
		"overflow":             {"POST", "/v1/jobs", with(`"timeout_ms":9223372036854775807`), nil, api.ProblemCodeInvalid, "timeout_ms"},
		"not UTF-8":            {"POST", "/v1/jobs", with("\"image\":\"\xff\""), nil, api.ProblemCodeInvalid, "UTF-8"},
		"half a surrogate":     {"POST", "/v1/jobs", with(`"image":"\ud800"`), nil, api.ProblemCodeInvalid, "surrogate"},
		"deep":                 {"POST", "/v1/jobs", with(`"x":` + strings.Repeat("[", 100_000)), nil, api.ProblemCodeInvalid, "deeper"},
		"large":                {"POST", "/v1/jobs", with(`"image":"` + strings.Repeat("x", jobBody) + `"`), nil, api.ProblemCodeTooLarge, "larger than"},
		"a shell":              {"POST", "/v1/jobs", strings.ReplaceAll(job, `"true"`, `"env","sh"`), nil, api.ProblemCodeDenied, "shells"},
		"climbing":             {"POST", "/v1/jobs", strings.ReplaceAll(job, `["true"]`, `["true"],"dir":"../x"`), nil, api.ProblemCodeInvalid, "'..'"},
		"array":                {"POST", "/v1/jobs", "[]", nil, api.ProblemCodeInvalid, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := r.send(tc.method, tc.path, key, tc.body, tc.headers...)
			p := a.problem(t)
			if p.Code != tc.code || !strings.Contains(p.Detail, tc.says) {
				t.Errorf("got %+v, want %s and %q", p, tc.code, tc.says)
			}
			if p.Code == api.ProblemCodeMethodNotAllowed && a.header.Get("Allow") != "GET, HEAD, POST" {
				t.Errorf("Allow: %q", a.header.Get("Allow"))
			}
		})
	}
}

func TestAuthorizationHeaders(t *testing.T) {
	r := newRig(t)
	_, key := r.tenant("a", tenant.Quota{}, tenant.JobsRead)
	for value, want := range map[string]int{
		"Bearer " + key: 200, "bearer " + key: 200, "BEARER  " + key: 200, key: 401, "Basic " + key: 401,
		"Bearer": 401, "Bearer " + key + " " + key: 401, "Bearer " + strings.ToUpper(key): 401,
	} {
		a := r.send("GET", "/v1/whoami", "", nil, header{"Authorization", value})
		if a.status != want {
			t.Errorf("%.12s…: status %d, want %d", value, a.status, want)
		}
		if want == 401 && (a.problem(t).Code != api.ProblemCodeUnauthenticated || !strings.HasPrefix(a.header.Get("WWW-Authenticate"), "Bearer")) {
			t.Errorf("%.12s…: %v", value, a.header)
		}
	}
}

func TestRequestsPerMinute(t *testing.T) {
	r := newRig(t)
	_, key := r.tenant("a", tenant.Quota{RequestsPerMinute: 12}, tenant.JobsRead)
	_, other := r.tenant("b", tenant.Quota{RequestsPerMinute: 12}, tenant.JobsRead)
	var a answer
	ok := 0
	for range 10 {
		if a = r.send("GET", "/v1/whoami", key, nil); a.status != 200 {
			break
		}
		ok++
	}
	p := a.problem(t)
	if ok != 2 || p.Code != api.ProblemCodeRateLimited || a.status != 429 || a.header.Get("Retry-After") != "5" {
		t.Errorf("%d were served; then %d %+v, Retry-After %q", ok, a.status, p, a.header.Get("Retry-After"))
	}
	if a.header.Get("RateLimit-Policy") != `"requests";q=12;w=60` || !strings.HasPrefix(a.header.Get("RateLimit"), `"requests";r=0;t=`) {
		t.Errorf("RateLimit-Policy %q, RateLimit %q", a.header.Get("RateLimit-Policy"), a.header.Get("RateLimit"))
	}
	if a := r.send("GET", "/v1/whoami", other, nil); a.status != 200 {
		t.Errorf("another tenant: %d", a.status)
	}
}

func TestGuessing(t *testing.T) {
	r := newRig(t)
	_, key := r.tenant("a", tenant.Quota{}, tenant.JobsRead)
	limited := 0
	for range 40 {
		a := r.send("GET", "/v1/whoami", "adk_x", nil)
		if a.status == 429 {
			limited++
			if a.problem(t).Code != api.ProblemCodeRateLimited || a.header.Get("Retry-After") == "" {
				t.Errorf("%v", a.header)
			}
		}
	}
	if limited < 25 {
		t.Errorf("%d of 40 were limited", limited)
	}
	if a := r.send("GET", "/v1/whoami", key, nil); a.status != 200 {
		t.Errorf("a valid key from the same address: %d", a.status)
	}
	entries, err := r.control.AuditLog(t.Context(), "", 0, 500)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) > 30 {
		t.Errorf("guessing made %d entries in the audit log", len(entries))
	}
}

func TestWhatErrorsTell(t *testing.T) {
	secret := errors.New("postgres://user:password@host")
	for _, tc := range []struct {
		err  error
		code api.ProblemCode
	}{
		{secret, api.ProblemCodeInternal},
		{fault.Wrap(fault.Internal, secret, "cannot read password"), api.ProblemCodeInternal},
		{fault.Wrap(fault.Unavailable, secret, "the record is away"), api.ProblemCodeUnavailable},
		{fmt.Errorf("x: %w", fault.Wrap(fault.NotFound, secret, "there is no job")), api.ProblemCodeNotFound},
		{fault.New("new_code", "password"), api.ProblemCodeInternal},
		{context.DeadlineExceeded, api.ProblemCodeUnavailable},
		{&http.MaxBytesError{Limit: 1}, api.ProblemCodeTooLarge},
	} {
		got := describe(tc.err)
		if got.code != tc.code || strings.Contains(got.detail, "password") {
			t.Errorf("%v: got %+v", tc.err, got)
		}
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string]string{
		"a/b.txt":       `attachment; filename="b.txt"; filename*=UTF-8''b.txt`,
		"a b":           `attachment; filename="a b"; filename*=UTF-8''a%20b`,
		"x\r\nSet: y":   `attachment; filename="x__Set: y"; filename*=UTF-8''x%0D%0ASet%3A%20y`,
		`"; filename=x`: `attachment; filename="__ filename=x"; filename*=UTF-8''%22%3B%20filename%3Dx`,
	} {
		if got := disposition(name); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
}
