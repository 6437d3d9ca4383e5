package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/internal/control"
	"github.com/agentdock/agentdock/internal/fault"
)

// statuses is what each code is in HTTP. Those of package fault come from the
// use cases, and all others from here.
var statuses = map[api.ProblemCode]int{
	api.ProblemCodeInvalid:              http.StatusBadRequest,
	api.ProblemCodeUnauthenticated:      http.StatusUnauthorized,
	api.ProblemCodeDenied:               http.StatusForbidden,
	api.ProblemCodeNotFound:             http.StatusNotFound,
	api.ProblemCodeMethodNotAllowed:     http.StatusMethodNotAllowed,
	api.ProblemCodeNotAcceptable:        http.StatusNotAcceptable,
	api.ProblemCodeConflict:             http.StatusConflict,
	api.ProblemCodeGone:                 http.StatusGone,
	api.ProblemCodeTooLarge:             http.StatusRequestEntityTooLarge,
	api.ProblemCodeUnsupportedMediaType: http.StatusUnsupportedMediaType,
	api.ProblemCodeUnsupported:          http.StatusUnprocessableEntity,
	api.ProblemCodeExhausted:            http.StatusTooManyRequests,
	api.ProblemCodeRateLimited:          http.StatusTooManyRequests,
	api.ProblemCodeInternal:             http.StatusInternalServerError,
	api.ProblemCodeUnavailable:          http.StatusServiceUnavailable,
}

// Pauses for callers who are told to come back, where nothing better is known.
const (
	exhaustedPause   = 10 * time.Second
	unavailablePause = 2 * time.Second
)

// lingering is how long a body that was refused is still read.
const lingering = 2 * time.Second

// refusal is an error that only this layer knows.
type refusal struct {
	code   api.ProblemCode
	detail string
	// retry is when to come back; header has more to say.
	retry  time.Duration
	header http.Header
}

func (r *refusal) Error() string { return r.detail }

func refuse(code api.ProblemCode, detail string) *refusal {
	return &refusal{code: code, detail: detail}
}

// describe says what a caller may know about an error.
func describe(err error) *refusal {
	var r *refusal
	var tooLarge *http.MaxBytesError
	var f *fault.Error
	switch {
	case errors.As(err, &r):
		return r
	case errors.As(err, &tooLarge):
		return refuse(api.ProblemCodeTooLarge, "the body is larger than "+strconv.FormatInt(tooLarge.Limit, 10)+" bytes")
	case errors.Is(err, control.ErrTooLarge):
		return refuse(api.ProblemCodeTooLarge, fault.Public(err))
	case errors.As(err, &f):
		code := api.ProblemCode(f.Code)
		if _, known := statuses[code]; !known {
			return refuse(api.ProblemCodeInternal, "internal error")
		}
		r := refuse(code, f.Message)
		switch code {
		case api.ProblemCodeExhausted:
			r.retry = exhaustedPause
		case api.ProblemCodeUnavailable:
			r.retry = unavailablePause
		case api.ProblemCodeInternal:
			// Messages of defects are for whoever operates this.
			r.detail = "internal error"
		}
		return r
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		r := refuse(api.ProblemCodeUnavailable, "the request took too long")
		r.retry = unavailablePause
		return r
	}
	return refuse(api.ProblemCodeInternal, "internal error")
}

// fail answers with a problem. When the answer has begun already, it is cut: a
// caller must not take half of one for a whole.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	x := exchangeOf(r.Context())
	x.err = err
	if x.w.status != 0 {
		panic(http.ErrAbortHandler)
	}
	p := describe(err)
	status := statuses[p.code]
	h := w.Header()
	for name, values := range p.header {
		h[name] = values
	}
	for _, name := range []string{"Content-Length", "Content-Disposition", "Repr-Digest", "Location", "Etag"} {
		h.Del(name)
	}
	if p.code == api.ProblemCodeUnauthenticated {
		h.Set("WWW-Authenticate", `Bearer realm="agentdock"`)
	}
	if p.retry > 0 {
		h.Set("Retry-After", seconds(p.retry))
	}
	if !x.read && r.ContentLength != 0 {
		// The server would read on before it answers. The short while lets a
		// client that is still sending see the answer.
		h.Set("Connection", "close")
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(lingering))
	}
	h.Set("Content-Type", problemType)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(api.Problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status,
		Code: p.code, Detail: strings.ToValidUTF8(p.detail, "\uFFFD"), RequestID: x.id,
	})
}

// seconds rounds up: a caller who comes back too early is refused again.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}

// badParameter is what the generated code calls for parameters it cannot read.
func (a *API) badParameter(w http.ResponseWriter, r *http.Request, err error) {
	detail := err.Error()
	if len(detail) > 300 {
		detail = strings.ToValidUTF8(detail[:300], "") + "…"
	}
	a.fail(w, r, refuse(api.ProblemCodeInvalid, "cannot read the request: "+detail))
}
