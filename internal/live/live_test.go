package live

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/control"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/fake"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/store"
	"github.com/agentdock/agentdock/internal/tenant"
)

func (w *world) follow(x execenv.Exec) (string, run.Outcome) {
	w.Helper()
	var out strings.Builder
	w.ok(x.Output(w.Context(), 0, func(c execenv.Chunk) error { out.Write(c.Data); return nil }))
	res, err := x.Wait(w.Context())
	w.ok(err)
	return out.String(), res.Outcome
}

func TestFromCreateToKill(t *testing.T) {
	w := newWorld(t, fake.Config{})
	c := w.caller(tenant.Quota{})
	box := w.create(c, Request{Env: map[string]string{"TOKEN_OF_HIS": "visible inside only"}, Labels: map[string]string{"a": "b"}})
	if box.State != run.SandboxRunning || box.Node != "here" || box.AccessToken == "" || len(box.Spec.EnvNames) != 1 {
		t.Errorf("made: %+v", box)
	}
	if out, outcome := w.run(c, box.ID, "env"); !strings.Contains(out, "TOKEN_OF_HIS=visible") || !outcome.Success() {
		t.Errorf("%s: %s", outcome, out)
	}
	for range 2 {
		killed, err := w.Kill(t.Context(), c, box.ID)
		w.ok(err)
		if killed.State != run.SandboxEnded || killed.Outcome.Kind != run.Cancelled || killed.AccessToken != "" {
			t.Errorf("killed: %+v", killed)
		}
	}
	if n := w.there("here"); n != 0 {
		t.Errorf("%d sandboxes are left", n)
	}
	_, err := w.Open(t.Context(), c, box.ID)
	w.fails(err, fault.Gone)
}

// TestUnknownAndForeign: what is another tenant's looks like what does not
// exist, for every use case.
func TestUnknownAndForeign(t *testing.T) {
	w := newWorld(t, fake.Config{})
	box := w.create(w.caller(tenant.Quota{}), Request{})
	other := w.caller(tenant.Quota{})
	unknown := strings.Repeat("0", len(box.ID))
	calls := map[string]func(id string) error{
		"get":     func(id string) error { _, err := w.Get(t.Context(), other, id); return err },
		"open":    func(id string) error { _, err := w.Open(t.Context(), other, id); return err },
		"kill":    func(id string) error { _, err := w.Kill(t.Context(), other, id); return err },
		"metrics": func(id string) error { _, _, err := w.Metrics(t.Context(), other, id); return err },
		"extend":  func(id string) error { _, err := w.Extend(t.Context(), other, id, time.Hour, false); return err },
	}
	for what, call := range calls {
		for _, id := range []string{unknown, "", "../x", strings.Repeat("x", 5000), "a\x00b"} {
			w.fails(call(id), fault.NotFound)
		}
		foreign, none := call(box.ID), call(unknown)
		w.fails(foreign, fault.NotFound)
		if strings.ReplaceAll(foreign.Error(), box.ID, unknown) != none.Error() {
			t.Errorf("%s says %q of another's, and %q of what does not exist", what, foreign, none)
		}
	}
	page, err := w.List(t.Context(), other, store.SandboxQuery{TenantID: box.TenantID})
	if err != nil || len(page.Sandboxes) != 0 {
		t.Errorf("another tenant is shown %v, %v", page, err)
	}
	w.is(box, run.SandboxRunning)
}

