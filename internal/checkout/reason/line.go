package reason

import (
	"slices"
	"strings"
	"unicode"
)

// prefix begins the message of every Error, once.
const prefix = "cannot check out: "

// Line is err in one line, for where errors of others leave the checkout: a log
// and an outcome are read by lines. What err wraps is still found in it.
func Line(err error) error {
	if err == nil {
		return nil
	}
	text := oneLine(err.Error())
	if text == err.Error() {
		return err
	}
	return &line{text: text, of: []error{err}}
}

// Also adds what failed besides to why something failed. Both are said; the
// reason, and what callers act on, stays that of err.
func Also(err, besides error) error {
	if besides == nil {
		return err
	}
	if err == nil {
		return besides
	}
	e, ok := err.(*Error)
	if !ok {
		return &line{text: oneLine(err.Error() + "\n" + without(besides.Error(), prefix)), of: []error{err, besides}}
	}
	message := messageOf(besides)
	cause := &line{of: []error{e, besides}}
	if e.fault.Cause != nil {
		cause.text = e.fault.Cause.Error()
	}
	cause.text = oneLine(cause.text + "\n" + beyond(besides.Error(), message))
	return build(e.Code, e.fault.Message+"; besides, "+message, cause)
}

// messageOf is what the job's owner may read of an error.
func messageOf(err error) string {
	if m, ok := err.(interface{ Message() string }); ok {
		return without(m.Message(), prefix)
	}
	return without(err.Error(), prefix)
}

// line is a text in place of that of the errors it wraps.
type line struct {
	text string
	of   []error
}

func (l *line) Error() string   { return l.text }
func (l *line) Unwrap() []error { return l.of }

// detail is a cause as it stands behind a message: what the message has said is
// left out. There is none if nothing is left.
func detail(message string, cause error) error {
	switch text := beyond(cause.Error(), without(message, prefix)); text {
	case "":
		return nil
	case cause.Error():
		return cause
	default:
		return &line{text: text, of: []error{cause}}
	}
}

// beyond is the part of a text that a message has not said.
func beyond(text, message string) string {
	text = oneLine(without(text, prefix))
	return strings.TrimPrefix(strings.TrimPrefix(text, message), ": ")
}

func without(text, phrase string) string { return strings.ReplaceAll(text, phrase, "") }

// oneLine joins lines, each of which is said once, and leaves out what steers a
// terminal.
func oneLine(text string) string {
	var said []string
	for part := range strings.FieldsFuncSeq(text, func(c rune) bool { return c == '\n' || c == '\r' || c == '\u2028' || c == '\u2029' }) {
		part = strings.TrimSpace(strings.Map(func(c rune) rune {
			if unicode.IsControl(c) {
				return ' '
			}
			return c
		}, part))
		again := func(s string) bool { return s == part || strings.HasSuffix(s, ": "+part) }
		if part != "" && !slices.ContainsFunc(said, again) {
			said = append(said, part)
		}
	}
	return strings.Join(said, "; ")
}
