package e2b

import (
	"context"
	"crypto/rand"
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/interpreter"
	"github.com/agentdock/agentdock/internal/livefiles"
)

// codeContext is what clients know of a context.
type codeContext struct {
	ID       string `json:"id"`
	Language string `json:"language"`
	CWD      string `json:"cwd"`
}

func contextOf(k interpreter.Kernel) codeContext { return codeContext{k.Context, "python", k.Dir} }

// interpreter is the code interpreter of a sandbox.
func (f *Facade) interpreter() http.Handler {
	router := chi.NewRouter()
	serve := func(method, path string, do func(w http.ResponseWriter, r *http.Request) error) {
		router.Method(method, path, f.opened(plainly, func(w http.ResponseWriter, r *http.Request) {
			if err := do(w, r); err != nil {
				fail(w, err)
			}
		}))
	}
	serve("GET", "/health", func(w http.ResponseWriter, r *http.Request) error {
		w.WriteHeader(http.StatusOK)
		return nil
	})
	serve("POST", "/execute", f.execute)
	serve("GET", "/contexts", f.listContexts)
	serve("POST", "/contexts", f.createContext)
	serve("DELETE", "/contexts/{id}", f.removeContext)
	serve("POST", "/contexts/{id}/restart", f.restartContext)
	router.NotFound(func(w http.ResponseWriter, r *http.Request) {
		problem(w, http.StatusNotFound, "the code interpreter has no such path")
	})
	return router
}

func checkLanguage(name string) error {
	switch strings.ToLower(name) {
	case "", "python", "python3":
		return nil
	}
	return fault.New(fault.Unsupported, "the code interpreter speaks python, and not %q", text(name))
}

func (f *Facade) listContexts(w http.ResponseWriter, r *http.Request) error {
	kernels, err := exchangeOf(r.Context()).kernels(r.Context())
	if err != nil {
		return err
	}
	all := []codeContext{}
	for _, k := range kernels {
		if k.Runs {
			all = append(all, contextOf(k.Kernel))
		}
	}
	answer(w, http.StatusOK, all)
	return nil
}

func (f *Facade) createContext(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Language string `json:"language"`
		CWD      string `json:"cwd"`
	}
	if err := readBody(r, &body); err != nil {
		return err
	}
	if err := checkLanguage(body.Language); err != nil {
		return err
	}
	x := exchangeOf(r.Context())
	dir, err := x.directory(r.Context(), body.CWD)
	if err != nil {
		return err
	}
	k, err := x.startKernel(r.Context(), interpreter.Kernel{Context: strings.ToLower(rand.Text()), Number: 1, Dir: dir})
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, contextOf(k))
	return nil
}

// directory is where a context works, which must exist.
func (x *exchange) directory(ctx context.Context, dir string) (string, error) {
	if dir = inHome(dir); dir == "" {
		return execenv.Workspace, nil
	}
	files, err := x.files()
	if err != nil {
		return "", err
	}
	e, err := files.Stat(ctx, dir)
	switch {
	case fault.Is(err, fault.NotFound):
		return "", fault.New(fault.Invalid, "the directory %q does not exist", text(dir))
	case err != nil:
		return "", err
	case e.Kind != livefiles.Directory && e.TargetKind != livefiles.Directory:
		return "", fault.New(fault.Invalid, "%q is not a directory", text(dir))
	}
	return e.Path, nil
}

func (f *Facade) removeContext(w http.ResponseWriter, r *http.Request) error {
	x := exchangeOf(r.Context())
	k, err := x.knownKernel(r)
	if err == nil {
		err = x.endKernel(r.Context(), k)
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (f *Facade) restartContext(w http.ResponseWriter, r *http.Request) error {
	x := exchangeOf(r.Context())
	k, err := x.knownKernel(r)
	if err == nil {
		err = x.endKernel(r.Context(), k)
	}
	if err == nil {
		k, err = x.startKernel(r.Context(), k.Next())
	}
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, contextOf(k))
	return nil
}

// knownKernel is the one that a path names.
func (x *exchange) knownKernel(r *http.Request) (interpreter.Kernel, error) {
	all, err := x.kernels(r.Context())
	if err != nil {
		return interpreter.Kernel{}, err
	}
	id := chi.URLParam(r, "id")
	if !all[id].Runs {
		return interpreter.Kernel{}, fault.New(fault.NotFound, "there is no context %q", text(id))
	}
	return all[id].Kernel, nil
}
