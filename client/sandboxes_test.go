package client_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/client"
)

func (p *platform) sandbox(c *client.Client) string {
	p.t.Helper()
	box, err := c.CreateSandbox(p.t.Context(), api.SandboxSpec{Labels: map[string]string{"of": "test"}})
	p.check(err)
	return box.ID
}

func TestSandbox(t *testing.T) {
	p := newPlatform(t)
	c, ctx := p.client(p.key), t.Context()
	id := p.sandbox(c)
	var out, errs bytes.Buffer
	end, err := client.CopyExec(c.RunExec(ctx, id, api.ExecSpec{ID: "e", Argv: []string{"echo", "hello"}}), &out, &errs)
	p.check(err)
	if out.String() != "hello\n" || errs.Len() > 0 || end.Outcome.Kind != "exited" {
		t.Errorf("%q, %q, %+v", out.String(), errs.String(), end)
	}
	out.Reset()
	if _, err := client.CopyExec(c.FollowExec(ctx, id, "e", 2), &out, &errs); err != nil || out.String() != "llo\n" {
		t.Errorf("from offset 2: %q, %v", out.String(), err)
	}
	execs, err := c.Execs(ctx, id)
	if err != nil || len(execs) != 1 || execs[0].ID != "e" || execs[0].Running {
		t.Errorf("commands %+v, %v", execs, err)
	}
	box, err := c.ExtendSandbox(ctx, id, time.Hour, true)
	if err != nil || time.Until(box.ExpiresAt) < 50*time.Minute {
		t.Errorf("extended %+v, %v", box, err)
	}
	if m, err := c.SandboxMetrics(ctx, id); err != nil || len(m.Samples) == 0 {
		t.Errorf("metrics %+v, %v", m, err)
	}
	n := 0
	for box, err := range c.Sandboxes(ctx, client.SandboxQuery{Labels: map[string]string{"of": "test"}, PageSize: 1}) {
		if err != nil || box.ID != id {
			t.Errorf("listed %+v, %v", box, err)
		}
		n++
	}
	if n != 1 {
		t.Errorf("%d listed", n)
	}
	killed, err := c.KillSandbox(ctx, id)
	if err != nil || killed.State != api.SandboxStateEnded {
		t.Errorf("killed %+v, %v", killed, err)
	}
	if _, err := c.StartExec(ctx, id, api.ExecSpec{Argv: []string{"true"}}); !client.Is(err, api.ProblemCodeGone) {
		t.Errorf("in a dead sandbox: %v", err)
	}
}

// TestExecOverARestart: the API is restarted under a command whose output is
// followed. It goes on, and nothing of its output is missed or comes twice.
func TestExecOverARestart(t *testing.T) {
	p := newPlatform(t)
	c, ctx := p.client(p.key), t.Context()
	id := p.sandbox(c)
	exec, err := c.StartExec(ctx, id, api.ExecSpec{Argv: []string{"cat"}, Stdin: true})
	p.check(err)
	var got strings.Builder
	restarted := false
	p.check(c.WriteStdin(ctx, id, exec, strings.NewReader("before "), false))
	for event, err := range c.FollowExec(ctx, id, exec, 0) {
		p.check(err)
		if event.Output != nil {
			got.Write(client.ExecOutputBytes(event.Output))
		}
		if !restarted && strings.Contains(got.String(), "before") {
			restarted = true
			p.stop()
			p.start()
			p.check(c.WriteStdin(ctx, id, exec, strings.NewReader("after"), true))
		}
		if event.End != nil && !event.End.Truncated && event.End.Outcome.Kind != "exited" {
			t.Errorf("ended as %+v", event.End)
		}
	}
	if got.String() != "before after" {
		t.Errorf("output %q", got.String())
	}
}

func TestKillAndSignal(t *testing.T) {
	p := newPlatform(t)
	c, ctx := p.client(p.key), t.Context()
	id := p.sandbox(c)
	for name, end := range map[string]func(string) error{
		"cancelled": func(x string) error { return c.KillExec(ctx, id, x) },
		"signalled": func(x string) error { return c.SignalExec(ctx, id, x, "SIGKILL") },
	} {
		x, err := c.StartExec(ctx, id, api.ExecSpec{Argv: []string{"sleep", "1000"}})
		p.check(err)
		p.check(end(x))
		res, err := client.CopyExec(c.FollowExec(context.WithoutCancel(ctx), id, x, 0), &bytes.Buffer{}, &bytes.Buffer{})
		if err != nil || res.Outcome.Kind != name {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
	}
}
