package fake_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/execenv/fake"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

func create(t *testing.T, env execenv.Environment) execenv.Sandbox {
	t.Helper()
	s, err := env.Create(context.Background(), execenv.Spec{ID: "one", Image: "any", Limits: run.DefaultLimits()})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestDefaultPrograms(t *testing.T) {
	env := fake.New(fake.Config{})
	t.Cleanup(env.Close)
	s := create(t, env)
	for _, tc := range []struct {
		argv  string
		stdin string
		want  string
		code  int
	}{
		{"true", "", "", 0},
		{"false", "", "", 1},
		{"echo a b", "", "a b\n", 0},
		{"cat", "typed", "typed", 0},
		{"tee file", "kept", "kept", 0},
		{"cat file", "", "kept", 0},
		{"cat missing", "", "", 1},
		{"pwd", "", "/workspace\n", 0},
		{"sleep 0.01", "", "", 0},
		{"/bin/echo by path", "", "by path\n", 0},
	} {
		x, err := s.Exec(context.Background(), execenv.ExecSpec{Argv: strings.Fields(tc.argv), Stdin: true})
		if err != nil {
			t.Fatal(err)
		}
		if tc.stdin != "" {
			if _, err := x.WriteStdin(context.Background(), []byte(tc.stdin)); err != nil {
				t.Errorf("%s: %v", tc.argv, err)
			}
		}
		_ = x.CloseStdin(context.Background())
		var out strings.Builder
		_ = x.Output(context.Background(), 0, func(c execenv.Chunk) error {
			if c.Stream == execenv.Stdout {
				out.Write(c.Data)
			}
			return nil
		})
		r, err := x.Wait(context.Background())
		if err != nil || r.Outcome.Kind != run.Exited || *r.Outcome.ExitCode != tc.code || out.String() != tc.want {
			t.Errorf("%s: %v, %v, prints %q, want %q and %d", tc.argv, r.Outcome, err, out.String(), tc.want, tc.code)
		}
	}
}

func TestLimitThatIsNotEnforcedIsRefused(t *testing.T) {
	for name, lack := range map[string]func(*execenv.Enforces){
		"cpu": func(e *execenv.Enforces) { e.CPU = false }, "memory": func(e *execenv.Enforces) { e.Memory = false },
		"pids": func(e *execenv.Enforces) { e.PIDs = false }, "disk": func(e *execenv.Enforces) { e.Disk = false },
		"inodes": func(e *execenv.Enforces) { e.Inodes = false }, "output": func(e *execenv.Enforces) { e.Output = false },
		"wall clock": func(e *execenv.Enforces) { e.WallClock = false },
	} {
		enforces := execenv.Enforces{CPU: true, Memory: true, PIDs: true, Disk: true, Inodes: true, Output: true, WallClock: true}
		lack(&enforces)
		env := fake.New(fake.Config{Enforces: &enforces})
		_, err := env.Create(context.Background(), execenv.Spec{ID: "one", Image: "any", Limits: run.DefaultLimits()})
		if !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), name) {
			t.Errorf("without a %s limit: %v", name, err)
		}
	}
}

// TestKillDoesNotWaitForTheProgram: a Program that does not look at its Proc
// is as dead to callers as any other.
func TestKillDoesNotWaitForTheProgram(t *testing.T) {
	release := make(chan struct{})
	ended := make(chan struct{})
	env := fake.New(fake.Config{Programs: map[string]fake.Program{"deaf": func(p *fake.Proc) int {
		defer close(ended)
		<-release
		_, _ = p.Stdout.Write([]byte("too late"))
		return 0
	}}})
	t.Cleanup(env.Close)
	x, err := create(t, env).Exec(context.Background(), execenv.ExecSpec{Argv: []string{"deaf"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Kill(context.Background()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	r, err := x.Wait(ctx)
	if err != nil || r.Outcome.Kind != run.Cancelled {
		t.Errorf("Wait: %v, %v", r.Outcome, err)
	}
	close(release)
	<-ended
	_ = x.Output(ctx, 0, func(c execenv.Chunk) error {
		t.Errorf("the killed program wrote %q", c.Data)
		return nil
	})
}
