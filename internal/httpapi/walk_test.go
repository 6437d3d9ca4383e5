package httpapi

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/internal/control"
	"github.com/agentdock/agentdock/internal/store"
	"github.com/agentdock/agentdock/internal/tenant"
)

// TestWalk goes through every route with every kind of key that opens nothing
// there. What another tenant owns must look exactly like what does not exist.
func TestWalk(t *testing.T) {
	r := newRig(t)
	quota := tenant.Quota{} // does not bound: there are many requests
	owner, ownKey := r.tenant("owner", quota, tenant.Scopes()...)
	stranger, wrong := r.tenant("stranger", quota, tenant.JobsRead, tenant.JobsWrite, tenant.SandboxesRead, tenant.SandboxesWrite)
	off, disabled := r.tenant("off", quota, tenant.Scopes()...)
	if _, err := r.control.UpdateTenant(t.Context(), control.Caller{}, off.ID, func(t *tenant.Tenant) { t.Disabled = true }); err != nil {
		t.Fatal(err)
	}
	revokedKey, revoked := r.key(owner.ID, time.Time{}, tenant.Scopes()...)
	if err := r.control.RevokeKey(t.Context(), control.Caller{}, owner.ID, revokedKey.ID); err != nil {
		t.Fatal(err)
	}
	soon := time.Now().Add(50 * time.Millisecond)
	_, expired := r.key(owner.ID, soon, tenant.Scopes()...)
	_, reads := r.key(owner.ID, time.Time{}, tenant.JobsRead)
	_, writes := r.key(owner.ID, time.Time{}, tenant.JobsWrite)
	_, looks := r.key(owner.ID, time.Time{}, tenant.SandboxesRead)
	_, drives := r.key(owner.ID, time.Time{}, tenant.SandboxesWrite)
	time.Sleep(time.Until(soon)) // it is over then, however late this wakes
	_, unknown := r.tenant("gone", quota, tenant.Scopes()...)
	unknown = unknown[:8] + strings.Repeat("a", len(unknown)-8) // and of the right length

	job := r.job(ownKey, trueJob())
	w := r.work()
	w.write("stdout", "secret of the owner")
	w.artifact("f", "secret of the owner", hexSum("secret of the owner"))
	w.finish()
	if err := r.record.SignJob(t.Context(), job.ID, []byte(`{"secret of the owner":1}`)); err != nil {
		t.Fatal(err)
	}
	const nobody = "01938c5e-7a1b-7c3d-9e2f-5a6b7c8d9e0f"
	box := r.box(ownKey, "secret of the owner")
	noBox := strings.Repeat("0", len(box))

	bodies := map[string]any{
		"createJob": trueJob(), "createUpload": []byte("x"), "createTenant": api.TenantSpec{Name: "x"},
		"createSandbox": api.SandboxSpec{}, "extendSandbox": api.SandboxExtension{TTLMS: 60_000}, "resumeSandbox": api.SandboxExtension{TTLMS: 60_000}, "runExec": api.ExecSpec{Argv: []string{"true"}},
		"startExec": api.ExecSpec{Argv: []string{"true"}}, "writeStdin": []byte("x"), "signalExec": api.ExecSignal{Signal: "SIGTERM"},
		"resizeExec": api.TerminalSize{Cols: 80, Rows: 24}, "putArchive": []byte("x"), "writeFile": []byte("x"),
		"makeDirectory": api.FilePlace{Path: "d"}, "moveFile": api.FileMove{From: "a", To: "b"},
		"updateTenant": api.TenantChange{Name: "x"}, "createKey": api.KeySpec{Name: "x", Scopes: []api.Scope{api.ScopeAdmin}},
	}
	send := func(rt route, key, jobID string) answer {
		sandboxID := box
		if jobID == nobody {
			sandboxID = noBox
		}
		path := strings.NewReplacer("{job_id}", jobID, "{sandbox_id}", sandboxID, "{exec_id}", "mine", "{tenant_id}", owner.ID, "{key_id}", revokedKey.ID).Replace(rt.path)
		if _, named := rt.query["path"]; named {
			path += "?path=f"
		}
		return r.send(rt.method, path, key, bodies[rt.operation])
	}
	callers := []struct {
		name, key string
		status    int // 0: as for what does not exist
	}{
		{"no key", "", 401}, {"malformed", "adk_x", 401}, {"unknown", unknown, 401}, {"revoked", revoked, 401},
		{"expired", expired, 401}, {"disabled", disabled, 403}, {"other tenant", wrong, 0},
	}
	t.Logf("%-18s %-7s %-45s no key · malformed · unknown · revoked · expired · disabled · other tenant · read only · write only · sandboxes: read only · write only", "operation", "method", "path")
	for _, rt := range routes {
		var line []string
		r.api.strangers = newLimiters() // guessing is limited elsewhere
		for _, c := range callers {
			a := send(rt, c.key, job.ID)
			line = append(line, fmt.Sprint(a.status))
			if strings.Contains(string(a.body), "secret of the owner") || strings.Contains(string(a.body), job.ID) && c.status == 0 && a.status < 300 {
				t.Errorf("%s, %s: got what is another's: %s", rt.operation, c.name, a.body)
			}
			switch {
			case rt.access == public:
				if a.status != 200 {
					t.Errorf("%s, %s: status %d", rt.operation, c.name, a.status)
				}
			case c.status != 0:
				if p := a.problem(t); p.Status != c.status {
					t.Errorf("%s, %s: status %d, want %d", rt.operation, c.name, p.Status, c.status)
				}
			case rt.access == scope(tenant.Admin):
				if p := a.problem(t); p.Code != api.ProblemCodeDenied {
					t.Errorf("%s, %s: %+v", rt.operation, c.name, p)
				}
			case strings.Contains(rt.path, "{job_id}"):
				theirs, none := a.problem(t), send(rt, c.key, nobody).problem(t)
				if theirs.Code != api.ProblemCodeNotFound || strings.ReplaceAll(theirs.Detail, job.ID, nobody) != none.Detail {
					t.Errorf("%s: another's job: %+v; one that is not there: %+v", rt.operation, theirs, none)
				}
			case strings.Contains(rt.path, "{sandbox_id}"):
				theirs, none := a.problem(t), send(rt, c.key, nobody).problem(t)
				if theirs.Code != api.ProblemCodeNotFound || strings.ReplaceAll(theirs.Detail, box, noBox) != none.Detail {
					t.Errorf("%s: another's sandbox: %+v; one that is not there: %+v", rt.operation, theirs, none)
				}
			case rt.operation == "whoAmI":
				if strings.Contains(string(a.body), owner.ID) || !strings.Contains(string(a.body), stranger.ID) {
					t.Errorf("whoAmI says %s", a.body)
				}
			}
		}
		// A key of the owner without the scope opens nothing either.
		for _, limited := range []struct {
			key string
			has tenant.Scope
		}{{reads, tenant.JobsRead}, {writes, tenant.JobsWrite}, {looks, tenant.SandboxesRead}, {drives, tenant.SandboxesWrite}} {
			a := send(rt, limited.key, job.ID)
			line = append(line, fmt.Sprint(a.status))
			allowed := rt.access == public || rt.access == anyKey || rt.access == scope(limited.has)
			if denied := a.status == http.StatusForbidden; denied == allowed {
				t.Errorf("%s with %s only: status %d", rt.operation, limited.has, a.status)
			}
		}
		t.Logf("%-18s %-7s %-45s %s", rt.operation, rt.method, rt.path, strings.Join(line, " · "))
	}

	// Each refusal is on record, and nothing was changed on the way.
	entries, err := r.control.AuditLog(t.Context(), "", 0, control.MaxPage)
	if err != nil {
		t.Fatal(err)
	}
	for _, rt := range routes {
		if rt.access == public {
			continue
		}
		if !slices.ContainsFunc(entries, func(e store.AuditEntry) bool {
			return e.Action == "access."+rt.operation && e.Result == "unauthenticated" && e.Remote == "127.0.0.1"
		}) {
			t.Errorf("%s: no refusal is in the audit log", rt.operation)
		}
	}
	if tn, err := r.control.Tenant(t.Context(), owner.ID); err != nil || tn.Name != "owner" {
		t.Errorf("the tenant is now %+v, %v", tn, err)
	}
	if list := r.send("GET", "/v1/jobs", wrong, nil); strings.Contains(string(list.body), job.ID) {
		t.Errorf("another tenant lists %s", list.body)
	}
	if list := r.send("GET", "/v1/sandboxes", wrong, nil); strings.Contains(string(list.body), box) {
		t.Errorf("another tenant lists %s", list.body)
	}
	if out := r.log.String(); strings.Contains(out, ownKey[12:]) || strings.Contains(out, wrong[12:]) || strings.Contains(out, revoked[12:]) {
		t.Error("the log holds a key")
	}
}

