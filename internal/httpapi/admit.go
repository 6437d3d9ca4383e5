package httpapi

import (
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/internal/control"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/tenant"
)

// admitLocal bounds the time for a request, and keeps web pages out where nobody
// is asked for a key.
func (a *API) admitLocal(x *exchange) error {
	conn := http.NewResponseController(x.w)
	// What is not read within this time is not waited for, not even to throw
	// it away after a refusal.
	_ = conn.SetReadDeadline(x.begin.Add(a.cfg.Timing.Body))
	_ = conn.SetWriteDeadline(x.begin.Add(a.cfg.Timing.Body + a.cfg.Timing.Answer))
	if a.cfg.Auth == AuthDev {
		if err := checkLocal(x.r); err != nil {
			a.refused(x, "request", err)
			return err
		}
	}
	return nil
}

// admit decides about a request by the table of routes, before anything of it
// is done: whether there is such a route, who asks, whether he may, whether it
// is too often, and whether it is well formed.
func (a *API) admit(x *exchange) error {
	conn := http.NewResponseController(x.w)
	if x.r.URL.RawPath != "" {
		return notFound() // an escape that matters: no path of ours has one
	}
	rt, others := match(x.r.Method, x.r.URL.Path)
	if rt == nil {
		if len(others) == 0 {
			return notFound()
		}
		r := refuse(api.ProblemCodeMethodNotAllowed, "this path has no such method")
		r.header = http.Header{"Allow": {strings.Join(others, ", ")}}
		return r
	}
	x.route = rt
	x.r.Method = rt.method // the server keeps what it was, and sends no body to HEAD
	if err := a.identify(x); err != nil {
		return err
	}
	for _, check := range []func() error{
		func() error { return checkQuery(rt, x.r) },
		func() error { return checkIdempotency(x.r) },
		func() error { return checkAccept(rt, x.r) },
		func() error { return checkType(rt, x.r) },
	} {
		if err := check(); err != nil {
			return err
		}
	}
	if rt.body != nil {
		if err := readJSON(rt, x.w, x.r); err != nil {
			return err
		}
	}
	if rt.pace == upload {
		x.r.Body = &steadyBody{ReadCloser: x.r.Body, x: x, conn: conn, timing: a.cfg.Timing}
		return nil
	}
	x.read = true
	// The body has been read; a deadline that passes later would end the
	// request's context.
	return ignoreUnsupported(conn.SetReadDeadline(time.Time{}))
}

func notFound() error { return refuse(api.ProblemCodeNotFound, "there is no such path") }

// identify finds out who asks and whether he may.
func (a *API) identify(x *exchange) error {
	rt := x.route
	if rt.access == public {
		return nil
	}
	principal, err := a.authenticate(x)
	x.caller.Principal = principal
	if err != nil {
		if code := fault.CodeOf(err); code == control.Unauthenticated || code == fault.Denied {
			if wait := a.strangers.take(addressOf(x.caller.Remote)); wait > 0 {
				a.metrics.refused.WithLabelValues("too_many_refusals").Inc()
				r := refuse(api.ProblemCodeRateLimited, "too many requests without a valid key came from this address")
				r.retry = wait
				return r
			}
			a.refused(x, rt.operation, err)
		}
		return err
	}
	if err := a.limit(x); err != nil {
		return err
	}
	if rt.access != anyKey && !principal.Has(tenant.Scope(rt.access)) {
		err := fault.New(fault.Denied, "the key lacks the scope %s", rt.access)
		a.refused(x, rt.operation, err)
		return err
	}
	return nil
}

// refused puts a refusal of access on record.
func (a *API) refused(x *exchange, action string, err error) {
	code := describe(err).code
	a.metrics.refused.WithLabelValues(string(code)).Inc()
	a.control.Refused(x.r.Context(), x.caller, "access."+action, fault.New(fault.Code(code), "refused"))
}

