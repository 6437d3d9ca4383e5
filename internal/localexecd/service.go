package localexecd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/agentdock/agentdock/internal/fault"
)

// Config says what to start. Fields that are empty are found.
type Config struct {
	// Dir is where instances are: DirEnv, or DefaultDir.
	Dir string
	// Binary is the service's program: see FindBinary.
	Binary string
	// ImageDir is the image store; empty is the service's own default.
	ImageDir string
	// DiskDir is where workspaces are that are large beside their memory:
	// DiskDirEnv, or DefaultDiskDir. Files in it have no names.
	DiskDir string
	// Runtime, AuthMode and DockerSocket are what the service is told: RuntimeEnv,
	// AuthModeEnv, DockerSocketEnv. Empty is its own default.
	Runtime, AuthMode, DockerSocket string
	// Gateway gives sandboxes a way to what they may reach: agentdock-egress, which
	// is beside the service's program, is started with it.
	Gateway bool
	// StartTimeout and StopTimeout bound how long each may take.
	StartTimeout, StopTimeout time.Duration
	// Silence is how long the service may leave a call unanswered, twice in a row:
	// see KillWhenSilent.
	Silence time.Duration
}

func (c Config) complete() (Config, error) {
	c.Runtime = cmp.Or(c.Runtime, os.Getenv(RuntimeEnv))
	c.AuthMode = cmp.Or(c.AuthMode, os.Getenv(AuthModeEnv))
	c.DockerSocket = cmp.Or(c.DockerSocket, os.Getenv(DockerSocketEnv))
	c.Dir = cmp.Or(c.Dir, os.Getenv(DirEnv), c.defaultDir())
	c.DiskDir = cmp.Or(c.DiskDir, os.Getenv(DiskDirEnv), DefaultDiskDir)
	if c.StartTimeout == 0 {
		c.StartTimeout = time.Minute
	}
	if c.StopTimeout == 0 {
		c.StopTimeout = 30 * time.Second
	}
	if c.Silence == 0 {
		c.Silence = 10 * time.Second
	}
	var err error
	if c.DockerSocket, err = c.dockerSocket(); err != nil {
		return c, err
	}
	// The service starts in another directory than ours.
	for _, path := range []*string{&c.Dir, &c.ImageDir, &c.DiskDir, &c.DockerSocket} {
		if *path == "" {
			continue
		}
		if *path, err = filepath.Abs(*path); err != nil {
			return c, fault.Wrap(fault.Internal, err, "cannot start the execution service")
		}
	}
	if c.DiskDir != DefaultDiskDir {
		// The service would make it, and a slip of the pen would fill a disk
		// that nobody meant.
		if info, err := os.Stat(c.DiskDir); err != nil || !info.IsDir() {
			return c, fault.Wrap(fault.Invalid, err, "cannot start the execution service: %s names %s, which is no directory; make it, on a disk with room", DiskDirEnv, c.DiskDir)
		}
	}
	if c.Binary == "" {
		c.Binary, err = FindBinary()
	}
	return c, err
}

// Service is a running execution service.
type Service struct {
	cfg      Config
	instance *instance
	cmd      *exec.Cmd
	gateway  *gateway
	exitWith *os.File // the service stops when this is closed
	said     *tail
	done     chan struct{}
	exit     error // valid once done is closed
	silent   atomic.Bool

	stop    sync.Once
	stopErr error
}

// Start starts a service and waits until it takes calls. It ends with the
// calling process, however that ends; Stop ends it before. When Start fails,
// nothing is left.
func Start(ctx context.Context, cfg Config) (_ *Service, err error) {
	if cfg, err = cfg.complete(); err != nil {
		return nil, err
	}
	i, err := newInstance(cfg.Dir)
	if err != nil {
		return nil, err
	}
	s := &Service{cfg: cfg, instance: i, said: &tail{}, done: make(chan struct{})}
	if err := cfg.handOver(i); err != nil {
		return nil, errors.Join(err, i.remove())
	}
	if cfg.Gateway {
		if s.gateway, err = cfg.startGateway(ctx, i); err != nil {
			return nil, errors.Join(err, i.remove())
		}
	}
	ready, err := s.launch()
	if err != nil {
		s.gateway.stop()
		return nil, errors.Join(fault.Wrap(fault.Unsupported, err, "cannot start the execution service %s", cfg.Binary), i.remove())
	}
	if err := s.awaitReady(ctx, ready); err != nil {
		if stopErr := s.Stop(); stopErr != nil {
			err = fmt.Errorf("%w; and afterwards: %w", err, stopErr)
		}
		return nil, err
	}
	return s, nil
}

