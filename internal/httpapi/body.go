package httpapi

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/internal/strictjson"
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
	if err := strictjson.Decode(text, maxDepth, rt.body()); err != nil {
		return refuse(api.ProblemCodeInvalid, "cannot read the body: "+strings.TrimPrefix(err.Error(), "json: "))
	}
	r.Body = io.NopCloser(bytes.NewReader(text))
	return nil
}

// clip keeps hostile names in messages short.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
