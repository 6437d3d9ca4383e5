package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/client"
	"github.com/agentdock/agentdock/internal/testenv"
)

// TestLiveSandboxOverTwoAPIs: one API process makes a sandbox and starts a
// command, and is killed; another one, over the same PostgreSQL and execution
// service, goes on with both. The worker, whose sweep looks at the same service,
// leaves them alone.
func TestLiveSandboxOverTwoAPIs(t *testing.T) {
	bin := binaries(t)
	images := os.Getenv("AGENTDOCK_IMAGE_DIR")
	if images == "" {
		images = "/var/lib/agentdock/images"
	}
	p := testenv.StartPlatform(t, testenv.PlatformConfig{ImageDir: images})
	other := testenv.StartProgram(t, p.Environment, `"msg":"serving"`, filepath.Join(bin, "agentdock-api"))
	dial := func(url string) *client.Client {
		t.Helper()
		c, err := client.New(url, client.WithAPIKey(p.Key))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.CloseIdleConnections)
		return c
	}
	one, two := dial(p.URL), dial("http://"+other.Find(`"listen":"([^"]+)"`))
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx := t.Context()
	box, err := one.CreateSandbox(ctx, api.SandboxSpec{TTLMS: 600_000})
	ok(err)
	exec, err := one.StartExec(ctx, box.ID, api.ExecSpec{Argv: []string{"cat"}, Stdin: true})
	ok(err)
	ok(one.WriteStdin(ctx, box.ID, exec, strings.NewReader("over one, "), false))
	p.API.Kill()

	ok(two.WriteStdin(ctx, box.ID, exec, strings.NewReader("over the other"), true))
	var out bytes.Buffer
	end, err := client.CopyExec(two.FollowExec(ctx, box.ID, exec, 0), &out, &out)
	ok(err)
	if out.String() != "over one, over the other" || end.Outcome.Kind != "exited" {
		t.Errorf("%q, %+v", out.String(), end.Outcome)
	}
	// A job beside it: the worker is at work, and has swept.
	job, err := two.CreateJob(ctx, api.JobSpec{Source: api.Source{Kind: "none"}, Commands: []api.Command{{Argv: []string{"true"}}}}, "")
	ok(err)
	if job, err = two.Wait(ctx, job.ID); err != nil || job.State != api.JobStateSucceeded {
		t.Errorf("the job beside it: %+v, %v", job, err)
	}
	if now, err := two.Sandbox(ctx, box.ID); err != nil || now.State != api.SandboxStateRunning {
		t.Errorf("the sandbox is %+v, %v", now, err)
	}
	killed, err := two.KillSandbox(ctx, box.ID)
	if err != nil || killed.State != api.SandboxStateEnded {
		t.Errorf("killed: %+v, %v", killed, err)
	}
	p.API.Start()
}
