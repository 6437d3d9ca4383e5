package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentdock/agentdock/internal/allinone"
	"github.com/agentdock/agentdock/internal/image"
	"github.com/agentdock/agentdock/internal/logging"
	"github.com/agentdock/agentdock/internal/settings"
	"github.com/agentdock/agentdock/internal/telemetry"
)

const upLong = `Run the whole platform on this machine: the API, a worker and an execution service of
its own, with the record in a file and artifacts in a directory. It needs root. The
default image is made if there is none.

On a loopback address no key is asked for (AUTH_MODE=dev), unless AUTH_MODE says
otherwise. On any other address every request needs a key; the first start makes one
with every scope and prints it, once.

Ctrl-C takes no new jobs, lets those that run go on for AGENTDOCK_WORKER_DRAIN, and
leaves nothing running. Jobs that are queued stay on record for the next start. After
kill -9, the next start with the same --data goes on: what was queued runs, and what
ran ends as infrastructure_lost, because its sandbox ended with the process.

Where a container engine listens on this machine, its socket is hidden from all parts,
in a mount namespace of their own; nothing else on the machine notices. A variable that
leads to an engine (DOCKER_HOST and the like) is refused: unset it.

Variables (docs/settings.md has those of all processes):
`

type upFlags struct {
	listen, data, imageDir string
}

func newUp() *cobra.Command {
	var f upFlags
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run the whole platform on this machine",
		Example: `  sudo agentdock up
  AGENTDOCK_URL=http://127.0.0.1:7300 agentdock jobs submit --fixture --wait -- python3 tools/check.py`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.up(cmd) },
	}
	cmd.Flags().StringVar(&f.listen, "listen", "127.0.0.1:7300", "`address` of the API, host:port")
	cmd.Flags().StringVar(&f.data, "data", "/var/lib/agentdock/up", "`directory` for the record, artifacts and the signing key")
	cmd.Flags().StringVar(&f.imageDir, "image-dir", "", "`directory` of the image store; "+image.DirEnv+" sets the default")
	help := cmd.HelpFunc()
	cmd.SetHelpFunc(func(c *cobra.Command, args []string) {
		c.Long = upLong + variables("agentdock up")
		help(c, args)
	})
	return cmd
}

func (f *upFlags) up(cmd *cobra.Command) error {
	s, err := settings.LoadUp(os.Environ(), f.listen)
	if err != nil {
		return err
	}
	if err := ownMounts(); err != nil {
		return err
	}
	if f.data, err = filepath.Abs(f.data); err != nil {
		return err
	}
	if os.Getenv("SANDBOX_CHECKOUT_DIR") == "" {
		s.CheckoutDir = filepath.Join(f.data, "checkout")
	}
	console := newConsole(cmd.ErrOrStderr())
	log := logging.New(cmd.ErrOrStderr(), slog.Level(s.Level), settings.Secrets(s)...)
	t, err := telemetry.Start(cmd.Context(), "agentdock-up", os.Getenv, log)
	if err != nil {
		return err
	}
	defer func() { _ = t.Stop() }() // it has said why in the log
	ctx, _, stop := catchSignals(cmd.Context())
	defer stop()
	return allinone.Run(ctx, allinone.Config{
		Listen: f.listen, Data: f.data, ImageDir: cmp.Or(f.imageDir, os.Getenv(image.DirEnv), image.DefaultDir),
		Settings: s, Log: log, Telemetry: t, Phase: console.phase, Say: console.line,
		Hidden: func(sockets []string) {
			console.line("a container engine is hidden from all that runs here: " + strings.Join(sockets, ", "))
		},
		Ready: func(started allinone.Started) { f.welcome(cmd, s, started) },
		Stopping: func() {
			console.line(fmt.Sprintf("stopping; jobs that run have %s to end", s.Drain))
		},
	})
}

// welcome says how to use what runs now.
func (f *upFlags) welcome(cmd *cobra.Command, s settings.Up, started allinone.Started) {
	w := cmd.OutOrStdout()
	fmt.Fprintf(w, "AgentDock serves on %s; data is in %s\n", started.URL, f.data)
	switch {
	case s.Mode == settings.AuthDev:
		fmt.Fprintf(w, "no key is asked for: whoever can reach this address on this machine can use it (AUTH_MODE=dev)\n")
	case started.Key != "":
		fmt.Fprintf(w, "a key with every scope, shown this once:\n\n  export AGENTDOCK_API_KEY=%s\n", started.Key)
	default:
		fmt.Fprintf(w, "every request needs a key (AUTH_MODE=api_key)\n")
	}
	fmt.Fprintf(w, `
  export AGENTDOCK_URL=%s
  agentdock jobs submit --fixture --artifact 'dist/**' --wait -- python3 tools/check.py
  agentdock jobs list

Ctrl-C stops it.
`, started.URL)
}

// variables is the part of a help text with those a process reads.
func variables(process string) string {
	var b writer
	_ = settings.WriteHelp(&b, process)
	return string(b)
}

type writer []byte

func (w *writer) Write(p []byte) (int, error) {
	*w = append(*w, p...)
	return len(p), nil
}
