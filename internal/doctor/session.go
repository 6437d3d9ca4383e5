package doctor

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/run"
)

// guestInside is where every sandbox has the helper with the probes.
const guestInside = "/.agentdock/agentdock-guest"

// controlTimeout bounds a probe that runs on the host.
const controlTimeout = 10 * time.Second

// session is what checks work with. Sandboxes are shared where that does not
// change what is found: making one costs more than most probes.
type session struct {
	env      execenv.Environment
	service  int    // the service's process
	stateDir string // the service's
	guest    string // the helper, on the host
	dir      string // for controls, on the host

	first, second execenv.Sandbox
}

// small are the limits that probes run into quickly.
func small() run.Limits {
	return run.Limits{
		MilliCPU: 1000, MemoryBytes: 128 * run.MiB, PIDs: 48, DiskBytes: 2 * run.MiB, Inodes: 96,
		OutputBytes: 8 * run.KiB, WallClock: 20 * time.Second,
	}
}

func (s *session) create(ctx context.Context, limits run.Limits) (execenv.Sandbox, error) {
	return s.env.Create(ctx, execenv.Spec{
		ID: "doctor-" + strings.ToLower(rand.Text()[:12]), Image: bareImage, Limits: limits, Lifetime: timeout,
	})
}

// sandbox is the one that most checks share.
func (s *session) sandbox(ctx context.Context) (execenv.Sandbox, error) {
	var err error
	if s.first == nil {
		s.first, err = s.create(ctx, small())
	}
	return s.first, err
}

// other is another one.
func (s *session) other(ctx context.Context) (execenv.Sandbox, error) {
	var err error
	if s.second == nil {
		s.second, err = s.create(ctx, small())
	}
	return s.second, err
}

// close destroys what is left, whatever has happened before. If it fails, the
// service's own stop ends them, and reports it.
func (s *session) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, sb := range []execenv.Sandbox{s.first, s.second} {
		if sb != nil {
			_ = s.env.Destroy(ctx, sb.ID())
		}
	}
}

// attempts are the lines "WHAT RESULT" of a probe; the last of a name wins.
type attempts struct {
	lines  []string
	result execenv.Result
}

func (a attempts) of(what string) string {
	for _, l := range a.lines {
		if value, ok := strings.CutPrefix(l, what+" "); ok {
			return value
		}
	}
	return ""
}

func (a attempts) all(what string) (values []string) {
	for _, l := range a.lines {
		if value, ok := strings.CutPrefix(l, what+" "); ok {
			values = append(values, value)
		}
	}
	return values
}

func (a attempts) number(what string) int64 {
	n, err := strconv.ParseInt(a.of(what), 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// inside runs a probe in a sandbox.
func (s *session) inside(ctx context.Context, sb execenv.Sandbox, spec execenv.ExecSpec, args ...string) (attempts, error) {
	spec.Argv = append([]string{guestInside, "probe"}, args...)
	c, err := sb.Exec(ctx, spec)
	if err != nil {
		return attempts{}, err
	}
	var out bytes.Buffer
	err = c.Output(ctx, 0, func(chunk execenv.Chunk) error { out.Write(chunk.Data); return nil })
	result, waitErr := c.Wait(ctx)
	if err := errors.Join(err, waitErr); err != nil {
		return attempts{}, err
	}
	if result.Outcome.Kind == run.NotStarted {
		return attempts{}, fmt.Errorf("cannot run the probe: %s", result.Outcome.Evidence)
	}
	return attempts{lines: strings.Split(strings.TrimSpace(out.String()), "\n"), result: result}, nil
}

// control is a probe that ran on the host.
type control struct {
	attempts
	cpu  time.Duration
	took time.Duration
	out  int
}

// outside runs a probe on the host, where the guarantee is absent, bounded in
// time. The probes themselves are bounded in what they use.
func (s *session) outside(ctx context.Context, args ...string) (control, error) {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	cmd := s.command(ctx, args...)
	began := time.Now()
	out, err := cmd.Output()
	if err != nil {
		return control{}, fmt.Errorf("cannot run the control: %w; %s belongs beside agentdock-execd", err, s.guest)
	}
	return control{
		attempts: attempts{lines: strings.Split(strings.TrimSpace(string(out)), "\n")},
		cpu:      cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(),
		took:     time.Since(began), out: len(out),
	}, nil
}

func (s *session) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.guest, append([]string{"probe"}, args...)...)
	cmd.Env = []string{}
	cmd.Dir = s.dir
	// A session of its own, which goes with the doctor if that is killed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = time.Second
	return cmd
}

// scratch is a new directory on the host for one control.
func (s *session) scratch() (string, error) { return os.MkdirTemp(s.dir, "") }