func TestWhatIsRefused(t *testing.T) {
	w := newWorld(t, fake.Config{Images: []string{"default"}})
	c := w.caller(tenant.Quota{Sandboxes: 1})
	for what, r := range map[string]Request{
		"reserved variable": {Env: map[string]string{"GITHUB_TOKEN": "x"}},
		"limits":            {Limits: run.Limits{MemoryBytes: 1}},
		"label":             {Labels: map[string]string{"a b": "x"}},
		"image":             {Image: "a\nb"},
		"unknown image":     {Image: "elsewhere"},
		"time":              {TTL: time.Millisecond},
	} {
		if _, _, err := w.Create(t.Context(), c, r); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	box := w.create(c, Request{}) // none of them has kept a place
	_, _, err := w.Create(t.Context(), c, Request{})
	w.fails(err, fault.Exhausted)

	h, err := w.Open(t.Context(), c, box.ID)
	w.ok(err)
	for what, bad := range map[string]struct {
		Command
		code fault.Code
	}{
		"nothing":           {Command{}, fault.Invalid},
		"both":              {Command{Argv: []string{"true"}, Script: "true"}, fault.Invalid},
		"shell":             {Command{Argv: []string{"env", "bash", "-c", "true"}}, fault.Denied},
		"script":            {Command{Script: "true"}, fault.Denied},
		"directory":         {Command{Argv: []string{"true"}, Dir: "../.."}, fault.Invalid},
		"NUL":               {Command{Argv: []string{"a\x00b"}}, fault.Invalid},
		"terminal":          {Command{Argv: []string{"true"}, TTY: &execenv.WindowSize{}}, fault.Invalid},
		"reserved variable": {Command{Argv: []string{"true"}, Env: map[string]string{"CI": "no"}}, fault.Invalid},
		"id":                {Command{Argv: []string{"true"}, ID: "../x"}, fault.Invalid},
	} {
		if _, err := h.Start(t.Context(), bad.Command); !fault.Is(err, bad.code) {
			t.Errorf("%s: %v, want %s", what, err, bad.code)
		}
	}
	for _, id := range []string{"nobody", "", "../x"} {
		_, err = h.Attach(t.Context(), id)
		w.fails(err, fault.NotFound)
	}
	w.is(box, run.SandboxRunning)
	if out, _ := w.run(c, box.ID, "echo", "still here"); out != "still here\n" {
		t.Errorf("afterwards it says %q", out)
	}
}

// TestAnotherProcessGoesOn: what one API process has begun, another one follows.
// What one service can never have, another one may. And while one of them may
// have room later, the caller is told that, and not what the other one said.
func TestServicesThatCanNeverTakeASandbox(t *testing.T) {
	says := func(code fault.Code) fake.Config {
		return fake.Config{FailCreate: func(string) error { return fault.New(code, "no") }}
	}
	w := newWorld(t, says(fault.Unsupported), "never")
	c := w.caller(tenant.DefaultQuota())
	_, _, err := w.Create(t.Context(), c, Request{})
	w.fails(err, fault.Unsupported)

	w.serve("full", says(fault.Exhausted))
	w.serve("neither", says(fault.Unsupported))
	w.Sandboxes = w.another(Config{})
	_, _, err = w.Create(t.Context(), c, Request{})
	w.fails(err, fault.Exhausted)

	w.serve("roomy", fake.Config{})
	w.Sandboxes = w.another(Config{})
	if box := w.create(c, Request{}); w.there("roomy") != 1 {
		t.Errorf("sandbox %s is not where it can be", box.ID)
	}
}

func TestAnotherProcessGoesOn(t *testing.T) {
	w := newWorld(t, fake.Config{})
	c := w.caller(tenant.Quota{})
	box := w.create(c, Request{})
	h, err := w.Open(t.Context(), c, box.ID)
	w.ok(err)
	x, err := h.Start(t.Context(), Command{ID: "mine", Argv: []string{"cat"}, Stdin: true})
	w.ok(err)
	_, err = x.WriteStdin(t.Context(), []byte("one "))
	w.ok(err)

	other := w.another(Config{})
	h, err = other.Open(t.Context(), c, box.ID)
	w.ok(err)
	x, err = h.Attach(t.Context(), "mine")
	w.ok(err)
	_, err = x.WriteStdin(t.Context(), []byte("two"))
	w.ok(err)
	w.ok(x.CloseStdin(t.Context()))
	if out, outcome := w.follow(x); out != "one two" || !outcome.Success() {
		t.Errorf("%s: %q", outcome, out)
	}
	w.ok(other.Sweep(t.Context()))
	w.is(box, run.SandboxRunning)
}

func TestTheAccessToken(t *testing.T) {
	w := newWorld(t, fake.Config{})
	c := w.caller(tenant.Quota{}, tenant.Grants{Shell: true})
	box, neighbour := w.create(c, Request{}), w.create(w.caller(tenant.Quota{}), Request{})
	got, _, err := w.CallerOf(t.Context(), box.ID, box.AccessToken, "127.0.0.1")
	w.ok(err)
	if got.Tenant.ID != c.Tenant.ID || !got.Tenant.Grants.Shell || got.Has(tenant.Admin) || !got.Has(tenant.SandboxesWrite) {
		t.Errorf("the token is %+v", got)
	}
	for _, token := range []string{"", "wrong", neighbour.AccessToken} {
		_, _, err = w.CallerOf(t.Context(), box.ID, token, "")
		w.fails(err, control.Unauthenticated)
	}
	_, err = w.Kill(t.Context(), c, box.ID)
	w.ok(err)
	_, _, err = w.CallerOf(t.Context(), box.ID, box.AccessToken, "")
	w.fails(err, fault.NotFound)
	disabled := neighbour.TenantID
	w.ok(w.store.UpdateTenant(t.Context(), tenant.Tenant{ID: disabled, Name: "x", Disabled: true}))
	_, _, err = w.CallerOf(t.Context(), neighbour.ID, neighbour.AccessToken, "")
	w.fails(err, fault.Denied)
}

// TestFailedCreateLeavesNothing: whatever fails on the way, no sandbox and no
// place in the quota is left.
func TestFailedCreateLeavesNothing(t *testing.T) {
	broken := errors.New("broken")
	w := newWorld(t, fake.Config{FailCreate: func(string) error { return broken }})
	c := w.caller(tenant.Quota{Sandboxes: 1})
	for range 3 {
		box, _, err := w.Create(t.Context(), c, Request{})
		if err == nil || fault.Is(err, fault.Exhausted) {
			t.Fatalf("made although it fails: %v", err)
		}
		if got := w.is(box, run.SandboxEnded); got.Outcome.Kind != run.InfrastructureLost {
			t.Errorf("ended as %v", got.Outcome)
		}
	}
	if n := w.there("here"); n != 0 {
		t.Errorf("%d sandboxes are left", n)
	}
}

func TestCallerGoesWhileItIsCreated(t *testing.T) {
	w := newWorld(t, fake.Config{CreateTakes: time.Minute})
	c := w.caller(tenant.Quota{Sandboxes: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	box, _, err := w.Create(ctx, c, Request{})
	if err == nil {
		t.Fatal("made in no time")
	}
	w.is(box, run.SandboxEnded)
	if n := w.there("here"); n != 0 {
		t.Errorf("%d sandboxes are left", n)
	}
}
