package e2b

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/tenant"
)

// maxControlBody bounds what a call of the control plane may send.
const maxControlBody = 1 << 20

// controlRoute is a row of the table of the control plane.
type controlRoute struct {
	method, path string
	operation    string
	scope        tenant.Scope
	serve        func(w http.ResponseWriter, r *http.Request) error
}

// controlPlane routes by a table, in which access stands.
func (f *Facade) controlPlane() http.Handler {
	const read, write = tenant.SandboxesRead, tenant.SandboxesWrite
	router := chi.NewRouter()
	for _, rt := range []controlRoute{
		{"POST", "/sandboxes", "e2b.create", write, f.create},
		{"POST", "/v2/sandboxes", "e2b.create", write, f.create},
		{"GET", "/sandboxes", "e2b.list", read, f.list},
		{"GET", "/v2/sandboxes", "e2b.list", read, f.list},
		{"GET", "/sandboxes/{id}", "e2b.info", read, f.info},
		{"DELETE", "/sandboxes/{id}", "e2b.kill", write, f.kill},
		{"POST", "/sandboxes/{id}/connect", "e2b.connect", write, f.connect},
		{"POST", "/v2/sandboxes/{id}/connect", "e2b.connect", write, f.connect},
		{"POST", "/sandboxes/{id}/resume", "e2b.resume", write, f.connect},
		{"POST", "/sandboxes/{id}/pause", "e2b.pause", write, f.pause},
		{"POST", "/v2/sandboxes/{id}/pause", "e2b.pause", write, f.pause},
		{"POST", "/sandboxes/{id}/timeout", "e2b.timeout", write, f.timeout},
		{"POST", "/sandboxes/{id}/refreshes", "e2b.refresh", write, f.refresh},
		{"GET", "/sandboxes/{id}/metrics", "e2b.metrics", read, f.metrics},

		{"POST", "/sandboxes/{id}/snapshots", "e2b.snapshot", write, f.without("sandboxes have no snapshots here")},
		{"POST", "/sandboxes/{id}/fork", "e2b.fork", write, f.without("sandboxes cannot be forked here: the environment has no snapshots")},
		{"PUT", "/sandboxes/{id}/network", "e2b.network", write, f.without("sandboxes have no network here, and nothing can be set for it")},
		{"GET", "/sandboxes/{id}/logs", "e2b.logs", read, f.without("sandboxes have no log of their own here; the output of commands is read from the commands")},
		{"GET", "/v2/sandboxes/{id}/logs", "e2b.logs", read, f.without("sandboxes have no log of their own here; the output of commands is read from the commands")},
	} {
		router.Method(rt.method, rt.path, f.admitted(rt))
	}
	for _, kind := range []struct{ path, why string }{
		{"templates", "templates are images here, which the operator makes: agentdock image"},
		{"volumes", "there are no volumes here; files go in and out of a sandbox through its own interface"},
		{"snapshots", "sandboxes have no snapshots here"},
		{"teams", "there are no teams here"},
		{"nodes", "nodes are not shown here"},
	} {
		for _, version := range []string{"", "/v2", "/v3"} {
			rt := controlRoute{operation: "e2b." + kind.path, scope: read, serve: f.without(kind.why)}
			router.Handle(version+"/"+kind.path, f.admitted(rt))
			router.Handle(version+"/"+kind.path+"/*", f.admitted(rt))
		}
	}
	router.NotFound(func(w http.ResponseWriter, r *http.Request) {
		problem(w, http.StatusNotFound, "there is no such path")
	})
	router.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		problem(w, http.StatusMethodNotAllowed, "this path has no such method")
	})
	return router
}

// admitted lets a request through whose key allows it.
func (f *Facade) admitted(rt controlRoute) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := exchangeOf(r.Context())
		var err error
		if x.caller, err = x.gate.Admit(keyOf(r), rt.scope, rt.operation); err == nil {
			err = rt.serve(w, r)
		}
		if err != nil {
			fail(w, err)
		}
	})
}

// without is a call for something that does not exist here.
func (f *Facade) without(why string) func(http.ResponseWriter, *http.Request) error {
	return func(http.ResponseWriter, *http.Request) error { return fault.New(fault.Unsupported, "%s", why) }
}

// readBody reads JSON. Fields that nobody here knows are ignored: clients of
// other versions send more.
func readBody(r *http.Request, into any) error {
	data, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxControlBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return fault.New(fault.Invalid, "the body is longer than %d bytes", maxControlBody)
	case err != nil:
		return fault.Wrap(fault.Unavailable, err, "the body could not be read")
	case len(data) == 0:
		return nil
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fault.New(fault.Invalid, "the body is not the JSON that was expected: %v", err)
	}
	return nil
}

// keyOf is the API key of a request. Some clients take no key that does not begin
// as E2B's do, so ours may have that in front.
func keyOf(r *http.Request) string {
	return strings.TrimPrefix(r.Header.Get("X-Api-Key"), "e2b_")
}
