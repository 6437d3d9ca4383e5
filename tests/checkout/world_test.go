package checkout

import (
	"bytes"
	"context"
	"os"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/checkout"
	"github.com/agentdock/agentdock/internal/checkout/checkouttest"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/image"
	"github.com/agentdock/agentdock/internal/run"
	"github.com/agentdock/agentdock/internal/testenv"
)

// images is the store with the default image. Where there is none, tests are
// skipped and say so, unless they must run.
func images(t *testing.T) string {
	t.Helper()
	testenv.RequireRoot(t)
	dir := os.Getenv(image.DirEnv)
	if dir == "" {
		dir = image.DefaultDir
	}
	store, err := image.Open(dir)
	if err == nil {
		_, err = store.Resolve("default")
	}
	if err != nil {
		const missing = "there is no default image; make it with: agentdock image build"
		if os.Getenv("AGENTDOCK_TEST_REQUIRE_REAL") == "1" {
			t.Fatalf("%s (%v)", missing, err)
		}
		t.Skipf("%s (%v)", missing, err)
	}
	return dir
}

// world is a GitHub, a place for packs, and an execution service.
type world struct {
	t      *testing.T
	github *checkouttest.GitHub
	env    execenv.Environment
	execd  *testenv.Execd
	packs  string
}

func newWorld(t *testing.T, imageDir string) *world {
	t.Helper()
	w := &world{t: t, github: checkouttest.Start(t), packs: t.TempDir()}
	w.execd = testenv.StartExecd(t, imageDir)
	w.env = w.execd.Dial()
	return w
}

func (w *world) open(change func(*checkout.Config)) *checkout.Checkout {
	w.t.Helper()
	cfg := checkout.Config{App: w.github.App(), Egress: w.github.Egress(), Dir: w.packs, Agent: "agentdock/test"}
	if change != nil {
		change(&cfg)
	}
	c, err := checkout.New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// sandbox makes one, which is gone when f returns.
func (w *world) sandbox(t *testing.T, id, imageName string, limits run.Limits, f func(sb execenv.Sandbox)) {
	t.Helper()
	ctx := context.Background()
	sb, err := w.env.Create(ctx, execenv.Spec{ID: id, Image: imageName, Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := w.env.Destroy(ctx, id); err != nil {
			t.Error(err)
		}
	}()
	f(sb)
}

// output runs a command and returns all it prints.
func output(t *testing.T, sb execenv.Sandbox, argv ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	// HOME is the workspace: a repository's .gitconfig would be the user's.
	x, err := sb.Exec(ctx, execenv.ExecSpec{Argv: argv, Env: map[string]string{"GIT_CONFIG_GLOBAL": "/dev/null"}})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := x.Output(ctx, 0, func(c execenv.Chunk) error {
		b.Write(c.Data)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	res, err := x.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if !res.Outcome.Success() {
		t.Errorf("%q: %v\n%s", argv, res.Outcome, b.String())
	}
	return b.String()
}

// empty fails the test if a pack is left, or a token lives.
func (w *world) empty(t *testing.T) {
	t.Helper()
	if names, err := os.ReadDir(w.packs); err != nil || len(names) != 0 {
		t.Errorf("in the directory for packs there is %v, %v", names, err)
	}
	if n := w.github.Live(); n != 0 {
		t.Errorf("%d tokens live", n)
	}
}
