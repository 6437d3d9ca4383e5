package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/agentdock/agentdock/api"
)

// Error is what the service answered instead of what was asked for.
type Error struct {
	api.Problem
	// RetryAfter is when to come back, if the service said so.
	RetryAfter time.Duration
}

// Error is the service's own sentence with what finds the request in its log.
func (e *Error) Error() string {
	text := e.Detail
	if text == "" {
		text = e.Title
	}
	if e.RequestID == "" {
		return fmt.Sprintf("%s (%d)", text, e.Status)
	}
	return fmt.Sprintf("%s (%s, request %s)", text, e.Code, e.RequestID)
}

// CodeOf returns the code of an error of the service, and "" for others.
func CodeOf(err error) api.ProblemCode {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// Is reports whether err is an error of the service with that code.
func Is(err error, code api.ProblemCode) bool { return err != nil && CodeOf(err) == code }

// ErrInterrupted is wrapped by the errors of streams and downloads that were cut
// and could not be taken up again. It says nothing about the job.
var ErrInterrupted = errors.New("the connection was interrupted")

const maxProblem = 64 << 10

// problem reads the error in an answer. What does not come from the service, but
// from a proxy before it, has a status and nothing else.
func problem(res *http.Response) *Error {
	e := &Error{}
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if kind == "application/problem+json" {
		if err := json.NewDecoder(io.LimitReader(res.Body, maxProblem)).Decode(&e.Problem); err != nil {
			e.Problem = api.Problem{}
		}
	}
	e.Status = res.StatusCode
	if e.Title == "" {
		e.Title = http.StatusText(res.StatusCode)
	}
	if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && s >= 0 {
		e.RetryAfter = time.Duration(s) * time.Second
	}
	return e
}

// passing reports whether the same request may succeed later.
func passing(err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		return !errors.Is(err, errRedirected)
	}
	switch e.Status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	case http.StatusTooManyRequests:
		return e.Code == api.ProblemCodeRateLimited // a quota does not free itself
	}
	return false
}
