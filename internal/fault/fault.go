// Package fault gives errors a code a caller can act on and keeps the message
// a user may see apart from the detail an operator needs.
//
// A program that fails inside a sandbox is not a fault: it is an Outcome
// (package run).
package fault

import (
	"errors"
	"fmt"
)

// Code says what a caller can do about an error. Codes cross the wire; their
// names are stable.
type Code string

const (
	// Invalid: the request can never succeed as it stands; change it.
	Invalid Code = "invalid"
	// NotFound: the thing named does not exist (or is not the caller's).
	NotFound Code = "not_found"
	// Conflict: the name is taken by something different.
	Conflict Code = "conflict"
	// Denied: the caller may not do this.
	Denied Code = "denied"
	// Unsupported: this environment cannot give what was asked; it was
	// refused rather than ignored.
	Unsupported Code = "unsupported"
	// Exhausted: a limit or quota is reached; free something or wait.
	Exhausted Code = "exhausted"
	// Gone: the sandbox or exec existed and has ended.
	Gone Code = "gone"
	// Unavailable: the service cannot be reached or is shutting down; what
	// was going on there is unknown. Safe to retry idempotent calls.
	Unavailable Code = "unavailable"
	// Internal: a defect or a broken host.
	Internal Code = "internal"
)

// Error is an error with a code. Message is fit for the user; Cause is for
// the operator's log and is what Unwrap returns.
type Error struct {
	Code    Code
	Message string
	Cause   error
}

// Error is the full text, cause included: "cannot …: cause".
func (e *Error) Error() string {
	if e.Cause == nil {
		return e.Message
	}
	return e.Message + ": " + e.Cause.Error()
}

func (e *Error) Unwrap() error { return e.Cause }

// New makes a fault whose whole text is fit for the user.
func New(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Wrap makes a fault around a cause; the cause is operator detail.
func Wrap(code Code, cause error, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Cause: cause}
}

// CodeOf returns the code of the outermost fault in err's chain, Internal for
// any other error, and "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	var f *Error
	if errors.As(err, &f) {
		return f.Code
	}
	return Internal
}

// Is reports whether err carries code.
func Is(err error, code Code) bool { return err != nil && CodeOf(err) == code }

// Public is the text a user may see: the outermost fault's message, or a
// neutral sentence when err is not a fault.
func Public(err error) string {
	if err == nil {
		return ""
	}
	var f *Error
	if errors.As(err, &f) {
		return f.Message
	}
	return "internal error"
}
