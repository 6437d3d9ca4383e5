// Package reason says why a repository could not be had. Each reason is a code
// that callers can act on and people can look up; the message that goes with it
// says what to do. Neither ever holds a credential or bytes of a repository.
package reason

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// Code is stable: it is in outcomes and in documents.
type Code string

const (
	BadSource        Code = "bad_source"
	HostRefused      Code = "host_refused"
	Moved            Code = "repository_moved"
	NotFound         Code = "repository_not_found"
	RefNotFound      Code = "ref_not_found"
	RefAmbiguous     Code = "ref_ambiguous"
	AppRefused       Code = "app_refused"
	ClockSkew        Code = "clock_skew"
	NotInstalled     Code = "app_not_installed"
	Suspended        Code = "app_suspended"
	PermissionDenied Code = "permission_denied"
	TokenRefused     Code = "token_refused"
	TokenExpired     Code = "token_expired"
	RateLimited      Code = "rate_limited"
	Unavailable      Code = "server_unavailable"
	TimedOut         Code = "timed_out"
	TooLarge         Code = "too_large"
	Malformed        Code = "malformed_repository"
	NoGit            Code = "no_git_in_image"
)

// About is a row of the table of reasons.
type About struct {
	Code Code
	// Means is for docs/checkout.md.
	Means string
	fault fault.Code
}

// Table has every reason.
func Table() []About {
	return []About{
		{BadSource, "the URL or the ref is not one that can be fetched; nothing was asked of any server", fault.Invalid},
		{HostRefused, "the server is at a private, local or metadata address, or sends to another server", fault.Denied},
		{Moved, "the server sends to another URL of its own in a way that is not followed, as for a repository that was renamed; name it by the URL it has now", fault.Invalid},
		{NotFound, "there is no such repository, or it is not public and nothing allows reading it", fault.NotFound},
		{RefNotFound, "the repository has no such branch, tag, ref or commit", fault.NotFound},
		{RefAmbiguous, "a branch and a tag have that name; a full ref tells them apart", fault.Invalid},
		{AppRefused, "GitHub does not accept the App's id or private key", fault.Denied},
		{ClockSkew, "GitHub refuses the App's signature because the clocks differ", fault.Denied},
		{NotInstalled, "the GitHub App is not installed where the repository is, or there is no such repository", fault.NotFound},
		{Suspended, "the App's installation is suspended", fault.Denied},
		{PermissionDenied, "the installation does not give read access to the repository's contents", fault.Denied},
		{TokenRefused, "the token that GitHub made is not what was asked for and was not used, or the server does not accept it", fault.Denied},
		{TokenExpired, "the token that reads the repository expired before the fetch was over", fault.Unavailable},
		{RateLimited, "the server asks for a pause; the message says until when, if the server does", fault.Exhausted},
		{Unavailable, "the server cannot be reached, is not who its certificate should say, or fails", fault.Unavailable},
		{TimedOut, "the time limit of the checkout passed", fault.Unavailable},
		{TooLarge, "more than the limit for a fetch, or more than the sandbox's disk, inodes or memory hold", fault.Exhausted},
		{Malformed, "what the server sent is not a sound repository, or not what was asked for", fault.Invalid},
		{NoGit, "the root image has no git, which checks the files out inside the sandbox", fault.Invalid},
	}
}

// Error is a checkout that failed. Its message is fit for the job's owner.
type Error struct {
	Code  Code
	fault *fault.Error
	// cause is found in the chain even where its text adds nothing.
	cause error
}

// New makes an error whose whole text is fit for the job's owner.
func New(code Code, format string, args ...any) *Error {
	return Wrap(code, nil, format, args...)
}

// Wrap makes an error around a cause, which is for the operator.
func Wrap(code Code, cause error, format string, args ...any) *Error {
	return build(code, prefix+fmt.Sprintf(format, args...), cause)
}

// build makes an error that is one line and says each thing once.
func build(code Code, message string, cause error) *Error {
	message = oneLine(message)
	f := &fault.Error{Code: fault.Internal, Message: message}
	if cause != nil {
		f.Cause = detail(message, cause)
	}
	for _, a := range Table() {
		if a.Code == code {
			f.Code = a.fault
		}
	}
	return &Error{Code: code, fault: f, cause: cause}
}

func (e *Error) Error() string { return e.fault.Error() }

// Unwrap gives callers that know faults one.
func (e *Error) Unwrap() []error {
	if e.cause == nil {
		return []error{e.fault}
	}
	return []error{e.fault, e.cause}
}

// Message is the text without the cause.
func (e *Error) Message() string { return e.fault.Message }

// Outcome is that of a job or a run whose repository it was.
func (e *Error) Outcome() run.Outcome {
	return run.Outcome{Kind: run.CheckoutFailed, Evidence: string(e.Code) + ": " + e.fault.Message}
}

// Of returns the reason in err's chain; "" if there is none, which means that
// the failure is not one of the checkout.
func Of(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// Clean makes what a server or a program said fit for a message: one line,
// without control characters, bounded.
func Clean(s string) string {
	const most = 300
	var b strings.Builder
	for _, c := range s {
		if b.Len() >= most {
			b.WriteString("…")
			break
		}
		if c == utf8.RuneError || unicode.IsControl(c) || !unicode.IsPrint(c) {
			c = ' '
		}
		b.WriteRune(c)
	}
	return strings.Join(strings.Fields(b.String()), " ")
}
