package httpapi

import (
	"net/http"
	"time"

	"github.com/agentdock/agentdock/internal/control"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/tenant"
)

// Facade serves clients of another protocol on the same address. It is asked
// before the table of routes, and everything that keeps strangers out is asked
// through the gate that it is given.
type Facade interface {
	Claims(r *http.Request) bool
	Serve(w http.ResponseWriter, r *http.Request, gate *Gate)
}

// Gate lets callers of a Facade in, one for each request.
type Gate struct {
	a *API
	x *exchange
}

// foreign is the row of the table that a façade's requests stand for.
var foreign = route{operation: "facade"}

// serveFacade answers a request that a façade claims.
func (a *API) serveFacade(x *exchange) {
	row := foreign
	x.route = &row
	a.cfg.Facade.Serve(x.w, x.r, &Gate{a, x})
}

// Admit says who holds a key, if he may use it for that, and counts the request.
func (g *Gate) Admit(key string, scope tenant.Scope, operation string) (control.Caller, error) {
	g.x.route.operation = operation
	principal, err := g.holder(key)
	g.x.caller.Principal = principal
	if err != nil {
		return g.x.caller, g.stranger(operation, err)
	}
	if err := g.a.limit(g.x); err != nil {
		return g.x.caller, asFault(err)
	}
	if !principal.Has(scope) {
		err := fault.New(fault.Denied, "the key lacks the scope %s", scope)
		g.a.refused(g.x, operation, err)
		return g.x.caller, err
	}
	return g.x.caller, nil
}

func (g *Gate) holder(key string) (tenant.Principal, error) {
	switch {
	case g.a.cfg.Auth == AuthDev:
		return g.a.control.Developer(g.x.r.Context())
	case key == "":
		return tenant.Principal{}, fault.New(control.Unauthenticated, "this request needs an API key")
	}
	return g.a.control.Authenticate(g.x.r.Context(), key)
}

// Note is told who was let in by other means than a key, or why nobody was; the
// error it returns is the one to answer with.
func (g *Gate) Note(caller control.Caller, operation string, err error) error {
	g.x.route.operation = operation
	if err != nil {
		return g.stranger(operation, err)
	}
	g.x.caller.Principal = caller.Principal
	return nil
}

// stranger bounds how often somebody is answered who shows nothing valid.
func (g *Gate) stranger(operation string, err error) error {
	code := fault.CodeOf(err)
	if code != control.Unauthenticated && code != fault.Denied {
		return err // that a sandbox is not there may be asked often
	}
	if wait := g.a.strangers.take(addressOf(g.x.caller.Remote)); wait > 0 {
		g.a.metrics.refused.WithLabelValues("too_many_refusals").Inc()
		return &tooOften{fault.New(fault.Exhausted, "too many requests without anything valid came from this address"), wait}
	}
	g.a.refused(g.x, operation, err)
	return err
}

// Hold takes one of the tenant's places for long requests, until this one is
// over.
func (g *Gate) Hold(caller control.Caller) error {
	if g.x.release != nil {
		return nil
	}
	id := caller.Tenant.ID
	if !g.a.long.take(id) {
		return &tooOften{fault.New(fault.Exhausted, "too many streams, uploads and downloads are open; end some"), exhaustedPause}
	}
	g.x.release = func() { g.a.long.give(id) }
	return nil
}

// Remote is the address of the client.
func (g *Gate) Remote() string { return g.x.caller.Remote }

// tooOften is an error that says when to come back.
type tooOften struct {
	error
	wait time.Duration
}

func (t *tooOften) Unwrap() error             { return t.error }
func (t *tooOften) RetryAfter() time.Duration { return t.wait }

// asFault is a refusal of this layer in words that a façade knows.
func asFault(err error) error {
	r := describe(err)
	f := fault.New(fault.Code(r.code), "%s", r.detail)
	if r.retry > 0 {
		f.Code = fault.Exhausted
		return &tooOften{f, r.retry}
	}
	return f
}
