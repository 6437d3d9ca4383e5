// The Go runtime would keep the host's cgroup files open to follow the processor
// quota. A sentry, which is this binary too, must hold nothing of the host.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command agentdock-execd is the execution service: it owns the sandboxes that
// hostile code runs in, and holds no secret of anybody.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/agentdock/agentdock/internal/execd"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/logging"
	"github.com/agentdock/agentdock/internal/settings"
	"github.com/agentdock/agentdock/internal/version"
)

func main() {
	runtimeEntry()
	os.Exit(execute(os.Args, os.Environ(), os.Stdout, os.Stderr, newEnvironment))
}

// opener makes the environment that is served, and what closes it.
type opener func(config, *slog.Logger) (execenv.Environment, func() error, error)

func execute(args, environ []string, stdout, stderr io.Writer, open opener) int {
	err := start(args, environ, stdout, stderr, open)
	if err == nil || errors.Is(err, pflag.ErrHelp) {
		return 0
	}
	fmt.Fprintf(stderr, "agentdock-execd: %v\n", err)
	return 1
}

// start checks what it was given, exchanges the process for one that has
// nothing else (isolate), and in that one serves.
func start(args, environ []string, stdout, stderr io.Writer, open opener) error {
	environ, isolated := stage(environ)
	c, err := parse(args[1:], environ, stdout)
	switch {
	case err != nil:
		return err
	case c.version:
		_, err := fmt.Fprintln(stdout, version.Get())
		return err
	}
	if err := checkUser(c, os.Geteuid()); err != nil {
		return err
	}
	if c.sweep {
		return sweep(c)
	}
	if err := execd.CheckEnvironment(environ); err != nil {
		return err
	}
	if !isolated {
		if c.Runtime.Runtime == settings.RuntimeDocker {
			// Found by a variable that the service does not keep.
			environ = append(environ, execd.Prefix+"DOCKER_SOCKET="+c.dockerSocket())
		}
		return isolate(args, execd.ScrubbedEnvironment(environ), c.ReadyFD, c.ExitWithFD)
	}
	if err := checkPrivileges(kept()); err != nil {
		return err
	}
	return serve(c, logging.New(stderr, slog.LevelInfo), open)
}

func serve(c config, log *slog.Logger, open opener) (err error) {
	service, err := c.service(log)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// Whoever reads the log may be killed. Saying so must not kill this process
	// before it has removed its sandboxes.
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	defer signal.Stop(pipe)
	if c.Socket != "" {
		if err := os.MkdirAll(filepath.Dir(c.Socket), 0o755); err != nil {
			return fmt.Errorf("cannot start: %w", err)
		}
	}
	env, closeEnv, err := open(c, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeEnv()) }()
	return execd.Run(ctx, service, env)
}

// checkUser wants root where sandboxes need it, and no root where they do not.
func checkUser(c config, uid int) error {
	switch {
	case c.Runtime.Runtime == settings.RuntimeGVisor && uid != 0:
		return errors.New("cannot start: sandboxes need root to set up their namespaces, mounts and limits; run it with sudo or from its systemd unit")
	case c.Runtime.Runtime == settings.RuntimeDocker && uid == 0 && !c.DockerAllowRootful:
		return errors.New("cannot start: SANDBOX_RUNTIME is docker, which needs no root, and this is root; run it as the user whose Docker daemon it is to use")
	}
	return nil
}
