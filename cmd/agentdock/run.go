package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/agentdock/agentdock/internal/execrpc"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/image"
	"github.com/agentdock/agentdock/internal/localexecd"
	"github.com/agentdock/agentdock/internal/oneshot"
	"github.com/agentdock/agentdock/internal/settings"
)

const runLong = `Run a command in a sandbox of its own: a kernel of its own (gVisor), no network
(but what --allow and --preset name), no secrets, an empty workspace or a copy of one, and limits that hold. When it
ends, the sandbox and everything in it is gone.

The program is executed without a shell, as user 10001 in /workspace. Its
environment is CI, AGENTDOCK_SANDBOX, HOME, PATH and what --env adds; nothing is
inherited. Its output is passed on as it comes. The last line on standard error
says how it ended.

Without --disk, the workspace may hold 256 MiB or half the memory, whichever is
less, and is kept in memory. A larger one is kept on the host's disk, where its
size is set aside before the program starts.

Exit status: the program's own if it exited; 128+n if signal n ended it; 124 if
the time limit did; 137 if it went over its memory or was killed at a limit of
--end-at-limit (the last line tells that from a program that exits 137 itself);
127 if it was not found, 126 if it cannot be executed or its directory is missing;
130 (128+n) if you cancelled it with Ctrl-C (SIGTERM); 125 for everything that is
not about the program.

With --json, standard output is one JSON object at the end: id, state (succeeded,
failed, cancelled), outcome, stdout, stderr, their sizes, truncated, duration_ms,
usage, artifacts; or error. Output that is not UTF-8 has U+FFFD for each bad byte;
without --json the bytes are passed on as they are.

Sizes are written 512m, 1.5GiB, 300MB or in bytes (k, m, g and KiB, MiB, GiB
count in 1024, kB, MB, GB in 1000); durations 90s, 1m30s or in seconds.

Where a server is configured (AGENTDOCK_URL and AGENTDOCK_API_KEY, or the config
file; see agentdock jobs), the command is a job there: the same flags, output and
exit status, no root. --stdin is read to its end first, and may have 512 KiB;
--image-dir, --artifact-bytes, --allow and --preset are not taken. --local runs here all the same.

Here, an execution service is started for the run, which takes root. Variables:
` + localexecd.BinaryEnv + ` names its program, ` + localexecd.DirEnv + ` the
directory for what it needs meanwhile (` + localexecd.DefaultDir + `), ` + localexecd.DiskDirEnv + `
the one for workspaces on disk (` + localexecd.DefaultDiskDir + `).`

const runExample = `  # the sample repository's tests and build, keeping what it built
  agentdock run --fixture --artifact 'dist/**' --out build -- python3 tools/check.py

  # your own directory, with more room
  agentdock run --dir . --memory 2g --disk 1g --timeout 10m -- python3 -m pytest

  # with a way to Python's package index, and to nothing else
  agentdock run --preset python --disk 1g --memory 1g -- pip install --target lib requests

  # input from a pipe, result for a program
  echo '{"n": 1}' | agentdock run --stdin - --json -- python3 -c 'print(input())'`

func newRun() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:     "run [flags] -- PROGRAM [ARGUMENT…]",
		Short:   "Run a command in a sandbox of its own",
		Long:    runLong,
		Example: runExample,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runCommand(cmd, &f, args)
		},
	}
	f.define(cmd)
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		report := oneshot.Report{Err: fault.New(fault.Invalid, "%v; see agentdock run --help", err)}
		return f.finish(cmd, newConsole(cmd.ErrOrStderr()), report, report.ExitStatus(), nil, nil)
	})
	return cmd
}

// runCommand wires the flow: what the user asked for, a service to ask, and
// where things go.
func runCommand(cmd *cobra.Command, f *runFlags, argv []string) error {
	console := newConsole(cmd.ErrOrStderr())
	return runWatched(cmd, f, console, func(ctx context.Context, sinks oneshot.Sinks) oneshot.Report {
		return f.runAnywhere(ctx, argv, sinks, console, cmd.InOrStdin())
	})
}

// runWatched is a run from its start to its exit status: output goes on as it
// comes, a signal ends it, and the last line says how it ended.
func runWatched(cmd *cobra.Command, f *runFlags, console *console, run func(context.Context, oneshot.Sinks) oneshot.Report) error {
	var kept, keptErr bytes.Buffer
	sinks := oneshot.Sinks{Stdout: cmd.OutOrStdout(), Stderr: console, Phase: console.phase}
	if f.json {
		sinks.Stdout, sinks.Stderr = &kept, &keptErr
	}
	ctx, caught, stop := catchSignals(cmd.Context())
	defer stop()

	report := run(ctx, sinks)
	status := report.ExitStatus()
	if sig, ok := caught().(syscall.Signal); ok && status == oneshot.StatusCancelled {
		status = oneshot.StatusSignalled + int(sig)
	}
	return f.finish(cmd, console, report, status, kept.Bytes(), keptErr.Bytes())
}

