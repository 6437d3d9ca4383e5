// Package e2b serves the clients of E2B as they are shipped, over the use cases
// of live sandboxes (package live). It is a way in like the native API and adds
// no rights: what a client asks for that does not exist here is refused with 501
// and a sentence, and never done halfway.
//
// There are two planes on one address, told apart by Facade.target:
//
//   - The control plane makes, lists and ends sandboxes. It takes an API key, in
//     X-API-KEY, with the scopes of live sandboxes.
//   - The data plane is what E2B runs inside each sandbox: commands, files, a code
//     interpreter. A request names its sandbox in a header, or in the host name,
//     and shows the access token of that sandbox. An API key opens nothing there.
package e2b

import (
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/agentdock/agentdock/internal/httpapi"
	"github.com/agentdock/agentdock/internal/live"
	"github.com/agentdock/agentdock/internal/run"
)

// daemonVersion is the version of E2B's daemon whose behaviour is kept. Clients
// ask less of an older one: from 0.6.2 on files have metadata, which ours have
// not.
const daemonVersion = "0.5.7"

// Config is what an operator decides. Its zero fields are filled in.
type Config struct {
	// Templates maps the ids of templates to images; "" is the default image. An
	// id that is not in it is the name of an image itself.
	Templates map[string]string
	// Limits are those of a sandbox, where the use cases have no higher default.
	// More output than usual is kept: these clients collect it all.
	Limits run.Limits
	// TTL is how long a sandbox lives whose caller does not say.
	TTL time.Duration
	// Stall is how long a stream waits for a client that takes nothing, and an
	// upload for one that sends nothing.
	Stall time.Duration
	Log   *slog.Logger
}

func (c Config) orDefaults() Config {
	if c.Templates == nil {
		c.Templates = map[string]string{"base": "", "code-interpreter-v1": ""}
	}
	if c.Limits.OutputBytes == 0 {
		c.Limits.OutputBytes = 16 * run.MiB
	}
	if c.TTL == 0 {
		c.TTL = 5 * time.Minute
	}
	if c.Stall == 0 {
		c.Stall = time.Minute
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c
}

// Facade is the handler of all requests of such clients.
type Facade struct {
	cfg      Config
	live     *live.Sandboxes
	log      *slog.Logger
	control  http.Handler
	daemon   http.Handler
	watchers watchers
}

// New makes the façade over the use cases.
func New(cfg Config, sandboxes *live.Sandboxes) *Facade {
	cfg = cfg.orDefaults()
	f := &Facade{cfg: cfg, live: sandboxes, log: cfg.Log}
	f.control, f.daemon = f.controlPlane(), f.dataPlane()
	return f
}

// planes are the first elements of the control plane's paths.
var planes = map[string]bool{
	"sandboxes": true, "templates": true, "volumes": true, "snapshots": true, "teams": true, "nodes": true,
}

// Claims reports whether a request is for this handler.
func (f *Facade) Claims(r *http.Request) bool {
	if _, ok := targetOf(r); ok {
		return true
	}
	first, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if first == "v2" || first == "v3" {
		first, _, _ = strings.Cut(rest, "/")
	}
	// What is the data plane's without a sandbox gets an answer that says so.
	return planes[first] || first == "files"
}

// Serve answers a request.
func (f *Facade) Serve(w http.ResponseWriter, r *http.Request, gate *httpapi.Gate) {
	steady := steady(w, r, f.cfg.Stall)
	r.Body = steady.body(r.Body)
	to, ok := targetOf(r)
	x := &exchange{gate: gate, target: to}
	r = r.WithContext(withExchange(r.Context(), x))
	switch {
	case ok:
		f.daemon.ServeHTTP(steady, r)
	case strings.HasPrefix(r.URL.Path, "/files"):
		problem(w, http.StatusBadRequest, "this request names no sandbox: signed URLs need a host name of their own for each sandbox (E2B_DOMAIN)")
	default:
		f.control.ServeHTTP(steady, r)
	}
}
