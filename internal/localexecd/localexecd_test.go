package localexecd

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentdock/agentdock/internal/execd"
	"github.com/agentdock/agentdock/internal/execenv/fake"
	"github.com/agentdock/agentdock/internal/execrpc"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

// The test binary is also the service (with an environment in memory), and the
// caller that is killed. Which one it is, its arguments say: the service's
// environment is not the caller's.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "--socket":
			os.Exit(serve(os.Args[1:]))
		case "--state-dir":
			os.Exit(sweepAll(os.Args[2]))
		case "caller":
			os.Exit(callAndHang(os.Args[2]))
		}
	}
	os.Exit(m.Run())
}

func serve(args []string) int {
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	socket := flags.String("socket", "", "")
	state := flags.String("state-dir", "", "")
	flags.String("image-dir", "", "")
	flags.String("disk-dir", "", "")
	ready := flags.Int("ready-fd", -1, "")
	exitWith := flags.Int("exit-with-fd", -1, "")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if err := os.Mkdir(*state, 0o700); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	lock, err := lockFile(*state+"/lock", os.O_CREATE)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// Inside its directory, where the test looks: everything it was given.
	_ = os.WriteFile(filepath.Dir(*socket)+"/environ", []byte(strings.Join(os.Environ(), "\n")), 0o600)
	// Its log leads to the caller, which may be killed: that is no reason to die.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	for _, fd := range []int{*ready, *exitWith} {
		_ = syscall.SetNonblock(fd, true)
	}
	err = execd.Run(context.Background(), execd.Config{
		Socket: *socket,
		Policy: execd.Policy{Defaults: run.DefaultLimits(), Ceiling: run.Ceiling(), MaxLifetime: time.Hour, MaxSandboxes: 4, MaxExecs: 4},
		Ready:  os.NewFile(uintptr(*ready), "ready"), ExitWith: os.NewFile(uintptr(*exitWith), "exit-with"),
		Log: slog.New(slog.NewJSONHandler(os.Stderr, nil)),
	}, fake.New(fake.Config{}))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	_ = os.Remove(lock.Name())
	return 0
}

// sweepAll leaves word that it was called.
func sweepAll(state string) int {
	if err := os.Remove(state + "/lock"); err != nil {
		fmt.Fprintln(os.Stderr, "agentdock-execd: cannot sweep:", err)
		return 1
	}
	return errorStatus(os.WriteFile(filepath.Dir(filepath.Dir(state))+"/swept", nil, 0o600))
}

func errorStatus(err error) int {
	if err != nil {
		return 1
	}
	return 0
}

// callAndHang starts a service and waits to be killed.
func callAndHang(dir string) int {
	s, err := Start(context.Background(), Config{Dir: dir, Binary: "/proc/self/exe"})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(s.cmd.Process.Pid)
	select {}
}

func config(t *testing.T) Config {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// Short: a socket's path may have 107 bytes.
	dir, err := os.MkdirTemp("", "le")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return Config{Dir: dir, Binary: self, StartTimeout: 20 * time.Second, StopTimeout: 20 * time.Second}
}

// script is a service that does something else.
func script(t *testing.T, text string) Config {
	t.Helper()
	c := config(t)
	c.Binary = filepath.Join(t.TempDir(), "agentdock-execd")
	if err := os.WriteFile(c.Binary, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return c
}

func instances(t *testing.T, c Config) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(c.Dir, instancePrefix+"*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestStartAndStop(t *testing.T) {
	t.Setenv("AGENTDOCK_TEST_SECRET", "hunter2")
	c := config(t)
	s, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	client, err := execrpc.DialUnix(t.Context(), s.Socket())
	if err != nil {
		t.Fatal(err)
	}
	if client.Capabilities().Name != "fake" {
		t.Errorf("it is %+v", client.Capabilities())
	}
	client.Close()
	dirs := instances(t, c)
	if len(dirs) != 1 {
		t.Fatalf("instances: %q", dirs)
	}
	if info, err := os.Stat(dirs[0]); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory has mode %v, %v", info.Mode(), err)
	}
	environ, _ := os.ReadFile(dirs[0] + "/environ")
	if got := string(environ); !strings.HasPrefix(got, "PATH=") || strings.Contains(got, "\n") {
		t.Errorf("the service's environment is %q, want PATH alone", got)
	}
	pid := s.cmd.Process.Pid
	for range 2 {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}
	if left := instances(t, c); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the service is still there: %v", err)
	}
	if _, err := os.Stat(c.Dir + "/swept"); err == nil {
		t.Error("a service that stopped in order was swept")
	}
}

