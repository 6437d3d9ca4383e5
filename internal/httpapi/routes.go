package httpapi

import (
	"net/http"
	"slices"
	"strings"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/internal/tenant"
)

// access says who may use a route: anybody, anybody with a key, or who has a
// scope.
type access string

const (
	public access = "public"
	anyKey access = "any key"
)

func scope(s tenant.Scope) access { return access(s) }

// pace says how long a request may take.
type pace int

const (
	// short requests are read, done and answered within the limits of Timing.
	short pace = iota + 1
	// upload bodies may take long, as long as bytes come.
	upload
	// download bodies may take long, as long as bytes are taken.
	download
	// follow goes on for as long as there is something to follow.
	follow
)

const (
	jsonType    = "application/json"
	tarType     = "application/x-tar"
	bytesType   = "application/octet-stream"
	sseType     = "text/event-stream"
	ndjsonType  = "application/x-ndjson"
	receiptType = "application/vnd.in-toto+dsse"
	problemType = "application/problem+json"
)

const (
	smallBody = 64 << 10
	jobBody   = 1 << 20
	// execBody has room for the longest script, escaped.
	execBody = 4 << 20
)

// route is what is decided about a request before anything of it is done.
type route struct {
	// operation is the operationId of the contract.
	operation    string
	method, path string
	access       access
	pace         pace
	// takes is the media type of the body, or "" where there is none; body
	// makes what a JSON body is read into, and maxBody bounds it.
	takes   string
	maxBody int64
	body    func() any
	// query are the parameters, and whether they may be repeated.
	query map[string]bool
	// gives are the media types of the answer.
	gives []string
	// changes says that the call changes something, so that it is in the audit
	// log (control writes it).
	changes bool
	// inside says that what it changes is inside a live sandbox: that is not in
	// the audit log, but for what was refused (docs/adr/0022).
	inside bool
}

var (
	jobList = map[string]bool{"state": true, "label": true, "created_after": false, "created_before": false, "limit": false, "cursor": false}
	inJSON  = []string{jsonType}
	byPath  = map[string]bool{"path": false}
)

// Paths that many operations are about.
const (
	boxPath   = "/v1/sandboxes/{sandbox_id}"
	execPath  = boxPath + "/execs/{exec_id}"
	filesPath = boxPath + "/files"
)

