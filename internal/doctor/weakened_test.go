package doctor

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/run"
)

// TestAnUnconfinedProgramIsFoundOut runs the attacks against an environment that
// confines nothing: its sandboxes are plain processes of this host. Each attack
// must come through, or "holds" means nothing.
func TestAnUnconfinedProgramIsFoundOut(t *testing.T) {
	dir := t.TempDir()
	guest := filepath.Join(dir, "agentdock-guest")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", guest, "github.com/agentdock/agentdock/cmd/agentdock-guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	root := filepath.Join(dir, "root")
	for _, d := range []string{"etc", "usr", ".agentdock", "proc/sys/kernel/hostname", "sys/fs/cgroup", "workspace", "tmp", "dev/shm"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s := &session{env: host{guest: guest, root: root}, guest: guest, dir: dir}
	// The others look at the service's processes, of which there are none here.
	attacks := map[string]bool{
		"kernel isolation": true, "no network": true, "unprivileged inside": true, "read-only root": true, "fresh workspace": true,
		"process quota": true, "disk quota": true, "inode quota": true, "output quota": true, "memory quota": true, "wall clock": true,
	}
	for _, c := range checks {
		if !attacks[c.name] {
			continue
		}
		delete(attacks, c.name)
		if g := c.examine(t.Context(), s); g.Status != Broken || g.Do == "" {
			t.Errorf("%s: %s: %s (control: %s)", c.name, g.Status, g.Evidence, g.Control)
		}
	}
	if len(attacks) > 0 {
		t.Errorf("there are no checks %v", attacks)
	}
}

// host is an environment without any boundary. Paths are below root, so that
// attacks which come through hit nothing of this machine.
type host struct {
	execenv.Environment
	guest, root string
}

func (h host) Create(_ context.Context, spec execenv.Spec) (execenv.Sandbox, error) {
	return hostBox{host: h, id: spec.ID}, nil
}

func (h host) Destroy(context.Context, string) error { return nil }

type hostBox struct {
	execenv.Sandbox
	host host
	id   string
}

func (b hostBox) ID() string { return b.id }

func (b hostBox) Exec(_ context.Context, spec execenv.ExecSpec) (execenv.Exec, error) {
	args := []string{}
	for _, a := range spec.Argv[1:] {
		if strings.HasPrefix(a, "/") {
			a = filepath.Join(b.host.root, a)
		}
		args = append(args, a)
	}
	e := &hostExec{cmd: exec.Command(b.host.guest, args...), root: b.host.root, began: time.Now()}
	e.cmd.Stdout = &e.out
	if err := e.cmd.Start(); err != nil {
		return nil, err
	}
	// Not a limit, which there is none of: the end of the test's patience.
	e.patience = time.AfterFunc(3*time.Second, func() { _ = e.cmd.Process.Kill() })
	return e, nil
}

type hostExec struct {
	execenv.Exec
	cmd      *exec.Cmd
	root     string
	out      bytes.Buffer
	began    time.Time
	patience *time.Timer
	waited   bool
	result   execenv.Result
}

func (e *hostExec) Wait(context.Context) (execenv.Result, error) {
	if !e.waited {
		e.waited = true
		_ = e.cmd.Wait()
		e.patience.Stop()
		outcome := run.Outcome{Kind: run.Signalled, Signal: "SIGKILL"}
		if code := e.cmd.ProcessState.ExitCode(); code >= 0 {
			outcome = run.ExitedWith(code, "")
		}
		e.result = execenv.Result{Outcome: outcome, StdoutBytes: int64(e.out.Len()), Duration: time.Since(e.began)}
	}
	return e.result, nil
}

func (e *hostExec) Output(ctx context.Context, _ int64, yield func(execenv.Chunk) error) error {
	if _, err := e.Wait(ctx); err != nil {
		return err
	}
	text := strings.ReplaceAll(e.out.String(), e.root+" ", "/ ")
	return yield(execenv.Chunk{Stream: execenv.Stdout, Data: []byte(strings.ReplaceAll(text, e.root, ""))})
}

func (e *hostExec) Kill(context.Context) error { return e.cmd.Process.Kill() }
