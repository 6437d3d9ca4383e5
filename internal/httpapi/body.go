package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/agentdock/agentdock/api"
)

// maxDepth is how deep a body may nest. The contract's deepest is 4.
const maxDepth = 16

// checkType refuses a body that is not of the one type the route takes.
func checkType(rt *route, r *http.Request) error {
	if rt.takes == "" {
		if r.ContentLength != 0 {
			return refuse(api.ProblemCodeInvalid, "this request takes no body")
		}
		return nil
	}
	got, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || got != rt.takes {
		return refuse(api.ProblemCodeUnsupportedMediaType, "the body must be "+rt.takes)
	}
	if charset := params["charset"]; charset != "" && !strings.EqualFold(charset, "utf-8") {
		return refuse(api.ProblemCodeUnsupportedMediaType, "the body must be UTF-8")
	}
	if r.Header.Get("Content-Encoding") != "" {
		return refuse(api.ProblemCodeUnsupportedMediaType, "the body must not be compressed (Content-Encoding)")
	}
	return nil
}

// readJSON reads a body as the contract has it and puts what it read back, for
// the generated code, which is less strict.
func readJSON(rt *route, w http.ResponseWriter, r *http.Request) error {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, rt.maxBody))
	if err != nil {
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			return err
		}
		return refuse(api.ProblemCodeInvalid, "cannot read the body to its end")
	}
	if err := checkJSON(text); err != nil {
		return refuse(api.ProblemCodeInvalid, "cannot read the body: "+err.Error())
	}
	strict := json.NewDecoder(bytes.NewReader(text))
	strict.DisallowUnknownFields()
	if err := strict.Decode(rt.body()); err != nil {
		return refuse(api.ProblemCodeInvalid, "cannot read the body: "+strings.TrimPrefix(err.Error(), "json: "))
	}
	r.Body = io.NopCloser(bytes.NewReader(text))
	return nil
}

var escapedReplacement = regexp.MustCompile(`(?i)\\ufffd`)

// checkJSON refuses what the decoder would read in silence as something else
// than was written: text that is not UTF-8, half of a surrogate pair, a name
// that occurs twice, a null, and more after the end.
func checkJSON(text []byte) error {
	if !utf8.Valid(text) {
		return errors.New("it is not UTF-8")
	}
	in := json.NewDecoder(bytes.NewReader(text))
	c := &jsonCheck{in: in}
	if err := c.value(0); err != nil {
		return err
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more after its end")
	}
	written := bytes.Count(text, []byte("\uFFFD")) + len(escapedReplacement.FindAll(text, -1))
	if c.replaced > written {
		return errors.New("it holds half of a surrogate pair")
	}
	return nil
}

type jsonCheck struct {
	in       *json.Decoder
	replaced int
}

func (c *jsonCheck) value(depth int) error {
	token, err := c.token()
	if err != nil {
		return err
	}
	if depth > maxDepth {
		return fmt.Errorf("it nests deeper than %d", maxDepth)
	}
	switch token {
	case nil:
		return errors.New("it holds a null; leave the field out")
	case json.Delim('['):
		for c.in.More() {
			if err := c.value(depth + 1); err != nil {
				return err
			}
		}
		_, err = c.token()
	case json.Delim('{'):
		seen := map[string]bool{}
		for c.in.More() {
			key, err := c.token()
			if err != nil {
				return err
			}
			name, _ := key.(string)
			if seen[name] {
				return fmt.Errorf("the name %q occurs twice", clip(name))
			}
			seen[name] = true
			if err := c.value(depth + 1); err != nil {
				return err
			}
		}
		_, err = c.token()
	}
	return err
}

func (c *jsonCheck) token() (json.Token, error) {
	token, err := c.in.Token()
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, errors.New("it ends too early")
	}
	if err != nil {
		return nil, err
	}
	if s, ok := token.(string); ok {
		c.replaced += strings.Count(s, "\uFFFD")
	}
	return token, nil
}

// clip keeps hostile names in messages short.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
