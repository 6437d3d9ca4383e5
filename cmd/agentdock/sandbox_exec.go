package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/client"
	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/oneshot"
)

// killFor bounds the call that kills a command whose user pressed Ctrl-C.
const killFor = 10 * time.Second

type execFlags struct {
	stdin, tty, detach, script bool
	dir, timeout, id           string
	env                        []string
}

func newSandboxExec() *cobra.Command {
	var f execFlags
	cmd := &cobra.Command{
		Use:   "exec [flags] ID -- PROGRAM [ARGUMENT…]",
		Short: "Run a command in a sandbox",
		Long: `Run a command in a sandbox. Its output is passed on as it comes, and the exit status
is that of agentdock run: the program's own if it exited, 128+n if signal n ended it,
124 if the time was over, 137 if it went over its memory, 127 or 126 if it could not
be started, 130 if you cancelled it with Ctrl-C, 125 for everything else.

With -t the program has a terminal of the size of yours, which follows yours; with -it
it is yours, and Ctrl-C goes to the program. With --detach its id is printed and it
goes on; see sandbox logs.

The program is executed without a shell. With --script the argument is text for
/bin/sh, if your tenant may run shells.`,
		Example: `  agentdock sandbox exec ID -- python3 -c 'print(6*7)'
  echo '{"n": 1}' | agentdock sandbox exec -i ID -- python3 -c 'print(input())'
  agentdock sandbox exec -it ID -- python3`,
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: completeSandboxes,
		RunE: withClient(func(cmd *cobra.Command, c *client.Client, args []string) error {
			argv := args[1:]
			if argv[0] == "--" { // flags end at the id, so this is still there
				argv = argv[1:]
			}
			return f.run(cmd, c, args[0], argv)
		}),
	}
	fl := cmd.Flags()
	fl.SetInterspersed(false)
	fl.BoolVarP(&f.stdin, "interactive", "i", false, "pass standard input on to the program")
	fl.BoolVarP(&f.tty, "tty", "t", false, "give the program a terminal")
	fl.BoolVarP(&f.detach, "detach", "d", false, "print the command's id and leave it running")
	fl.BoolVar(&f.script, "script", false, "the argument is text for /bin/sh")
	fl.StringVar(&f.dir, "dir", "", "`directory` to start in, relative to the workspace")
	fl.StringVar(&f.timeout, "timeout", "", "`duration` after which it is ended")
	fl.StringVar(&f.id, "id", "", "`name` of the command: the same name starts it once")
	fl.StringArrayVar(&f.env, "env", nil, "set a variable, `NAME=VALUE`; repeatable")
	return cmd
}

func (f *execFlags) spec(argv []string) (api.ExecSpec, error) {
	spec := api.ExecSpec{ID: f.id, Argv: argv, Dir: f.dir, Stdin: f.stdin}
	if f.script {
		if len(argv) != 1 {
			return spec, fault.New(fault.Invalid, "cannot use --script with %d arguments; give the text as one", len(argv))
		}
		spec.Argv, spec.Script = nil, argv[0]
	}
	var err error
	if spec.Env, err = pairs("env", f.env); err != nil {
		return spec, err
	}
	if f.timeout != "" {
		if spec.TimeoutMS, err = parseMilliseconds(f.timeout); err != nil {
			return spec, fault.New(fault.Invalid, "cannot use --timeout: %v", err)
		}
	}
	if f.detach && f.stdin {
		return spec, fault.New(fault.Invalid, "cannot use --detach with -i: nobody would pass the input on")
	}
	return spec, nil
}

func (f *execFlags) run(cmd *cobra.Command, c *client.Client, sandbox string, argv []string) error {
	spec, err := f.spec(argv)
	if err != nil {
		return err
	}
	if f.tty {
		return f.terminal(cmd, c, sandbox, spec)
	}
	if f.detach {
		id, err := c.StartExec(cmd.Context(), sandbox, spec)
		if err != nil {
			return fmt.Errorf("cannot start the command: %w", err)
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), id)
		return err
	}
	ctx, caught, stop := catchSignals(cmd.Context())
	defer stop()
	id, err := c.StartExec(ctx, sandbox, spec)
	if err != nil {
		return fmt.Errorf("cannot start the command: %w", err)
	}
	defer context.AfterFunc(ctx, func() { killExec(c, sandbox, id) })()
	// It is followed to its end even when it is killed: that is how it ended.
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	if f.stdin {
		go passStdin(life, c, sandbox, id, cmd.InOrStdin())
	}
	err = followToEnd(cmd, c.FollowExec(life, sandbox, id, 0))
	var status exitStatus
	if sig, ok := caught().(unix.Signal); ok && errors.As(err, &status) && int(status) == oneshot.StatusCancelled {
		return exitStatus(oneshot.StatusSignalled + int(sig))
	}
	return err
}

