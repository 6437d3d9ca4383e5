// The Go runtime would keep the host's cgroup files open to follow the processor
// quota.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command agentdock-egress is the gateway through which sandboxes reach what they
// may reach outside. It runs as a user that nothing else has, and holds no secret
// of anybody.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/agentdock/agentdock/internal/egress"
	"github.com/agentdock/agentdock/internal/egress/policy"
	"github.com/agentdock/agentdock/internal/logging"
	"github.com/agentdock/agentdock/internal/settings"
	"github.com/agentdock/agentdock/internal/version"
)

func main() {
	if err := start(os.Args, os.Environ(), os.Stdout, os.Stderr); err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "agentdock-egress: %v\n", err)
		os.Exit(1)
	}
}

// config is every setting and what else the flags say.
type config struct {
	settings.Egress
	// ReadyFD and ExitWithFD are about the process that starts this one.
	ReadyFD, ExitWithFD int
	// ListenerFD is the socket that the first life has opened.
	ListenerFD int
	// NetworkFD is the operator's file, which the first life has opened too.
	NetworkFD int
	version   bool
}

func parse(args, environ []string, stdout io.Writer) (config, error) {
	c := config{Egress: settings.DefaultEgress()}
	if err := settings.OnlyKnown(environ, settings.EgressPrefix); err != nil {
		return c, fmt.Errorf("cannot start: %w", err)
	}
	if err := settings.Load(&c.Egress, environ); err != nil {
		return c, err
	}
	flags := pflag.NewFlagSet("agentdock-egress", pflag.ContinueOnError)
	flags.SetOutput(stdout)
	flags.Usage = func() {
		fmt.Fprintf(stdout, "agentdock-egress is the way out of sandboxes. Its settings are the variables %s…\n\n%s", settings.EgressPrefix, flags.FlagUsages())
	}
	flags.IntVar(&c.ReadyFD, "ready-fd", -1, "descriptor that gets the line \"ready\" when calls are taken")
	flags.IntVar(&c.ExitWithFD, "exit-with-fd", -1, "descriptor of a pipe; stop when its other end is closed")
	flags.IntVar(&c.ListenerFD, "listener-fd", -1, "descriptor of a socket that listens already")
	flags.IntVar(&c.NetworkFD, "network-fd", -1, "descriptor of the file with presets and mirrors")
	flags.BoolVar(&c.version, "version", false, "print the version and exit")
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	if flags.NArg() > 0 {
		return c, fmt.Errorf("cannot start: unknown argument %q; see --help", flags.Arg(0))
	}
	return c, nil
}

// start checks what it was given, exchanges the process for one that has nothing
// else, and in that one serves.
func start(args, environ []string, stdout, stderr io.Writer) error {
	environ, isolated := stage(environ)
	c, err := parse(args[1:], environ, stdout)
	switch {
	case err != nil:
		return err
	case c.version:
		_, err := fmt.Fprintln(stdout, version.Get())
		return err
	case !isolated:
		return isolate(args, c, environ)
	}
	if err := checkPrivileges(); err != nil {
		return err
	}
	return serve(c, logging.New(stderr, slog.LevelInfo))
}

func serve(c config, log *slog.Logger) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	file, err := networkFile(c)
	if err != nil {
		return fmt.Errorf("cannot start: %w", err)
	}
	l, err := listener(c, log)
	if err != nil {
		return fmt.Errorf("cannot start: %w", err)
	}
	gateway := egress.New(egress.Config{File: file, Resolver: resolver(c.DNS), Log: log})
	if c.ExitWithFD >= 0 {
		go func() {
			_, _ = io.Copy(io.Discard, os.NewFile(uintptr(c.ExitWithFD), "exit-with"))
			stop()
		}()
	}
	served := make(chan error, 1)
	go func() { served <- gateway.Serve(l) }()
	if c.ReadyFD >= 0 {
		ready := os.NewFile(uintptr(c.ReadyFD), "ready")
		_, _ = io.WriteString(ready, "ready\n")
		_ = ready.Close()
	}
	log.Info("serving", "socket", c.Socket, "uid", os.Getuid())
	select {
	case <-ctx.Done():
	case err = <-served:
	}
	log.Info("stopping")
	_ = l.Close()
	gateway.Close()
	return err
}

// networkFile is what the operator decided.
func networkFile(c config) (*policy.File, error) {
	if c.NetworkFD < 0 {
		return policy.Open(c.NetworkFile)
	}
	f := os.NewFile(uintptr(c.NetworkFD), c.NetworkFile)
	defer f.Close()
	file, err := policy.Parse(f)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", c.NetworkFile, err)
	}
	return file, nil
}

// resolver asks name servers of the operator, or the host's own.
func resolver(servers []string) *net.Resolver {
	r := &net.Resolver{PreferGo: true}
	if len(servers) == 0 {
		return r
	}
	var next atomic.Uint64
	r.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		d := net.Dialer{Timeout: 5 * time.Second}
		server := servers[next.Add(1)%uint64(len(servers))]
		return d.DialContext(ctx, network, server)
	}
	return r
}
