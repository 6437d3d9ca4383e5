package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/agentdock/agentdock/api"
	"github.com/agentdock/agentdock/client"
	"github.com/agentdock/agentdock/internal/interpreter"
)

// workspace is where a kernel works.
const workspace = "/workspace"

// mostResults bounds the values of one execution that are returned.
const mostResults = 50

type codeInput struct {
	SandboxID      string            `json:"sandbox_id" jsonschema:"id from sandbox_create"`
	Code           string            `json:"code" jsonschema:"Python source; await may be used at its top level"`
	Restart        bool              `json:"restart,omitempty" jsonschema:"start the interpreter anew first, without its variables; also frees one that hangs"`
	Env            map[string]string `json:"env,omitempty" jsonschema:"variables of the environment for this execution"`
	TimeoutSeconds int64             `json:"timeout_seconds,omitempty" jsonschema:"seconds after which the code is interrupted; the sandbox's own limit if left out"`
	MaxOutputBytes int64             `json:"max_output_bytes,omitempty" jsonschema:"how many bytes of each of stdout, stderr and results to return, from 256 to 524288; 32768 if left out"`
}

type codeOutput struct {
	Outcome        string     `json:"outcome" jsonschema:"finished; raised (see error); wall_clock (interrupted at the time limit, variables stay); output (it wrote more than is kept); interpreter_ended (variables are gone, the next call begins anew)"`
	Error          *codeError `json:"error,omitempty" jsonschema:"what the code raised"`
	Explanation    string     `json:"explanation,omitempty" jsonschema:"why, if it neither finished nor raised"`
	Results        []string   `json:"results" jsonschema:"what display() showed, and last the value of the last expression, as repr()"`
	Stdout         string     `json:"stdout" jsonschema:"what the code printed; its middle is left out where truncated"`
	Stderr         string     `json:"stderr" jsonschema:"the same for standard error"`
	StdoutOmitted  int64      `json:"stdout_omitted_bytes" jsonschema:"bytes that are not shown"`
	StderrOmitted  int64      `json:"stderr_omitted_bytes" jsonschema:"bytes that are not shown"`
	ResultsOmitted int64      `json:"results_omitted_bytes" jsonschema:"bytes that are not shown"`
	Truncated      bool       `json:"truncated" jsonschema:"something was left out"`
	Altered        bool       `json:"altered" jsonschema:"control characters are shown as pictures such as ␛, and what is not text as U+FFFD"`
	Execution      int        `json:"execution" jsonschema:"counts the executions of this interpreter; 1 says that it is new"`
}

type codeError struct {
	Name      string `json:"name" jsonschema:"the exception's class"`
	Value     string `json:"value" jsonschema:"its message"`
	Traceback string `json:"traceback" jsonschema:"where it was raised"`
}

// session is what one execution has said so far.
type session struct {
	most           int
	stdout, stderr *excerpt
	results        []string
	omitted        int64
	shownResults   int
	raised         *codeError
	altered        bool
	ended          bool
	number         int
}

func (c *call) runCode(ctx context.Context, in codeInput) (out codeOutput, err error) {
	most, err := shownBytes(in.MaxOutputBytes)
	if err != nil {
		return out, err
	}
	timeout, err := seconds("timeout_seconds", in.TimeoutSeconds, 0)
	if err != nil {
		return out, err
	}
	request, err := interpreter.Request(in.Code, in.Env)
	if err != nil {
		return out, err
	}
	k, err := c.kernel(ctx, in.SandboxID, in.Restart)
	if err != nil {
		return out, err
	}
	said := &session{most: most, stdout: newExcerpt(most), stderr: newExcerpt(most), results: []string{}}
	argv, env := k.Relay()
	events, relay := io.Pipe()
	x := execution{
		sandbox: in.SandboxID, stdout: relay, stderr: io.Discard, stdin: request,
		spec: api.ExecSpec{Argv: argv, Env: env, TimeoutMS: timeout.Milliseconds()},
	}
	var disturbed error
	var reading sync.WaitGroup
	reading.Go(func() {
		disturbed = interpreter.Read(events, said.take)
		// The relay ends when the kernel closes the connection, and says how. One
		// that does not is not waited for.
		late := time.AfterFunc(time.Second, func() { c.killExec(ctx, &x) })
		defer late.Stop()
		_, _ = io.Copy(io.Discard, events)
	})
	end, err := c.execute(ctx, &x)
	_ = relay.CloseWithError(io.EOF)
	reading.Wait()
	if err != nil {
		return out, err
	}
	return c.told(ctx, &x, k, end, said, disturbed)
}

// take adds an event.
func (s *session) take(e interpreter.Event) error {
	switch e.Type {
	case interpreter.Number:
		s.number = e.ExecutionCount
	case interpreter.Stdout:
		_, _ = s.stdout.Write([]byte(e.Text))
	case interpreter.Stderr:
		_, _ = s.stderr.Write([]byte(e.Text))
	case interpreter.Result:
		s.result(e.Text)
	case interpreter.Error:
		s.raised = &codeError{Name: label(e.Name), Value: s.short(e.Value), Traceback: s.short(e.Traceback)}
	case interpreter.End:
		s.ended = true
	}
	return nil
}