func TestChangesAreInTheAuditLog(t *testing.T) {
	r := newRig(t)
	a := r.send("POST", "/v1/admin/tenants", r.admin, api.TenantSpec{Name: "x"})
	var tn api.Tenant
	decode(t, a.body, &tn)
	if a.status != 201 || tn.Quota.Running != tenant.DefaultQuota().Running {
		t.Fatalf("%d %s", a.status, a.body)
	}
	path := "/v1/admin/tenants/" + tn.ID
	zero, yes := 0, true
	change := api.TenantChange{Quota: api.QuotaChange{Running: &zero}, Grants: api.GrantsChange{Shell: &yes, Repositories: &[]string{"acme/*"}}}
	decode(t, r.send("PATCH", path, r.admin, change).body, &tn)
	if tn.Quota.Running != 0 || tn.Quota.Queued != tenant.DefaultQuota().Queued || !tn.Grants.Shell || tn.Name != "x" || len(tn.Grants.Repositories) != 1 {
		t.Errorf("after the change: %+v", tn)
	}
	// Each grant stays when another is changed.
	var after api.Tenant
	decode(t, r.send("PATCH", path, r.admin, api.TenantChange{Grants: api.GrantsChange{Repositories: &[]string{}}}).body, &after)
	if !after.Grants.Shell || len(after.Grants.Repositories) != 0 {
		t.Errorf("after repositories alone: %+v", after.Grants)
	}
	made := r.send("POST", path+"/keys", r.admin, api.KeySpec{Name: "k", Scopes: []api.Scope{api.ScopeJobsRead, api.ScopeJobsWrite}})
	var key api.NewKey
	decode(t, made.body, &key)
	if made.status != 201 || !control.WellFormed(key.Secret) || !strings.HasPrefix(key.Secret, key.Key.Prefix) {
		t.Fatalf("%d %s", made.status, made.body)
	}
	job := r.job(key.Secret, trueJob())
	r.send("POST", "/v1/jobs/"+job.ID+"/cancel", key.Secret, nil)
	keys := r.send("GET", path+"/keys", r.admin, nil)
	if strings.Contains(string(keys.body), key.Secret[12:]) || !strings.Contains(string(keys.body), "last_used_at") {
		t.Errorf("keys: %s", keys.body)
	}
	if a := r.send("DELETE", path+"/keys/"+key.Key.ID, r.admin, nil); a.status != 204 {
		t.Errorf("revoke: %d %s", a.status, a.body)
	}
	if p := r.send("GET", "/v1/whoami", key.Secret, nil).problem(t); p.Code != api.ProblemCodeUnauthenticated {
		t.Errorf("a key that was revoked: %+v", p)
	}
	decode(t, r.send("PATCH", path, r.admin, api.TenantChange{Disabled: &yes}).body, &tn)
	if !tn.Disabled {
		t.Error("not disabled")
	}
	var list api.AuditList
	decode(t, r.send("GET", "/v1/admin/audit?limit=500", r.admin, nil).body, &list)
	var got []string
	for _, e := range list.Entries {
		if e.Remote != "127.0.0.1" {
			continue // the rig's own
		}
		got = append(got, e.Action+" "+e.Result)
		if e.Object == "" && !strings.HasPrefix(e.Action, "access.") || e.KeyID == "" {
			t.Errorf("entry %+v", e)
		}
	}
	want := []string{
		"tenant.create begun", "tenant.create ok", "tenant.update begun", "tenant.update ok", "tenant.update begun", "tenant.update ok", "key.create begun", "key.create ok",
		"job.create ok", "job.cancel ok", "key.revoke begun", "key.revoke ok", "access.whoAmI unauthenticated",
		"tenant.update begun", "tenant.update ok",
	}
	if !slices.Equal(got, want) {
		t.Errorf("audit log:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if a := r.send("GET", "/v1/admin/audit?limit=1&after=2&tenant_id="+tn.ID, r.admin, nil); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
}