// routes is the table of access and limits. A test holds it against the
// contract: an operation that is not here is not served.
var routes = []route{
	{operation: "createJob", method: http.MethodPost, path: "/v1/jobs", access: scope(tenant.JobsWrite), pace: short,
		takes: jsonType, maxBody: jobBody, body: func() any { return new(api.JobSpec) }, gives: inJSON, changes: true},
	{operation: "listJobs", method: http.MethodGet, path: "/v1/jobs", access: scope(tenant.JobsRead), pace: short, query: jobList, gives: inJSON},
	{operation: "getJob", method: http.MethodGet, path: "/v1/jobs/{job_id}", access: scope(tenant.JobsRead), pace: short, gives: inJSON},
	{operation: "cancelJob", method: http.MethodPost, path: "/v1/jobs/{job_id}/cancel", access: scope(tenant.JobsWrite), pace: short, gives: inJSON, changes: true},
	{operation: "getJobLog", method: http.MethodGet, path: "/v1/jobs/{job_id}/log", access: scope(tenant.JobsRead), pace: follow,
		query: map[string]bool{"after": false, "follow": false}, gives: []string{sseType, ndjsonType}},
	{operation: "listArtifacts", method: http.MethodGet, path: "/v1/jobs/{job_id}/artifacts", access: scope(tenant.JobsRead), pace: short, gives: inJSON},
	{operation: "downloadArtifact", method: http.MethodGet, path: "/v1/jobs/{job_id}/artifacts/content", access: scope(tenant.JobsRead), pace: download,
		query: map[string]bool{"path": false}, gives: []string{bytesType}},
	{operation: "getReceipt", method: http.MethodGet, path: "/v1/jobs/{job_id}/receipt", access: scope(tenant.JobsRead), pace: short, gives: []string{receiptType, jsonType}},
	{operation: "listReceiptKeys", method: http.MethodGet, path: "/v1/receipt-keys", access: public, pace: short, gives: inJSON},
	{operation: "createUpload", method: http.MethodPost, path: "/v1/uploads", access: scope(tenant.JobsWrite), pace: upload, takes: tarType, gives: inJSON, changes: true},
	{operation: "whoAmI", method: http.MethodGet, path: "/v1/whoami", access: anyKey, pace: short, gives: inJSON},

	{operation: "createSandbox", method: http.MethodPost, path: "/v1/sandboxes", access: scope(tenant.SandboxesWrite), pace: short,
		takes: jsonType, maxBody: jobBody, body: func() any { return new(api.SandboxSpec) }, gives: inJSON, changes: true},
	{operation: "listSandboxes", method: http.MethodGet, path: "/v1/sandboxes", access: scope(tenant.SandboxesRead), pace: short,
		query: map[string]bool{"state": true, "label": true, "limit": false, "cursor": false}, gives: inJSON},
	{operation: "getSandbox", method: http.MethodGet, path: boxPath, access: scope(tenant.SandboxesRead), pace: short, gives: inJSON},
	{operation: "killSandbox", method: http.MethodDelete, path: boxPath, access: scope(tenant.SandboxesWrite), pace: short, gives: inJSON, changes: true},
	{operation: "extendSandbox", method: http.MethodPost, path: boxPath + "/extend", access: scope(tenant.SandboxesWrite), pace: short,
		takes: jsonType, maxBody: smallBody, body: func() any { return new(api.SandboxExtension) }, gives: inJSON, changes: true},
	{operation: "pauseSandbox", method: http.MethodPost, path: boxPath + "/pause", access: scope(tenant.SandboxesWrite), pace: short, gives: inJSON, changes: true},
	{operation: "resumeSandbox", method: http.MethodPost, path: boxPath + "/resume", access: scope(tenant.SandboxesWrite), pace: short,
		takes: jsonType, maxBody: smallBody, body: func() any { return new(api.SandboxExtension) }, gives: inJSON, changes: true},
	{operation: "getSandboxMetrics", method: http.MethodGet, path: boxPath + "/metrics", access: scope(tenant.SandboxesRead), pace: short, gives: inJSON},
	{operation: "runExec", method: http.MethodPost, path: boxPath + "/run", access: scope(tenant.SandboxesWrite), pace: follow,
		takes: jsonType, maxBody: execBody, body: func() any { return new(api.ExecSpec) }, gives: []string{sseType, ndjsonType}, inside: true},
	{operation: "startExec", method: http.MethodPost, path: boxPath + "/execs", access: scope(tenant.SandboxesWrite), pace: short,
		takes: jsonType, maxBody: execBody, body: func() any { return new(api.ExecSpec) }, gives: inJSON, inside: true},
	{operation: "listExecs", method: http.MethodGet, path: boxPath + "/execs", access: scope(tenant.SandboxesRead), pace: short, gives: inJSON},
	{operation: "getExec", method: http.MethodGet, path: execPath, access: scope(tenant.SandboxesRead), pace: short, gives: inJSON},
	{operation: "killExec", method: http.MethodDelete, path: execPath, access: scope(tenant.SandboxesWrite), pace: short, inside: true},
	{operation: "followExec", method: http.MethodGet, path: execPath + "/output", access: scope(tenant.SandboxesRead), pace: follow,
		query: map[string]bool{"from": false}, gives: []string{sseType, ndjsonType}},
	{operation: "writeStdin", method: http.MethodPost, path: execPath + "/stdin", access: scope(tenant.SandboxesWrite), pace: upload,
		takes: bytesType, query: map[string]bool{"close": false}, inside: true},
	{operation: "signalExec", method: http.MethodPost, path: execPath + "/signal", access: scope(tenant.SandboxesWrite), pace: short,
		takes: jsonType, maxBody: smallBody, body: func() any { return new(api.ExecSignal) }, inside: true},
	{operation: "resizeExec", method: http.MethodPost, path: execPath + "/resize", access: scope(tenant.SandboxesWrite), pace: short,
		takes: jsonType, maxBody: smallBody, body: func() any { return new(api.TerminalSize) }, inside: true},
	{operation: "putArchive", method: http.MethodPut, path: boxPath + "/archive", access: scope(tenant.SandboxesWrite), pace: upload,
		takes: tarType, query: map[string]bool{"dir": false}, inside: true},
	{operation: "getArchive", method: http.MethodGet, path: boxPath + "/archive", access: scope(tenant.SandboxesRead), pace: download,
		query: map[string]bool{"dir": false, "pattern": true}, gives: []string{tarType}},
	{operation: "listFiles", method: http.MethodGet, path: filesPath, access: scope(tenant.SandboxesRead), pace: short,
		query: map[string]bool{"path": false, "depth": false}, gives: inJSON},
	{operation: "removeFile", method: http.MethodDelete, path: filesPath, access: scope(tenant.SandboxesWrite), pace: short, query: byPath, inside: true},
	{operation: "statFile", method: http.MethodGet, path: filesPath + "/stat", access: scope(tenant.SandboxesRead), pace: short, query: byPath, gives: inJSON},
	{operation: "readFile", method: http.MethodGet, path: filesPath + "/content", access: scope(tenant.SandboxesRead), pace: download,
		query: map[string]bool{"path": false, "offset": false, "length": false}, gives: []string{bytesType}},
	{operation: "writeFile", method: http.MethodPut, path: filesPath + "/content", access: scope(tenant.SandboxesWrite), pace: upload,
		takes: bytesType, query: map[string]bool{"path": false, "mode": false}, gives: inJSON, inside: true},
	{operation: "makeDirectory", method: http.MethodPost, path: filesPath + "/directories", access: scope(tenant.SandboxesWrite), pace: short,
		takes: jsonType, maxBody: smallBody, body: func() any { return new(api.FilePlace) }, gives: inJSON, inside: true},
	{operation: "moveFile", method: http.MethodPost, path: filesPath + "/move", access: scope(tenant.SandboxesWrite), pace: short,
		takes: jsonType, maxBody: smallBody, body: func() any { return new(api.FileMove) }, gives: inJSON, inside: true},
	{operation: "watchFiles", method: http.MethodGet, path: filesPath + "/watch", access: scope(tenant.SandboxesRead), pace: follow,
		query: map[string]bool{"path": false, "recursive": false}, gives: []string{sseType, ndjsonType}},

	{operation: "createTenant", method: http.MethodPost, path: "/v1/admin/tenants", access: scope(tenant.Admin), pace: short,
		takes: jsonType, maxBody: smallBody, body: func() any { return new(api.TenantSpec) }, gives: inJSON, changes: true},
	{operation: "listTenants", method: http.MethodGet, path: "/v1/admin/tenants", access: scope(tenant.Admin), pace: short, gives: inJSON},
	{operation: "getTenant", method: http.MethodGet, path: "/v1/admin/tenants/{tenant_id}", access: scope(tenant.Admin), pace: short, gives: inJSON},
	{operation: "updateTenant", method: http.MethodPatch, path: "/v1/admin/tenants/{tenant_id}", access: scope(tenant.Admin), pace: short,
		takes: jsonType, maxBody: smallBody, body: func() any { return new(api.TenantChange) }, gives: inJSON, changes: true},
	{operation: "createKey", method: http.MethodPost, path: "/v1/admin/tenants/{tenant_id}/keys", access: scope(tenant.Admin), pace: short,
		takes: jsonType, maxBody: smallBody, body: func() any { return new(api.KeySpec) }, gives: inJSON, changes: true},
	{operation: "listKeys", method: http.MethodGet, path: "/v1/admin/tenants/{tenant_id}/keys", access: scope(tenant.Admin), pace: short, gives: inJSON},
	{operation: "revokeKey", method: http.MethodDelete, path: "/v1/admin/tenants/{tenant_id}/keys/{key_id}", access: scope(tenant.Admin), pace: short, changes: true},
	{operation: "listAudit", method: http.MethodGet, path: "/v1/admin/audit", access: scope(tenant.Admin), pace: short,
		query: map[string]bool{"tenant_id": false, "after": false, "limit": false}, gives: inJSON},

	{operation: "getHealth", method: http.MethodGet, path: "/healthz", access: public, pace: short},
	{operation: "getReadiness", method: http.MethodGet, path: "/readyz", access: public, pace: short},
	{operation: "getMetrics", method: http.MethodGet, path: "/metrics", access: scope(tenant.Admin), pace: short},
}