func (s *session) short(text string) string {
	e := newExcerpt(s.most)
	_, _ = e.Write([]byte(text))
	shown := e.show(int64(len(text)))
	s.altered = s.altered || shown.altered
	s.omitted += shown.omitted
	return shown.text
}

func (s *session) result(text string) {
	if len(s.results) == mostResults || s.shownResults+len(text) > 2*s.most {
		s.omitted += int64(len(text))
		return
	}
	text = s.short(text)
	s.shownResults += len(text)
	s.results = append(s.results, text)
}

// told is the result of an execution, from what was said and from how the relay
// ended. What the interpreter says of itself is believed only up to there: it is
// as hostile as the code.
func (c *call) told(ctx context.Context, x *execution, k interpreter.Kernel, end *api.ExecResult, said *session, disturbed error) (codeOutput, error) {
	o, e := said.stdout.show(said.stdout.written), said.stderr.show(said.stderr.written)
	out := codeOutput{
		Outcome: "finished", Error: said.raised, Results: said.results, Stdout: o.text, Stderr: e.text,
		StdoutOmitted: o.omitted, StderrOmitted: e.omitted, ResultsOmitted: said.omitted,
		Altered: o.altered || e.altered || said.altered, Execution: said.number,
	}
	out.Truncated = out.StdoutOmitted+out.StderrOmitted+out.ResultsOmitted > 0
	switch {
	case said.ended && said.raised != nil:
		out.Outcome = "raised"
	case said.ended:
	case end.Outcome.Kind == "wall_clock":
		out.Outcome, out.Explanation = "wall_clock", "the code was interrupted at its time limit; variables stay, unless it ignores the interrupt: restart then"
	case end.Truncated:
		out.Outcome, out.Truncated = "output", true
		out.Explanation = "the interpreter wrote more than is kept of one execution; write less, or to a file"
	default:
		out.Outcome = "interpreter_ended"
		out.Explanation = c.whyEnded(ctx, x.sandbox, k, disturbed)
	}
	return out, nil
}

func (c *call) whyEnded(ctx context.Context, sandbox string, k interpreter.Kernel, disturbed error) string {
	const anew = "; its variables are gone, and the next call begins anew"
	// Its end is known a moment after that of its connection.
	soon, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if end, err := client.CopyExec(c.FollowExec(soon, sandbox, k.Name(), 0), io.Discard, io.Discard); err == nil {
		why := end.Outcome.Kind
		switch {
		case end.Outcome.ExitCode != nil:
			why = fmt.Sprintf("exit code %d", *end.Outcome.ExitCode)
		case end.Outcome.Signal != "":
			why = label(end.Outcome.Signal)
		}
		return "the interpreter has ended (" + why + ")" + anew
	}
	if disturbed == nil {
		disturbed = errors.New("it said nothing more")
	}
	return "the interpreter was disturbed: " + label(disturbed.Error()) + "; restart it"
}

// kernel finds the sandbox's interpreter, or starts it.
func (c *call) kernel(ctx context.Context, sandbox string, restart bool) (interpreter.Kernel, error) {
	execs, err := c.Execs(ctx, sandbox)
	if err != nil {
		return interpreter.Kernel{}, err
	}
	all := interpreter.Kernels{}
	for _, x := range execs {
		all.Add(x.ID, x.Argv, x.Running)
	}
	one, known := all[interpreter.DefaultContext]
	k := one.Kernel
	switch {
	case !known:
		k = interpreter.Kernel{Context: interpreter.DefaultContext, Number: 1, Dir: workspace}
	case one.Runs && !restart:
		return k, c.ready(ctx, sandbox, k)
	case one.Runs:
		if err := c.KillExec(ctx, sandbox, k.Name()); err != nil {
			return k, err
		}
		k = k.Next()
	default:
		k = k.Next()
	}
	if _, err := c.StartExec(ctx, sandbox, api.ExecSpec{ID: k.Name(), Argv: k.Argv()}); err != nil {
		return k, err
	}
	return k, c.ready(ctx, sandbox, k)
}

// ready waits until a kernel says that it listens.
func (c *call) ready(ctx context.Context, sandbox string, k interpreter.Kernel) error {
	var greeting interpreter.Greeting
	for event, err := range c.FollowExec(ctx, sandbox, k.Name(), 0) {
		switch {
		case err != nil:
			return err
		case event.Output != nil && event.Output.Stream == "stderr":
			greeting.Complain(client.ExecOutputBytes(event.Output))
		case event.Output != nil && greeting.Ready(client.ExecOutputBytes(event.Output)):
			return nil
		case event.End != nil && event.End.Outcome.Kind == "not_started":
			return refuse("make a sandbox with the default image, or use run_command", "the image has no python3, so there is no interpreter")
		case event.End != nil:
			return refuse("try again, with restart", "the interpreter did not start (%s): %s", event.End.Outcome.Kind, greeting.Complaint())
		}
	}
	return client.ErrInterrupted
}
