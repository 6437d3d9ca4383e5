package mcpserver

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/client"
)

// Bytes of each stream that a result shows.
const (
	defaultShown = 32 << 10
	leastShown   = 256
	mostShown    = 512 << 10
)

type commandInput struct {
	SandboxID      string            `json:"sandbox_id" jsonschema:"id from sandbox_create"`
	Argv           []string          `json:"argv,omitempty" jsonschema:"program and arguments, such as [\"python3\", \"-m\", \"pytest\", \"-q\"]; no shell takes them apart"`
	Script         string            `json:"script,omitempty" jsonschema:"instead of argv: text for /bin/sh, where the tenant may run shells"`
	Dir            string            `json:"dir,omitempty" jsonschema:"directory to start in, relative to /workspace"`
	Env            map[string]string `json:"env,omitempty" jsonschema:"variables for this command"`
	Stdin          string            `json:"stdin,omitempty" jsonschema:"what the program reads as standard input; nothing if left out"`
	TimeoutSeconds int64             `json:"timeout_seconds,omitempty" jsonschema:"seconds after which it is killed; the sandbox's own limit if left out"`
	MaxOutputBytes int64             `json:"max_output_bytes,omitempty" jsonschema:"how many bytes of each stream to return, from 256 to 524288; 32768 if left out"`
}

type commandOutput struct {
	Outcome       string   `json:"outcome" jsonschema:"how it ended: exited, signalled, wall_clock (killed at its time limit), out_of_memory (the sandbox has ended too), not_started (no such program), cancelled, infrastructure_lost"`
	ExitCode      *int     `json:"exit_code,omitempty" jsonschema:"for exited only; 0 is success"`
	Signal        string   `json:"signal,omitempty" jsonschema:"for signalled only"`
	Explanation   string   `json:"explanation,omitempty" jsonschema:"what the outcome was decided from, if it is not exited"`
	LimitsHit     []string `json:"limits_hit" jsonschema:"limits of the sandbox that the command touched, such as disk or pids"`
	Stdout        string   `json:"stdout" jsonschema:"standard output; its middle is left out where truncated, and a line says how much"`
	Stderr        string   `json:"stderr" jsonschema:"standard error, in the same way"`
	StdoutBytes   int64    `json:"stdout_bytes" jsonschema:"what the program wrote, shown or not"`
	StderrBytes   int64    `json:"stderr_bytes" jsonschema:"what the program wrote, shown or not"`
	StdoutOmitted int64    `json:"stdout_omitted_bytes" jsonschema:"bytes of standard output that are not shown"`
	StderrOmitted int64    `json:"stderr_omitted_bytes" jsonschema:"bytes of standard error that are not shown"`
	Truncated     bool     `json:"truncated" jsonschema:"something was left out"`
	Altered       bool     `json:"altered" jsonschema:"control characters are shown as pictures such as ␛, and what is not text as U+FFFD"`
	DurationMS    int64    `json:"duration_ms" jsonschema:"how long it ran"`
}

func (s *Server) addCommandTools() {
	add(s, tool{
		name: "run_command", title: "Run a command", does: "run the command",
		description: "Run a program in a sandbox to its end, and return its output and how it ended. A program that fails is no error of the tool: " +
			"look at outcome and exit_code. Everything it started is killed with it, so do not start servers in the background. " +
			"Cancelling the call kills it.",
		hints: mcp.ToolAnnotations{DestructiveHint: new(true)},
	}, (*call).runCommand)
	add(s, tool{
		name: "run_code", title: "Run Python code", does: "run the code",
		description: "Run Python code in a sandbox's interpreter, as in a notebook: variables, imports and functions stay for the next call with the same sandbox, " +
			"until restart or the end of the sandbox. The value of a last expression is returned in results. Cancelling the call, or its timeout, interrupts the code and keeps the variables.",
		hints: mcp.ToolAnnotations{DestructiveHint: new(true)},
	}, (*call).runCode)
}

func (c *call) runCommand(ctx context.Context, in commandInput) (out commandOutput, err error) {
	most, err := shownBytes(in.MaxOutputBytes)
	if err != nil {
		return out, err
	}
	timeout, err := seconds("timeout_seconds", in.TimeoutSeconds, 0)
	if err != nil {
		return out, err
	}
	if len(in.Argv) == 0 && in.Script == "" {
		return out, refuse(`give argv, such as ["ls", "-l"]`, "it names no program")
	}
	stdout, stderr := newExcerpt(most), newExcerpt(most)
	x := execution{
		sandbox: in.SandboxID, stdout: stdout, stderr: stderr, stdin: []byte(in.Stdin),
		spec: api.ExecSpec{Argv: in.Argv, Script: in.Script, Dir: in.Dir, Env: in.Env, TimeoutMS: timeout.Milliseconds()},
	}
	end, err := c.execute(ctx, &x)
	if err != nil {
		return out, err
	}
	o, e := stdout.show(end.StdoutBytes), stderr.show(end.StderrBytes)
	return commandOutput{
		Outcome: end.Outcome.Kind, ExitCode: end.Outcome.ExitCode, Signal: end.Outcome.Signal, Explanation: explanation(end.Outcome),
		LimitsHit: append([]string{}, end.Outcome.LimitsHit...), Stdout: o.text, Stderr: e.text,
		StdoutBytes: end.StdoutBytes, StderrBytes: end.StderrBytes, StdoutOmitted: o.omitted, StderrOmitted: e.omitted,
		Truncated: o.omitted+e.omitted > 0, Altered: o.altered || e.altered, DurationMS: end.DurationMS,
	}, nil
}