func TestManyAtOnce(t *testing.T) {
	c := config(t)
	errs := make(chan error)
	const n = 6
	for range n {
		go func() {
			if err := Sweep(t.Context(), c); err != nil {
				errs <- err
				return
			}
			s, err := Start(t.Context(), c)
			if err == nil {
				err = s.Stop()
			}
			errs <- err
		}()
	}
	for range n {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if left := instances(t, c); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func TestStartThatFailsSaysWhyAndLeavesNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		c    Config
		want string
	}{
		"says why":   {script(t, `echo '{"level":"INFO","msg":"hello"}' >&2; echo "agentdock-execd: cannot start: not root" >&2; exit 1`), "cannot start the execution service: not root"},
		"logs why":   {script(t, `echo '{"level":"ERROR","msg":"cannot listen","error":"in use"}' >&2; exit 1`), "cannot listen: in use"},
		"is silent":  {script(t, `exit 3`), "exit status 3"},
		"is killed":  {script(t, `kill -9 $$`), "signal: killed"},
		"not ready":  {script(t, `echo nonsense >&3; echo "that was nonsense" >&2`), "that was nonsense"},
		"no program": {func() Config { c := config(t); c.Binary = "/nonexistent"; return c }(), "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Start(t.Context(), tc.c)
			if err == nil {
				t.Fatal(s.Stop())
			}
			if !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "hello") {
				t.Errorf("got %q, want it to say %q", err, tc.want)
			}
			if left := instances(t, tc.c); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

func TestStartThatHangs(t *testing.T) {
	c := script(t, `echo "still thinking" >&2; exec sleep 1000`)
	c.StartTimeout, c.StopTimeout = 300*time.Millisecond, 200*time.Millisecond
	_, err := Start(t.Context(), c)
	if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "still thinking") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	c.StartTimeout = time.Minute
	if _, err = Start(ctx, c); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if left := instances(t, c); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func TestServiceThatIsKilled(t *testing.T) {
	c := config(t)
	s, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	if got := s.LastWords(); !strings.Contains(got, "killed") {
		t.Errorf("its last words are %q", got)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(c.Dir + "/swept"); err != nil {
		t.Error("what it left was not swept")
	}
	if left := instances(t, c); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// The caller is killed; then, in one case, the service too.
func TestServiceThatIsStopped(t *testing.T) {
	c := config(t)
	c.Silence = 200 * time.Millisecond
	s, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	client, err := execrpc.DialUnix(t.Context(), s.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	asked := make(chan struct{}, 100)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		s.KillWhenSilent(ctx, func(ctx context.Context) error {
			_, err := client.List(ctx)
			asked <- struct{}{}
			return err
		})
	}()
	for range 3 { // it answers, and lives
		<-asked
	}
	if err := syscall.Kill(s.Pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("a service that answers nothing was not killed")
	}
	<-watched
	if !strings.Contains(s.LastWords(), "did not answer") {
		t.Errorf("its last words are %q", s.LastWords())
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	if left := instances(t, c); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func TestCallerThatIsKilled(t *testing.T) {
	for name, both := range map[string]bool{"caller": false, "caller and service": true} {
		t.Run(name, func(t *testing.T) {
			c := config(t)
			caller := exec.Command(c.Binary, "caller", c.Dir)
			out, err := caller.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := caller.Start(); err != nil {
				t.Fatal(err)
			}
			var pid int
			if _, err := fmt.Fscan(out, &pid); err != nil {
				t.Fatal(err)
			}
			if err := Sweep(t.Context(), c); err != nil || len(instances(t, c)) != 1 {
				t.Errorf("a living instance was swept: %v", err)
			}
			if both {
				// Stopped first, so that it cannot clean up before it is killed.
				_ = syscall.Kill(pid, syscall.SIGSTOP)
			}
			_ = caller.Process.Kill()
			if both {
				// Its caller is gone, it is not: not ours to touch.
				_, _ = io.Copy(io.Discard, out)
				if err := Sweep(t.Context(), c); err != nil || len(instances(t, c)) != 1 {
					t.Errorf("an instance whose service lives was swept: %v", err)
				}
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			_ = caller.Wait()
			// Not before every thread of it is gone is its lock free: one sweep
			// waits for that.
			if err := Sweep(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			if left := instances(t, c); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
			if _, err := os.Stat(c.Dir + "/swept"); (err == nil) != both {
				t.Errorf("swept: %v, want %v", err == nil, both)
			}
		})
	}
}

func TestWhatCannotBeSweptStays(t *testing.T) {
	c := script(t, `echo "agentdock-execd: cgroup is busy" >&2; exit 1`)
	dir := filepath.Join(c.Dir, instancePrefix+"dead", stateDir)
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(dir+"/lock", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := Sweep(t.Context(), c); err == nil || !strings.Contains(err.Error(), "cgroup is busy") {
		t.Errorf("Sweep = %v", err)
	}
	if len(instances(t, c)) != 1 {
		t.Error("the record of it is gone")
	}
	self, _ := os.Executable()
	c.Binary = self
	if err := Sweep(t.Context(), c); err != nil || len(instances(t, c)) != 0 {
		t.Errorf("the next Sweep = %v", err)
	}
}

func TestDirectoryOfSomebodyElse(t *testing.T) {
	c := config(t)
	if err := os.Chmod(c.Dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), c); !fault.Is(err, fault.Denied) {
		t.Errorf("Start in a directory everybody can write to = %v", err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(config(t).Dir, link); err != nil {
		t.Fatal(err)
	}
	c.Dir = link
	if _, err := Start(t.Context(), c); err == nil {
		t.Error("Start follows a symlink")
	}
}

func TestFindBinary(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, program)
	t.Setenv("PATH", "relative:"+dir)
	if _, err := FindBinary(); !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), BinaryEnv) {
		t.Errorf("without one: %v", err)
	}
	if err := os.WriteFile(path, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := FindBinary(); err != nil || got != path {
		t.Errorf("in PATH: %q, %v", got, err)
	}
	t.Setenv(BinaryEnv, "/nonexistent")
	if _, err := FindBinary(); !fault.Is(err, fault.Invalid) {
		t.Errorf("named and missing: %v", err)
	}
	t.Setenv(BinaryEnv, path)
	if got, err := FindBinary(); err != nil || got != path {
		t.Errorf("named: %q, %v", got, err)
	}
}

// TestDiskDirectoryIsNotMade: a slip of the pen must not fill another disk.
func TestDiskDirectoryIsNotMade(t *testing.T) {
	cfg := config(t)
	cfg.DiskDir = filepath.Join(t.TempDir(), "missing")
	if _, err := Start(t.Context(), cfg); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "AGENTDOCK_DISK_DIR") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(cfg.DiskDir); err == nil {
		t.Error("it was made")
	}
}