// finish says how the run ended, in words, as JSON and as a status.
func (f *runFlags) finish(cmd *cobra.Command, console *console, report oneshot.Report, status int, stdout, stderr []byte) error {
	console.line(report.Line())
	if f.json {
		if err := report.WriteJSON(cmd.OutOrStdout(), stdout, stderr); err != nil {
			return fmt.Errorf("cannot write the report: %w", err)
		}
	}
	if status == 0 {
		return nil
	}
	return exitStatus(status)
}

// runAnywhere runs on the server that is configured, or here if there is none.
func (f *runFlags) runAnywhere(ctx context.Context, argv []string, sinks oneshot.Sinks, console *console, stdin io.Reader) oneshot.Report {
	if f.local {
		return f.run(ctx, argv, sinks, console, stdin)
	}
	url, key, err := server(os.Environ())
	if err != nil {
		return oneshot.Failed(ctx, oneshot.Request{}, err)
	}
	if url == "" {
		return f.run(ctx, argv, sinks, console, stdin)
	}
	c, err := dialTo(url, key)
	if err != nil {
		return oneshot.Failed(ctx, oneshot.Request{}, err)
	}
	defer c.CloseIdleConnections()
	return f.runRemote(ctx, c, argv, sinks, console, stdin)
}

// run checks the request before it starts anything, and stops what it started.
func (f *runFlags) run(ctx context.Context, argv []string, sinks oneshot.Sinks, console *console, stdin io.Reader) (report oneshot.Report) {
	req, cleanup, err := f.request(ctx, argv, stdin, console)
	defer cleanup()
	if err != nil {
		return oneshot.Failed(ctx, req, err)
	}
	// Always named: the service inherits no setting of ours.
	cfg := localexecd.Config{ImageDir: cmp.Or(f.imageDir, os.Getenv(image.DirEnv), image.DefaultDir), Gateway: req.Network.Open()}
	development, err := localRuntime(os.Environ())
	if err != nil {
		return oneshot.Failed(ctx, req, err)
	}
	if development {
		req.Limits = req.Limits.LeaveOpen(f.asked)
	}
	ended := console.phase("starting the execution service")
	sweepErr := localexecd.Sweep(ctx, cfg)
	service, err := localexecd.Start(ctx, cfg)
	ended()
	if err != nil {
		return oneshot.Failed(ctx, req, err)
	}
	if sweepErr != nil {
		// Not this run's: it goes on beside what is left, and says so.
		console.line("warning: " + sweepErr.Error())
	}
	defer func() {
		defer console.phase("stopping the execution service")()
		if err := service.Stop(); err != nil {
			report.Err = errors.Join(report.Err, err)
		}
	}()
	client, err := execrpc.DialUnix(ctx, service.Socket())
	if err != nil {
		return oneshot.Failed(ctx, req, err)
	}
	defer client.Close()
	watching, unwatch := context.WithCancel(context.Background())
	defer unwatch()
	go service.KillWhenSilent(watching, func(ctx context.Context) error {
		if _, err := client.List(ctx); fault.Is(err, fault.Unavailable) {
			return err
		}
		return nil
	})
	report = oneshot.Run(ctx, client, req, sinks)
	if why := service.LastError(); why != "" && fault.Is(report.Err, fault.Internal) {
		// The service tells its callers no causes. Here, its log is theirs to see.
		report.Err = fault.New(fault.Internal, "%v: %s", report.Err, why)
	}
	select {
	case <-service.Done():
		// Whatever failed, this is why.
		report.Err = fault.New(fault.Unavailable, "the execution service ended during the run: %s; what the program would have done is not known", service.LastWords())
	default:
	}
	return report
}

// localRuntime says whether sandboxes of this machine are the development fallback,
// and refuses where they must not be.
func localRuntime(environ []string) (development bool, err error) {
	s := settings.DefaultCLI()
	if err := settings.Load(&s, environ); err != nil {
		return false, err
	}
	if err := s.Runtime.Check(s.Mode); err != nil {
		return false, fmt.Errorf("cannot start: %w", err)
	}
	return s.Development(), nil
}

// catchSignals ends the context at the first signal that asks to, and goes on
// catching them: a second Ctrl-C must not leave behind what the first is
// removing. SIGPIPE is caught so that a closed output is an error to clean up
// after, and not a sudden death.
func catchSignals(parent context.Context) (ctx context.Context, caught func() os.Signal, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	var first atomic.Value
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-signals:
				first.CompareAndSwap(nil, s)
				cancel()
			case <-done:
				return
			}
		}
	}()
	caught = func() os.Signal {
		s, _ := first.Load().(os.Signal)
		return s
	}
	return ctx, caught, func() {
		signal.Stop(signals)
		signal.Stop(pipe)
		close(done)
		cancel()
	}
}
