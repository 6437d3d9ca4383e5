// Command agentdock-api serves the HTTP API: it takes jobs and answers questions
// about them. It runs nothing and reaches no execution service.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/agentdock/agentdock/internal/backends"
	"github.com/agentdock/agentdock/internal/enginesocket"
	"github.com/agentdock/agentdock/internal/logging"
	"github.com/agentdock/agentdock/internal/settings"
	"github.com/agentdock/agentdock/internal/telemetry"
	"github.com/agentdock/agentdock/internal/version"
)

const usage = `agentdock-api serves the HTTP API of AgentDock.

  agentdock-api                       serve
  agentdock-api migrate               bring the tables up to date, and exit
  agentdock-api bootstrap-admin-key   make and print the first key, if there is none
  agentdock-api --version

Variables:
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := start(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "agentdock-api: %v\n", err)
		os.Exit(1)
	}
}

func start(ctx context.Context, args, environ []string, stdout, stderr io.Writer) error {
	if len(args) > 1 {
		return errors.New("cannot start: more than one argument; see --help")
	}
	do, connect := serve, backends.Open
	switch append(args, "")[0] {
	case "":
	case "migrate":
		do, connect = migrate, backends.OpenRecord
	case "bootstrap-admin-key":
		do, connect = bootstrap, backends.OpenRecord
	case "--version", "version":
		_, err := fmt.Fprintln(stdout, version.Get())
		return err
	case "--help", "-h", "help":
		fmt.Fprint(stdout, usage)
		return settings.WriteHelp(stdout, "agentdock-api")
	default:
		return fmt.Errorf("cannot start: unknown argument %q; see --help", args[0])
	}
	s, err := settings.LoadAPI(environ)
	if err != nil {
		return err
	}
	if err := enginesocket.Here().Refuse(); err != nil {
		return err
	}
	log := logging.New(stderr, slog.Level(s.Level), settings.Secrets(s)...)
	t, err := telemetry.Start(ctx, "agentdock-api", os.Getenv, log)
	if err != nil {
		return err
	}
	defer func() { _ = t.Stop() }() // it has said why in the log
	p, err := open(ctx, s, connect, t, log)
	if err != nil {
		return err
	}
	return errors.Join(do(ctx, p, stdout), p.close())
}
