// Command agentdock-worker takes jobs from the record and has them run by
// execution services, which are other processes. It holds what fetches
// repositories and what signs receipts, and no sandbox.
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

	"github.com/agentdock/agentdock/internal/enginesocket"
	"github.com/agentdock/agentdock/internal/logging"
	"github.com/agentdock/agentdock/internal/receipt"
	"github.com/agentdock/agentdock/internal/settings"
	"github.com/agentdock/agentdock/internal/telemetry"
	"github.com/agentdock/agentdock/internal/version"
)

const usage = `agentdock-worker runs the jobs of AgentDock.

  agentdock-worker              work
  agentdock-worker public-key   print the key that verifies its receipts (PEM)
  agentdock-worker --version

Variables:
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := start(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "agentdock-worker: %v\n", err)
		os.Exit(1)
	}
}

func start(ctx context.Context, args, environ []string, stdout, stderr io.Writer) error {
	if len(args) > 1 {
		return errors.New("cannot start: more than one argument; see --help")
	}
	do := work
	switch append(args, "")[0] {
	case "":
	case "public-key":
		return publicKey(environ, stdout)
	case "--version", "version":
		_, err := fmt.Fprintln(stdout, version.Get())
		return err
	case "--help", "-h", "help":
		fmt.Fprint(stdout, usage)
		return settings.WriteHelp(stdout, "agentdock-worker")
	default:
		return fmt.Errorf("cannot start: unknown argument %q; see --help", args[0])
	}
	s, err := settings.LoadWorker(environ)
	if err != nil {
		return err
	}
	if err := enginesocket.Here().Refuse(); err != nil {
		return err
	}
	log := logging.New(stderr, slog.Level(s.Level), settings.Secrets(s)...)
	t, err := telemetry.Start(ctx, "agentdock-worker", os.Getenv, log)
	if err != nil {
		return err
	}
	defer func() { _ = t.Stop() }() // it has said why in the log
	p, err := open(ctx, s, t, log)
	if err != nil {
		return err
	}
	return errors.Join(do(ctx, p), p.close())
}

// publicKey needs nothing of the settings but the file, and makes the key when
// there is none: it is asked for before the first start.
func publicKey(environ []string, stdout io.Writer) error {
	s := settings.DefaultWorker()
	if err := settings.Load(&s, environ); err != nil {
		return err
	}
	key, err := receipt.LoadOrCreateKey(s.SigningKeyFile)
	if err != nil {
		return err
	}
	signer, err := receipt.NewSigner(key)
	if err != nil {
		return err
	}
	pem, err := receipt.EncodePublicKey(signer.Public())
	if err != nil {
		return err
	}
	_, err = stdout.Write(pem)
	return err
}