// launch starts the process. The environment holds nothing of ours: what runs
// hostile code must not even be able to name our secrets.
func (s *Service) launch() (ready *os.File, err error) {
	ready, theirReady, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	theirExit, exitWith, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, ready.Close(), theirReady.Close())
	}
	defer theirReady.Close()
	defer theirExit.Close()
	args := []string{"--socket", s.instance.socket(), "--state-dir", s.instance.state(), "--disk-dir", s.cfg.DiskDir, "--ready-fd", "3", "--exit-with-fd", "4"}
	if s.gateway != nil {
		args = append(args, "--egress-socket", s.instance.gateway())
	}
	if s.cfg.ImageDir != "" {
		args = append(args, "--image-dir", s.cfg.ImageDir)
	}
	s.cmd, err = s.cfg.command(args...)
	if err != nil {
		return nil, errors.Join(err, ready.Close(), exitWith.Close())
	}
	s.cmd.Stderr = s.said
	s.cmd.ExtraFiles = []*os.File{theirReady, theirExit}
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(err, ready.Close(), exitWith.Close())
	}
	s.exitWith = exitWith
	go func() {
		s.exit = s.cmd.Wait()
		close(s.done)
	}()
	return ready, nil
}

func (c Config) command(args ...string) (*exec.Cmd, error) {
	owner, err := c.owner()
	if err != nil {
		return nil, err
	}
	if c.DockerSocket != "" {
		args = append(args, "--docker-socket", c.DockerSocket)
	}
	cmd := exec.Command(c.Binary, args...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	for name, value := range map[string]string{RuntimeEnv: c.Runtime, AuthModeEnv: c.AuthMode} {
		if value != "" {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	cmd.Dir = "/"
	// A session of its own: Ctrl-C is for the caller, which stops the service
	// in order, and not for both at once.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: owner}
	// Its descendants may hold its stderr open; they are not waited for.
	cmd.WaitDelay = time.Second
	return cmd, nil
}

func (s *Service) awaitReady(ctx context.Context, ready *os.File) error {
	defer ready.Close() // also ends the goroutine
	said := make(chan string, 1)
	go func() {
		line, _ := io.ReadAll(io.LimitReader(ready, 6))
		said <- string(line)
	}()
	late := time.NewTimer(s.cfg.StartTimeout)
	defer late.Stop()
	select {
	case line := <-said:
		if line == "ready\n" {
			return nil
		}
		// It closed the pipe, so it is about to exit; why is what it says last.
		select {
		case <-s.done:
		case <-time.After(5 * time.Second):
		}
		return fault.New(fault.Unavailable, "cannot start the execution service: %s", s.lastWords())
	case <-late.C:
		return fault.New(fault.Unavailable, "cannot start the execution service: it was not ready after %s%s", s.cfg.StartTimeout, s.andSaid())
	case <-ctx.Done():
		return fault.Wrap(fault.Unavailable, ctx.Err(), "starting the execution service was given up")
	}
}

// Socket is where the service takes calls.
func (s *Service) Socket() string { return s.instance.socket() }

// Pid is the service's process, for looking at what it holds.
func (s *Service) Pid() int { return s.cmd.Process.Pid }

// StateDir is where the service keeps what its sandboxes need while they live.
func (s *Service) StateDir() string { return s.instance.state() }

// Done is closed when the service has ended, by Stop or by itself.
func (s *Service) Done() <-chan struct{} { return s.done }

// LastWords says how a service that is Done ended, for people.
func (s *Service) LastWords() string {
	select {
	case <-s.done:
		return s.lastWords()
	default:
		return "it is running"
	}
}

func (s *Service) lastWords() string {
	if s.silent.Load() {
		return fmt.Sprintf("it did not answer for %s, as if it had been stopped, and was killed for that", 2*s.cfg.Silence)
	}
	if said := s.said.last(); said != "" {
		return said
	}
	select {
	case <-s.done:
		if s.exit == nil {
			return "it exited without saying why"
		}
		return s.exit.Error() // "signal: killed"
	default:
		return "it does not answer and does not say why"
	}
}

// LastError is what the service's log gives as the reason of its last error, or "".
func (s *Service) LastError() string { return s.said.last() }

// KillWhenSilent asks the service something, again and again, and kills it when it
// has stopped to answer: whoever waits for it would wait for ever. An error of ask
// is no answer. It returns when ctx or the service has ended.
func (s *Service) KillWhenSilent(ctx context.Context, ask func(context.Context) error) {
	// Twice: this process may have been stopped itself during one.
	for unanswered := 0; unanswered < 2; {
		call, cancel := context.WithTimeout(ctx, s.cfg.Silence)
		if ask(call) == nil {
			unanswered = 0
		} else {
			unanswered++
		}
		select {
		case <-call.Done():
		case <-s.done:
		}
		cancel()
		if ctx.Err() != nil || s.ended() {
			return
		}
	}
	s.silent.Store(true)
	_ = s.cmd.Process.Kill()
}

func (s *Service) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

func (s *Service) andSaid() string {
	if said := s.said.last(); said != "" {
		return "; its last message: " + said
	}
	return ""
}

// Stop stops the service with all its sandboxes and waits until it is gone and
// nothing of it is left, whatever has to be done for that. It may be called
// again, and then returns the same.
func (s *Service) Stop() error {
	s.stop.Do(func() { s.stopErr = s.halt() })
	return s.stopErr
}

func (s *Service) halt() error {
	_ = s.exitWith.Close()
	select {
	case <-s.done:
	case <-time.After(s.cfg.StopTimeout):
		_ = s.cmd.Process.Kill() // its sandboxes end with it
		<-s.done
	}
	s.gateway.stop()
	// Not the caller's context: this is what must happen in any case.
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.StopTimeout)
	defer cancel()
	if err := s.cfg.sweep(ctx, s.instance); err != nil {
		// The directory stays: the next start finds it and tries again.
		return errors.Join(fmt.Errorf("cannot remove what the execution service left in %s: %w", s.instance.dir, err), s.instance.lock.Close())
	}
	return s.instance.remove()
}

// sweep removes what a service that is gone left outside its directory. A
// service that stopped in order has taken its lock file away, and left nothing.
func (c Config) sweep(ctx context.Context, i *instance) error {
	if _, err := os.Lstat(i.state() + "/lock"); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	said := &tail{}
	cmd, err := c.command("--state-dir", i.state(), "--sweep")
	if err != nil {
		return err
	}
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	if err := cmd.Wait(); err != nil {
		if words := said.last(); words != "" {
			return errors.New(words)
		}
		return err
	}
	return nil
}

// tail keeps the end of what a process says.
type tail struct {
	mu   sync.Mutex
	data []byte
}

const tailBytes = 16 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = append(t.data, p...)
	if over := len(t.data) - tailBytes; over > 0 {
		t.data = append(t.data[:0], t.data[over:]...)
	}
	return len(p), nil
}

// last is the last line in which the service says why it ends: what it prints
// itself, or an error in its log.
func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	words := ""
	for line := range strings.Lines(string(t.data)) {
		line = strings.TrimSpace(line)
		var entry struct{ Level, Msg, Error string }
		switch {
		case line == "":
		case json.Unmarshal([]byte(line), &entry) != nil:
			words = strings.TrimPrefix(strings.TrimPrefix(line, program+": "), "cannot start: ")
		case entry.Level == "ERROR":
			words = strings.TrimSuffix(entry.Msg+": "+entry.Error, ": ")
		}
	}
	return words
}
