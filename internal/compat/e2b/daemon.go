package e2b

import (
	"encoding/base64"
	"net/http"
	"strings"

	"connectrpc.com/connect"
	"github.com/go-chi/chi/v5"

	"github.com/agentdock/agentdock/internal/compat/e2b/filesystempb/filesystempbconnect"
	"github.com/agentdock/agentdock/internal/compat/e2b/processpb/processpbconnect"
	"github.com/agentdock/agentdock/internal/control"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/livefiles"
	"github.com/agentdock/agentdock/internal/run"
)

// maxCall bounds a message of the data plane's calls.
const maxCall = 8 << 20

// dataPlane is what E2B runs in each sandbox.
func (f *Facade) dataPlane() http.Handler {
	router := chi.NewRouter()
	router.Get("/health", f.opened(plainly, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	router.Get("/files", f.download)
	router.Post("/files", f.upload)
	options := connect.WithHandlerOptions(connect.WithReadMaxBytes(maxCall))
	errors := connect.NewErrorWriter(options)
	inCall := func(w http.ResponseWriter, r *http.Request, err error) { _ = errors.Write(w, r, asConnect(err)) }
	for _, mount := range []func() (string, http.Handler){
		func() (string, http.Handler) { return processpbconnect.NewProcessHandler(processes{}, options) },
		func() (string, http.Handler) {
			return filesystempbconnect.NewFilesystemHandler(&filesystem{f}, options)
		},
	} {
		path, handler := mount()
		router.Handle(path+"*", f.opened(inCall, handler.ServeHTTP))
	}
	router.NotFound(func(w http.ResponseWriter, r *http.Request) {
		problem(w, http.StatusNotFound, "nothing in a sandbox is served under this path")
	})
	ports := map[string]http.Handler{daemonPort: router, interpreterPort: f.interpreter()}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler, ok := ports[exchangeOf(r.Context()).target.port]
		if !ok {
			problem(w, http.StatusNotImplemented, "ports of a sandbox cannot be reached from outside here")
			return
		}
		handler.ServeHTTP(w, r)
	})
}

// refuse answers with an error.
type refuse func(w http.ResponseWriter, r *http.Request, err error)

func plainly(w http.ResponseWriter, _ *http.Request, err error) { fail(w, err) }

// opened lets a request through that shows the access token of its sandbox.
func (f *Facade) opened(refuse refuse, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := f.open(r, tokenOf(r))
		if err == nil {
			err = checkUser(userOf(r))
		}
		switch {
		case err == nil:
			next(w, r)
		case fault.Is(err, fault.NotFound), fault.Is(err, fault.Gone):
			closed(w)
		default:
			refuse(w, r, err)
		}
	}
}

// tokenOf is the access token that a request shows. Some calls of the code
// interpreter's client have it in another place.
func tokenOf(r *http.Request) string {
	if token := r.Header.Get("X-Access-Token"); token != "" {
		return token
	}
	return r.Header.Get("E2b-Traffic-Access-Token")
}

// open finds out who holds the token of a sandbox, and takes that into its hands.
func (f *Facade) open(r *http.Request, token string) error {
	x := exchangeOf(r.Context())
	caller, box, err := f.live.CallerOf(r.Context(), x.target.sandbox, token, x.gate.Remote())
	return f.enter(r, x, caller, box, err)
}

func (f *Facade) enter(r *http.Request, x *exchange, caller control.Caller, box run.Sandbox, err error) error {
	x.caller = caller
	if err := x.gate.Note(caller, "e2b.sandbox", err); err != nil {
		return err
	}
	if box.State == run.SandboxPaused {
		return fault.New(fault.Gone, "the sandbox is paused; connect to it to resume it")
	}
	x.handle, err = f.live.Open(r.Context(), caller, box.ID)
	return err
}

// closed answers for a sandbox that is not there, or not any more: a gateway
// without anything behind it is what clients understand as the end of a sandbox.
func closed(w http.ResponseWriter) {
	problem(w, http.StatusBadGateway, "the sandbox does not exist, has ended, or is paused")
}

// userOf is the user in whose name a client wants to work.
func userOf(r *http.Request) string {
	if scheme, encoded, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Basic") {
		text, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return "?"
		}
		name, _, _ := strings.Cut(string(text), ":")
		return name
	}
	return r.URL.Query().Get("username")
}

// checkUser refuses other users than the one there is. E2B calls it "user".
func checkUser(name string) error {
	switch name {
	case "", "user", "agent":
		return nil
	}
	return fault.New(fault.Invalid, "everything in a sandbox runs as one user without rights, agent; there is no other to work as")
}

// files works on the files of the request's sandbox.
func (x *exchange) files() (*livefiles.Files, error) {
	return livefiles.Open(x.handle.Port(), x.handle.Record.Spec.Limits.OutputBytes)
}