// match finds the route of a request. Without one, it says which methods the
// path has.
func match(method, path string) (*route, []string) {
	var methods []string
	for i := range routes {
		rt := &routes[i]
		if !fits(rt.path, path) {
			continue
		}
		// What is a GET without what it gives, where that does not last.
		head := rt.method == http.MethodGet && rt.pace == short
		if rt.method == method || head && method == http.MethodHead {
			return rt, nil
		}
		if methods = append(methods, rt.method); head {
			methods = append(methods, http.MethodHead)
		}
	}
	slices.Sort(methods)
	return nil, methods
}

// RouteOf names the route of a request by its path in the contract, with names in
// braces where a request has values; it is empty where there is none.
func RouteOf(r *http.Request) string {
	if rt, _ := match(r.Method, r.URL.Path); rt != nil {
		return rt.path
	}
	return ""
}

// fits compares piece by piece. A name in braces stands for one that is not
// empty; what is decoded in a path has no meaning here, since ids need no
// escapes.
func fits(pattern, path string) bool {
	for {
		want, pattern2, more := strings.Cut(pattern, "/")
		got, path2, more2 := strings.Cut(path, "/")
		if more != more2 {
			return false
		}
		if strings.HasPrefix(want, "{") {
			if got == "" {
				return false
			}
		} else if want != got {
			return false
		}
		if !more {
			return true
		}
		pattern, path = pattern2, path2
	}
}
