// Package strictjson refuses JSON that encoding/json reads in silence as
// something else than was written.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"
)

var escapedReplacement = regexp.MustCompile(`(?i)\\ufffd`)

// Check refuses text that is not one JSON value in UTF-8, and in it: half of a
// surrogate pair, a name that occurs twice, a null, and a nesting deeper than
// most. Its errors go on from "cannot read the body: " or the like.
func Check(text []byte, most int) error {
	if !utf8.Valid(text) {
		return errors.New("it is not UTF-8")
	}
	in := json.NewDecoder(bytes.NewReader(text))
	c := &check{in: in, most: most}
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

type check struct {
	in       *json.Decoder
	most     int
	replaced int
}

func (c *check) value(depth int) error {
	token, err := c.token()
	if err != nil {
		return err
	}
	if depth > c.most {
		return fmt.Errorf("it nests deeper than %d", c.most)
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
		err = c.members(depth)
	}
	return err
}

func (c *check) members(depth int) error {
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
	_, err := c.token()
	return err
}

func (c *check) token() (json.Token, error) {
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
