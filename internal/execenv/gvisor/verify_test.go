package gvisor

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/lifecycle"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/testenv"
)

func TestVerifyHoldsHereAndLeavesNothing(t *testing.T) {
	testenv.RequireRoot(t)
	env := newTestEnvironment(t)
	began := time.Now()
	if err := inner(env).Verify(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("took %s", time.Since(began))
	if infos, err := env.List(t.Context()); err != nil || len(infos) > 0 {
		t.Errorf("left: %v, %v", infos, err)
	}
}

// A check that finds nothing is worth nothing: each is shown a sandbox that is
// not what it is told to expect.
func TestVerifyNotices(t *testing.T) {
	testenv.RequireRoot(t)
	env := newTestEnvironment(t)
	ctx := context.Background()
	if _, err := env.Create(ctx, execenv.Spec{ID: "odd", Image: "bare", Limits: run.DefaultLimits()}); err != nil {
		t.Fatal(err)
	}
	b, _ := inner(env).boxes.Find("odd")
	expect := func(what string, problems []string, want string) {
		t.Helper()
		if got := strings.Join(problems, "; "); !strings.Contains(got, want) {
			t.Errorf("%s: it says %q, want %q", what, got, want)
		}
	}
	if problems := append(verifyGroup(b), verifySentry(b)...); len(problems) > 0 {
		t.Errorf("as it is: %q", problems)
	}
	larger := b.Spec
	larger.Limits.MemoryBytes += 1 << 20
	more := &box{Sandbox: lifecycle.NewSandbox(larger, nil), env: b.env, user: b.user + 1, group: b.group, sentry: b.sentry}
	expect("another memory limit", verifyGroup(more), "A5g: the kernel enforces")
	expect("another user", verifySentry(more), "A5b: Uid")
	empty := inner(env).hierarchy.Group(inner(env).group + "/empty")
	if err := empty.Create(hostLimits(b.Spec.Limits)); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := empty.Destroy(ctx); err != nil {
			t.Error(err)
		}
	}()
	expect("processes elsewhere", verifyGroup(&box{Sandbox: b.Sandbox, env: b.env, group: empty, sentry: b.sentry}), "is outside its control group")
}