func shownBytes(n int64) (int, error) {
	switch {
	case n == 0:
		return defaultShown, nil
	case n < leastShown || n > mostShown:
		return 0, refuse(fmt.Sprintf("give a number from %d to %d", leastShown, mostShown), "max_output_bytes is %d", n)
	}
	return int(n), nil
}

func explanation(o api.Outcome) string {
	if o.Kind == "exited" {
		return ""
	}
	return label(o.Evidence)
}

// execution is a command that a call follows from its start to its end.
type execution struct {
	sandbox        string
	spec           api.ExecSpec
	stdin          []byte
	stdout, stderr io.Writer
	written        atomic.Int64
}

// execute runs a command to its end. If the call is cancelled, or the command
// cannot be followed any more, it is killed, and its end is waited for: when this
// returns, nothing runs.
func (c *call) execute(ctx context.Context, x *execution) (*api.ExecResult, error) {
	x.spec.ID = "mcp-" + strings.ToLower(rand.Text())
	x.spec.Stdin = len(x.stdin) > 0
	// The command is followed in a life of its own: it can be killed only once it
	// has started, and its end says that nothing is left.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	started := make(chan struct{})
	var helpers sync.WaitGroup
	var unsent error
	over := make(chan struct{})
	helpers.Go(func() {
		select {
		case <-over:
			return
		case <-ctx.Done():
		}
		select {
		case <-over:
			return
		case <-started:
		}
		c.killExec(ctx, x)
		select {
		case <-over:
		case <-time.After(killFor):
			end()
		}
	})
	if len(x.stdin) > 0 {
		helpers.Go(func() {
			select {
			case <-over:
			case <-started:
				err := c.WriteStdin(life, x.sandbox, x.spec.ID, bytes.NewReader(x.stdin), true)
				// A program that takes no input any more has ended or closed it, and
				// that is its business. Any other would wait for the rest.
				if err != nil && !client.Is(err, api.ProblemCodeGone) && life.Err() == nil {
					unsent = err
					c.killExec(ctx, x)
				}
			}
		})
	}
	silence := c.progress(ctx, x, started)
	result, err := x.follow(c.RunExec(life, x.sandbox, x.spec), sync.OnceFunc(func() { close(started) }))
	end()
	close(over)
	silence()
	helpers.Wait()
	if err != nil && (isClosed(started) || client.CodeOf(err) == "") {
		c.killExec(ctx, x) // it runs, or may: nobody was told
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case unsent != nil:
		return nil, unsent
	}
	return result, err
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// killExec ends a command. If it fails, the command ends with its time limit or
// with its sandbox.
func (c *call) killExec(ctx context.Context, x *execution) {
	kill, cancel := detached(ctx)
	defer cancel()
	if err := c.KillExec(kill, x.sandbox, x.spec.ID); err != nil && !client.Is(err, api.ProblemCodeGone) && !client.Is(err, api.ProblemCodeNotFound) {
		c.s.cfg.Log.Warn("cannot kill a command", "sandbox", x.sandbox, "exec", x.spec.ID, "error", err.Error())
	}
}

func (x *execution) follow(events func(func(api.ExecEvent, error) bool), started func()) (*api.ExecResult, error) {
	for event, err := range events {
		if err != nil {
			return nil, err
		}
		started()
		switch {
		case event.End != nil:
			return event.End, nil
		case event.Output != nil:
			data := client.ExecOutputBytes(event.Output)
			x.written.Add(int64(len(data)))
			to := x.stdout
			if event.Output.Stream == "stderr" {
				to = x.stderr
			}
			if _, err := to.Write(data); err != nil {
				return nil, err
			}
		}
	}
	return nil, client.ErrInterrupted
}

// progress says that a command goes on, if the caller wants to know. The function
// that it returns ends that, and returns when nothing more is said.
func (c *call) progress(ctx context.Context, x *execution, started <-chan struct{}) (stop func()) {
	token := c.req.Params.GetProgressToken()
	if token == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		select {
		case <-started:
		case <-ctx.Done():
			return
		}
		begin := time.Now()
		ticks := time.NewTicker(c.s.cfg.Progress)
		defer ticks.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
			}
			took := time.Since(begin)
			// Who does not take it will not get the next one either: no error.
			_ = c.req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: token, Progress: took.Seconds(),
				Message: fmt.Sprintf("running for %s, %d bytes of output", took.Round(100*time.Millisecond), x.written.Load()),
			})
		}
	})
	return func() {
		cancel()
		done.Wait()
	}
}