func killExec(c *client.Client, sandbox, id string) {
	ctx, cancel := context.WithTimeout(context.Background(), killFor)
	defer cancel()
	// If this fails, the command ends with its sandbox.
	_ = c.KillExec(ctx, sandbox, id)
}

// passStdin hands the input over until it ends. A program that has ended takes
// no more, and that is no error of ours.
func passStdin(ctx context.Context, c *client.Client, sandbox, id string, r io.Reader) {
	piece := make([]byte, 32<<10)
	for {
		n, err := r.Read(piece)
		if sent := c.WriteStdin(ctx, sandbox, id, bytes.NewReader(piece[:n]), err != nil); sent != nil || err != nil {
			return
		}
	}
}

// followToEnd writes the output of a command, and ends as it did.
func followToEnd(cmd *cobra.Command, events iter.Seq2[api.ExecEvent, error]) error {
	end, err := client.CopyExec(events, cmd.OutOrStdout(), cmd.ErrOrStderr())
	if err != nil {
		return fmt.Errorf("cannot follow the command: %w", err)
	}
	return endedAs(cmd, end, true)
}

// endedAs says how a command ended unless that was as it should, and is its exit
// status.
func endedAs(cmd *cobra.Command, end *api.ExecResult, say bool) error {
	outcome := outcomeOf(end.Outcome)
	status := oneshot.Report{Result: &execenv.Result{Outcome: outcome}}.ExitStatus()
	if say && outcome.ExitCode == nil {
		line := outcome.String()
		if outcome.Evidence != "" {
			line += ": " + outcome.Evidence
		}
		fmt.Fprintln(cmd.ErrOrStderr(), "agentdock: "+printable(line))
	}
	if end.Truncated {
		fmt.Fprintln(cmd.ErrOrStderr(), "agentdock: it wrote more than is kept; the rest is dropped")
	}
	if status == 0 {
		return nil
	}
	return exitStatus(status)
}

// terminal runs a command with a terminal, and with -i on this one: what is
// typed goes to the program as it is, Ctrl-C too, and so does a new size.
func (f *execFlags) terminal(cmd *cobra.Command, c *client.Client, sandbox string, spec api.ExecSpec) error {
	ctx := cmd.Context()
	in, _ := cmd.InOrStdin().(*os.File)
	size := func() api.TerminalSize { return api.TerminalSize{Cols: 80, Rows: 24} }
	if in != nil && isTerminal(in) {
		size = func() api.TerminalSize { return sizeOfTerminal(in) }
	} else if f.stdin {
		return fault.New(fault.Invalid, "cannot use -it: standard input is not a terminal; use -i without -t")
	}
	first := size()
	spec.TTY = &first
	if name := os.Getenv("TERM"); name != "" && !strings.ContainsAny(name, "=\x00") {
		if _, set := spec.Env["TERM"]; !set {
			if spec.Env == nil {
				spec.Env = map[string]string{}
			}
			spec.Env["TERM"] = name
		}
	}
	id, err := c.StartExec(ctx, sandbox, spec)
	if err != nil {
		return fmt.Errorf("cannot start the command: %w", err)
	}
	if f.detach {
		_, err = fmt.Fprintln(cmd.OutOrStdout(), id)
		return err
	}
	defer context.AfterFunc(ctx, func() { killExec(c, sandbox, id) })()
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	restore := func() {}
	if f.stdin {
		if restore, err = makeRaw(in); err != nil {
			killExec(c, sandbox, id)
			return fmt.Errorf("cannot use the terminal: %w", err)
		}
		go passStdin(life, c, sandbox, id, in)
	}
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, unix.SIGWINCH)
	defer signal.Stop(resized)
	go func() {
		for {
			select {
			case <-resized:
				_ = c.ResizeExec(life, sandbox, id, size())
			case <-life.Done():
				return
			}
		}
	}()
	end, err := client.CopyExec(c.FollowExec(life, sandbox, id, 0), cmd.OutOrStdout(), cmd.ErrOrStderr())
	restore()
	if err != nil {
		return fmt.Errorf("cannot follow the command: %w", err)
	}
	return endedAs(cmd, end, true)
}