// authenticate says whose key came with the request.
func (a *API) authenticate(x *exchange) (tenant.Principal, error) {
	if a.cfg.Auth == AuthDev {
		return a.control.Developer(x.r.Context())
	}
	headers := x.r.Header.Values("Authorization")
	if len(headers) != 1 {
		return tenant.Principal{}, fault.New(control.Unauthenticated, "this request needs an API key, as Authorization: Bearer adk_…")
	}
	scheme, secret, _ := strings.Cut(headers[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return tenant.Principal{}, fault.New(control.Unauthenticated, "this request needs an API key, as Authorization: Bearer adk_…")
	}
	x.secret = strings.TrimSpace(secret)
	return a.control.Authenticate(x.r.Context(), x.secret)
}

// limit counts the request against its tenant's requests per minute.
func (a *API) limit(x *exchange) error {
	perMinute := x.caller.Tenant.Quota.RequestsPerMinute
	if perMinute == 0 {
		return nil
	}
	state := a.tenants.count(x.caller.Tenant.ID, perMinute)
	state.describe(x.w.Header())
	if state.wait > 0 {
		a.metrics.refused.WithLabelValues("rate_limited").Inc()
		r := refuse(api.ProblemCodeRateLimited, "this tenant has made too many requests within a minute")
		r.retry = state.wait
		return r
	}
	return nil
}

// checkQuery refuses parameters that would be ignored in silence.
func checkQuery(rt *route, r *http.Request) error {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return refuse(api.ProblemCodeInvalid, "the query is malformed")
	}
	for name, values := range query {
		many, known := rt.query[name]
		if !known {
			return refuse(api.ProblemCodeInvalid, "there is no parameter \""+clip(name)+"\" here")
		}
		if len(values) > 1 && !many {
			return refuse(api.ProblemCodeInvalid, "the parameter \""+name+"\" occurs twice")
		}
		if err := checkRange(name, values[0]); err != nil {
			return err
		}
	}
	return nil
}

// ranges are what numbers in a query may be, as the contract says. A test holds
// them against it.
var ranges = map[string]struct{ least, most int64 }{
	"limit":  {1, 500},
	"depth":  {1, 100},
	"mode":   {0, 0o777},
	"after":  {0, math.MaxInt64},
	"from":   {0, math.MaxInt64},
	"offset": {0, math.MaxInt64},
	"length": {0, math.MaxInt64},
}

// checkRange refuses a number that would be taken for another one in silence. What
// is no number is refused where it is read.
func checkRange(name, value string) error {
	r, bounded := ranges[name]
	n, err := strconv.ParseInt(value, 10, 64)
	if !bounded || err != nil || r.least <= n && n <= r.most {
		return nil
	}
	if r.most == math.MaxInt64 {
		return refuse(api.ProblemCodeInvalid, fmt.Sprintf("the parameter %q is less than %d", name, r.least))
	}
	return refuse(api.ProblemCodeInvalid, fmt.Sprintf("the parameter %q is not from %d to %d", name, r.least, r.most))
}

// checkIdempotency refuses an empty key: whoever sends one believes that the
// request may be repeated.
func checkIdempotency(r *http.Request) error {
	if keys, given := r.Header["Idempotency-Key"]; given && (len(keys) != 1 || keys[0] == "") {
		return refuse(api.ProblemCodeInvalid, "the Idempotency-Key is empty, or there are several")
	}
	return nil
}

// checkAccept refuses a request whose answer its caller could not take.
func checkAccept(rt *route, r *http.Request) error {
	if len(rt.gives) > 0 && accepted(rt.gives, r.Header.Values("Accept")) == "" {
		return refuse(api.ProblemCodeNotAcceptable, "the answer is "+strings.Join(rt.gives, " or "))
	}
	return nil
}

// accepted is the first of the media types that a caller takes, or "". Weights
// are not looked at but for those that are 0.
func accepted(gives, accept []string) string {
	if len(accept) == 0 {
		return gives[0]
	}
	for _, part := range strings.Split(strings.Join(accept, ","), ",") {
		want, params, err := mime.ParseMediaType(part)
		if err != nil || strings.Trim(params["q"], "0.") == "" && params["q"] != "" {
			continue
		}
		for _, g := range gives {
			kind, _, _ := strings.Cut(g, "/")
			if want == g || want == "*/*" || want == kind+"/*" {
				return g
			}
		}
	}
	return ""
}

// steadyBody is a body that may be long, as long as something comes.
type steadyBody struct {
	io.ReadCloser
	x      *exchange
	conn   *http.ResponseController
	timing Timing
}

func (b *steadyBody) Read(p []byte) (int, error) {
	now := time.Now()
	_ = b.conn.SetReadDeadline(now.Add(b.timing.Body))
	_ = b.conn.SetWriteDeadline(now.Add(b.timing.Body + b.timing.Answer))
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.x.read = true
		_ = b.conn.SetReadDeadline(time.Time{})
	}
	return n, err
}

// ignoreUnsupported: a recorder in a test has no connection.
func ignoreUnsupported(err error) error {
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}
