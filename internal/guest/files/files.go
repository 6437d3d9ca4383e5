// Package files is the work of the guest helper on files of a live sandbox, one
// request for each run of it (see filewire). It runs as the unprivileged user
// and does what that user could do: what it is refused, the sandbox's kernel
// refuses. It is on nobody's side of a boundary, so it follows symlinks as every
// program does; what it takes care of is to end, and to leave nothing half done.
package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/internal/guest/filewire"
)

// Serve does what the request says. Its error means that no answer could be
// given; a failure of the work is part of the answer.
func Serve(argument string, stdin io.Reader, stdout io.Writer) error {
	req, err := filewire.Decode(argument)
	if err != nil {
		return err
	}
	w := &work{req: req, path: string(req.Path), in: stdin, out: filewire.NewWriter(stdout, req.Budget)}
	more, err := w.do()
	if errors.Is(err, filewire.ErrBudget) {
		more, err = true, nil
	}
	return w.out.End(filewire.End{Code: codeOf(err), Message: messageOf(err), More: more})
}

// work is one request. Its methods report whether there is more to do than the
// budget allowed.
type work struct {
	req  filewire.Request
	path string
	in   io.Reader
	out  *filewire.Writer
}

func (w *work) do() (more bool, err error) {
	if err := checkPath(w.path); err != nil {
		return false, err
	}
	switch w.req.Op {
	case filewire.Stat:
		return false, w.sendEntry(w.path)
	case filewire.List:
		return w.list()
	case filewire.MakeDir:
		return false, w.makeDir()
	case filewire.Move:
		return false, w.move()
	case filewire.Remove:
		return false, w.remove()
	case filewire.Read:
		return w.read()
	case filewire.Write:
		return false, w.write()
	case filewire.Watch:
		return w.watch()
	}
	return false, refuse(filewire.Invalid, "nothing is called %q", w.req.Op)
}

func checkPath(path string) error {
	switch {
	case !strings.HasPrefix(path, "/"):
		return refuse(filewire.Invalid, "path %q is not absolute", path)
	case len(path) >= filewire.MaxPath:
		return refuse(filewire.Invalid, "a path of %d bytes is too long", len(path))
	case strings.IndexByte(path, 0) >= 0:
		return refuse(filewire.Invalid, "path %q holds a NUL byte", path)
	}
	return nil
}

// refusal is a failure whose code and text are ours.
type refusal struct {
	code filewire.Code
	text string
}

func (r *refusal) Error() string { return r.text }

func refuse(code filewire.Code, format string, args ...any) error {
	return &refusal{code, fmt.Sprintf(format, args...)}
}

func codeOf(err error) filewire.Code {
	var r *refusal
	is := func(targets ...error) bool {
		for _, t := range targets {
			if errors.Is(err, t) {
				return true
			}
		}
		return false
	}
	switch {
	case err == nil:
		return filewire.OK
	case errors.As(err, &r):
		return r.code
	case is(unix.ENOSPC, unix.EDQUOT, unix.EMFILE, unix.ENFILE, unix.ENOMEM):
		return filewire.Exhausted
	case is(fs.ErrNotExist):
		return filewire.NotFound
	case is(fs.ErrExist, unix.ENOTEMPTY):
		return filewire.Conflict
	case is(fs.ErrPermission, unix.EROFS, unix.EBUSY):
		return filewire.Denied
	case is(unix.ENAMETOOLONG, unix.ENOTDIR, unix.EISDIR, unix.ELOOP, unix.EXDEV, unix.EINVAL, unix.ENXIO):
		return filewire.Invalid
	}
	return filewire.Failed
}

// messageOf leaves out the name of the call, which tells a caller nothing.
func messageOf(err error) string {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &path):
		return fmt.Sprintf("%q: %v", short(path.Path), path.Err)
	case errors.As(err, &link):
		return fmt.Sprintf("%q to %q: %v", short(link.Old), short(link.New), link.Err)
	}
	return err.Error()
}

func short(path string) string {
	if len(path) > 80 {
		return path[:80] + "…"
	}
	return path
}
