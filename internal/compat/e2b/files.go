package e2b

import (
	"compress/gzip"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/livefiles"
)

// maxUploads bounds the files of one upload.
const maxUploads = 1000

// writtenFile is what clients learn of a file that they wrote.
type writtenFile struct {
	Name string `json:"name"`
	Path string `json:"path"`
	Type string `json:"type"`
}

// download answers with a file.
func (f *Facade) download(w http.ResponseWriter, r *http.Request) {
	files, err := f.filesFor(w, r, "read")
	if err != nil {
		return
	}
	begun := &begunWriter{w: w}
	err = files.Read(r.Context(), inHome(r.URL.Query().Get("path")), livefiles.Part{}, func(e livefiles.Entry) (io.Writer, error) {
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": e.Base()}))
		if e.Size > 0 {
			w.Header().Set("Content-Length", strconv.FormatInt(e.Size, 10))
		}
		return begun, nil
	})
	switch {
	case err == nil && !begun.begun:
		w.Header().Set("Content-Length", "0")
		w.WriteHeader(http.StatusOK)
	case err != nil && begun.begun:
		panic(http.ErrAbortHandler) // what was sent is not the file
	case err != nil:
		for _, name := range []string{"Content-Type", "Content-Disposition", "Content-Length"} {
			w.Header().Del(name)
		}
		failFile(w, err)
	}
}

// begunWriter notes whether anything was sent.
type begunWriter struct {
	w     io.Writer
	begun bool
}

func (b *begunWriter) Write(p []byte) (int, error) {
	b.begun = b.begun || len(p) > 0
	return b.w.Write(p)
}

// failFile answers with an error about a file. A quota that is full has a status
// of its own.
func failFile(w http.ResponseWriter, err error) {
	switch fault.CodeOf(err) {
	case fault.Exhausted:
		problem(w, http.StatusInsufficientStorage, fault.Public(err))
	case fault.Gone:
		problem(w, http.StatusBadGateway, fault.Public(err))
	default:
		fail(w, err)
	}
}

// filesFor opens the files of a request's sandbox, or answers why it cannot.
func (f *Facade) filesFor(w http.ResponseWriter, r *http.Request, operation string) (*livefiles.Files, error) {
	err := f.openFiles(r, operation)
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Gone) {
		closed(w)
		return nil, err
	}
	x := exchangeOf(r.Context())
	if err == nil {
		err = checkUser(userOf(r))
	}
	if err == nil {
		err = x.gate.Hold(x.caller)
	}
	var files *livefiles.Files
	if err == nil {
		files, err = x.files()
	}
	if err != nil {
		fail(w, err)
	}
	return files, err
}

// upload writes what comes: the body, or each file of a form.
func (f *Facade) upload(w http.ResponseWriter, r *http.Request) {
	files, err := f.filesFor(w, r, "write")
	if err != nil {
		return
	}
	u := &uploading{r: r, files: files, written: []writtenFile{}}
	if err := u.body(); err != nil {
		failFile(w, err)
		return
	}
	answer(w, http.StatusOK, u.written)
}

type uploading struct {
	r       *http.Request
	files   *livefiles.Files
	written []writtenFile
}

func (u *uploading) body() error {
	kind, params, err := mime.ParseMediaType(u.r.Header.Get("Content-Type"))
	if err != nil {
		return fault.New(fault.Invalid, "the type of the body is missing or malformed")
	}
	body := io.Reader(u.r.Body)
	switch encoding := u.r.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
	case "gzip":
		if body, err = gzip.NewReader(body); err != nil {
			return fault.New(fault.Invalid, "the body is not gzip")
		}
	default:
		return fault.New(fault.Unsupported, "the encoding %q is not known here", encoding)
	}
	named := u.r.URL.Query().Get("path")
	switch kind {
	case "application/octet-stream":
		if named == "" {
			return fault.New(fault.Invalid, "the path is missing")
		}
		return u.write(named, body)
	case "multipart/form-data":
		return u.form(multipart.NewReader(body, params["boundary"]), named)
	}
	return fault.New(fault.Invalid, "a body of type %q is not what was expected: multipart/form-data or application/octet-stream", kind)
}

func (u *uploading) form(form *multipart.Reader, named string) error {
	for {
		part, err := form.NextRawPart()
		if errors.Is(err, io.EOF) {
			if len(u.written) == 0 {
				return fault.New(fault.Invalid, "the form has no file")
			}
			return nil
		}
		if err != nil {
			return fault.Wrap(fault.Invalid, err, "the form is cut or malformed")
		}
		if part.FormName() != "file" {
			continue
		}
		if len(u.written) >= maxUploads {
			return fault.New(fault.Invalid, "more than %d files in one request are too many", maxUploads)
		}
		to := named
		if to == "" {
			// The library's own name for it has no directories.
			_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
			if to = params["filename"]; err != nil || to == "" {
				return fault.New(fault.Invalid, "a file of the form has no name")
			}
		}
		if err := u.write(to, part); err != nil {
			return err
		}
	}
}

func (u *uploading) write(to string, contents io.Reader) error {
	e, err := u.files.Write(u.r.Context(), inHome(to), 0, contents)
	if err != nil {
		return err
	}
	u.written = append(u.written, writtenFile{Name: text(path.Base(e.Path)), Path: text(e.Path), Type: "file"})
	return nil
}

// inHome reads "~" as a shell does.
func inHome(p string) string {
	if p == "~" {
		return ""
	}
	return strings.TrimPrefix(p, "~/")
}

// text is a name as these messages can have it; names are bytes.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
