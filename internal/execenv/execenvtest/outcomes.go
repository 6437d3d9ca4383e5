package execenvtest

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

var outcomeCases = []testCase{
	{clause: "X5", name: "exit_codes_are_the_programs_own", run: exitCodes},
	{clause: "X5", name: "signals_stay_apart_from_exit_codes", run: signals},
	{clause: "X8", name: "signal_reaches_the_first_process", run: signalDelivered},
	{clause: "X8", name: "signal_that_ends_it_is_signalled", run: signalEnds},
	{clause: "X8", name: "kill_is_cancelled", run: killCancels},
	{clause: "X8", name: "kill_and_signal_after_the_end_are_no_ops", run: killAfterEnd},
	{clause: "X4", name: "wait_gives_everyone_the_same_result", run: waitSame},
	{clause: "X4", name: "wait_with_ended_context_says_nothing", run: waitEnded},
	{clause: "X4", name: "result_has_times_and_counts", run: resultFields},
}

var notStartedCases = []testCase{
	{clause: "X3", name: "what_cannot_start_is_not_started", run: notStarted},
	{clause: "X3", name: "program_is_found_in_path", run: foundInPath},
}

var execCases = []testCase{
	{clause: "X3", name: "exec_is_idempotent_by_id", run: execTwice},
	{clause: "X3", name: "concurrent_execs_with_one_id_make_one", run: execConcurrently},
	{clause: "X3", name: "attach_exec", run: attachExec},
	{clause: "X3", name: "exec_ids_are_per_sandbox", run: execIDsPerSandbox},
}

func exitCodes(c *C) {
	b := c.create()
	for _, code := range []int{0, 1, 3, 126, 127, 128, 137, 139, 143, 255} {
		r := b.run("exit", strconv.Itoa(code))
		c.exited(fmt.Sprintf("exit %d", code), r.Outcome, code)
		if r.Outcome.Evidence == "" {
			c.Errorf("exit %d: no evidence", code)
		}
		if len(r.Outcome.LimitsHit) > 0 {
			c.Errorf("exit %d: limits hit %v", code, r.Outcome.LimitsHit)
		}
	}
}

func signals(c *C) {
	b := c.create()
	for _, sig := range []syscall.Signal{syscall.SIGSEGV, syscall.SIGKILL, syscall.SIGTERM, syscall.SIGABRT, syscall.SIGBUS, syscall.SIGPIPE} {
		r := b.run("raise", strconv.Itoa(int(sig)))
		c.kind("raise "+run.SignalName(sig), r.Outcome, run.Signalled)
		if r.Outcome.Signal != run.SignalName(sig) {
			c.Errorf("raise %s: signal %q", run.SignalName(sig), r.Outcome.Signal)
		}
	}
}

func signalDelivered(c *C) {
	b := c.create()
	p := b.start("trap", "10", "15", "28")
	p.await("ready\n")
	for _, sig := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGTERM} {
		c.ok("Signal", p.Signal(c.ctx(), sig))
		p.await(fmt.Sprintf("got %d\n", sig))
	}
	c.ok("Kill", p.Kill(c.ctx()))
	c.kind("killed", p.wait().Outcome, run.Cancelled)
}

func signalEnds(c *C) {
	b := c.create()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGKILL, syscall.SIGHUP} {
		// A program that traps nothing.
		p := b.start("hold")
		p.await("ready")
		c.ok("Signal", p.Signal(c.ctx(), sig))
		out := p.wait().Outcome
		c.kind("hold and "+run.SignalName(sig), out, run.Signalled)
		if out.Signal != run.SignalName(sig) {
			c.Errorf("hold and %s: signal %q", run.SignalName(sig), out.Signal)
		}
	}
}

func killCancels(c *C) {
	b := c.create()
	victim, other := b.start("ignore-term"), b.start("hold")
	victim.await("ready")
	other.await("ready")
	c.ok("Kill", victim.Kill(c.ctx()))
	c.kind("killed", victim.wait().Outcome, run.Cancelled)
	c.ok("Signal", other.Signal(c.ctx(), syscall.SIGKILL))
	// The other one lived until now, and it is not the first one's Kill that
	// ended it.
	c.kind("the other command", other.wait().Outcome, run.Signalled)
}

func killAfterEnd(c *C) {
	b := c.create()
	p := b.start("exit", "3")
	p.wait()
	c.ok("Kill after the end", p.Kill(c.ctx()))
	c.ok("Signal after the end", p.Signal(c.ctx(), syscall.SIGTERM))
	c.exited("after Kill", p.wait().Outcome, 3)
	again, err := b.AttachExec(c.ctx(), p.ID())
	c.ok("AttachExec", err)
	c.ok("Kill after the end", again.Kill(c.ctx()))
	res, err := again.Wait(c.ctx())
	c.ok("Wait", err)
	c.exited("after Kill by another handle", res.Outcome, 3)
	ns := b.exec(execenv.ExecSpec{Argv: []string{"/no-such-program"}})
	c.ok("Kill of what did not start", ns.Kill(c.ctx()))
	c.kind("after Kill", ns.wait().Outcome, run.NotStarted)
}

func waitSame(c *C) {
	b := c.create()
	p := b.exec(execenv.ExecSpec{Argv: []string{probePath, "cat"}, Stdin: true})
	results := make([]execenv.Result, 5)
	done := make(chan struct{})
	go func() {
		defer close(done)
		together(len(results), func(i int) { results[i], _ = p.Wait(c.ctx()) })
	}()
	c.ok("CloseStdin", p.CloseStdin(c.ctx()))
	c.soon("concurrent Wait", func() { <-done })
	first := p.wait()
	other, err := b.AttachExec(c.ctx(), p.ID())
	c.ok("AttachExec", err)
	late, err := other.Wait(c.ctx())
	c.ok("Wait by another handle", err)
	for _, res := range append(results, late) {
		if !sameResult(res, first) {
			c.Errorf("Wait gave %+v to one and %+v to another", res, first)
		}
	}
}

func sameResult(a, b execenv.Result) bool {
	if !a.StartedAt.Equal(b.StartedAt) {
		return false
	}
	a.StartedAt, b.StartedAt = time.Time{}, time.Time{}
	return reflect.DeepEqual(a, b)
}

func waitEnded(c *C) {
	b := c.create()
	p := b.start("hold")
	p.await("ready")
	if res, err := p.Wait(ended()); err == nil {
		c.Errorf("Wait with an ended context on a running command gave %+v", res)
	}
	if res, err := p.Wait(ended()); err == nil {
		c.Errorf("Wait again gave %+v", res)
	}
	c.ok("Signal", p.Signal(c.ctx(), syscall.SIGKILL))
	// Had the context ended the command, it would be cancelled.
	c.kind("after Wait gave up", p.wait().Outcome, run.Signalled)
}

func resultFields(c *C) {
	b := c.create()
	before := time.Now().Add(-2 * time.Second)
	r := b.run("streams", "10")
	if r.StdoutBytes != 30 || r.StderrBytes != 30 || r.Truncated {
		c.Errorf("wrote 30 bytes to each stream, the result has %d, %d, truncated %v", r.StdoutBytes, r.StderrBytes, r.Truncated)
	}
	if r.StartedAt.Before(before) || r.StartedAt.After(time.Now().Add(2*time.Second)) {
		c.Errorf("StartedAt is %s, now is %s", r.StartedAt, time.Now())
	}
	if r.Duration <= 0 || r.Duration > c.h.Patience {
		c.Errorf("Duration is %s", r.Duration)
	}
}

func notStarted(c *C) {
	b := c.create()
	c.ok("PutArchive", b.PutArchive(c.ctx(), "", bytesReader(tarOf(c.T,
		file("data", 0o644, "no program"), dir("folder", 0o755), file("garbage", 0o755, "\x01\x02\x03\x04 no program"),
		symlink("dangling", "nowhere"),
	))))
	for name, spec := range map[string]execenv.ExecSpec{
		"missing program":        {Argv: []string{"/workspace/missing"}},
		"missing name":           {Argv: []string{"no-such-program-in-path"}},
		"missing directory":      {Argv: []string{probePath, "exit", "0"}, Dir: "missing"},
		"file as directory":      {Argv: []string{probePath, "exit", "0"}, Dir: "data"},
		"file not executable":    {Argv: []string{"/workspace/data"}},
		"directory as program":   {Argv: []string{"/workspace/folder"}},
		"no executable format":   {Argv: []string{"/workspace/garbage"}},
		"dangling symlink":       {Argv: []string{"/workspace/dangling"}},
		"relative and missing":   {Argv: []string{"./missing"}},
		"name in an empty PATH":  {Argv: []string{".probe", "exit", "0"}, Env: map[string]string{"PATH": ""}, Dir: "folder"},
		"missing with terminal":  {Argv: []string{"/workspace/missing"}, TTY: &execenv.WindowSize{Cols: 80, Rows: 24}},
		"program below a file":   {Argv: []string{"/workspace/data/program"}},
		"missing, stdin to come": {Argv: []string{"/workspace/missing"}, Stdin: true},
	} {
		if spec.TTY != nil && !c.caps.TTY {
			continue
		}
		x, err := b.Exec(c.ctx(), spec)
		if err != nil {
			c.Errorf("%s: Exec: %v, want an Exec that is not started", name, err)
			continue
		}
		p := &proc{Exec: x, c: c, name: name}
		r := p.finish()
		c.kind(name, r.Outcome, run.NotStarted)
		if r.stdout+r.stderr != "" || r.StdoutBytes+r.StderrBytes != 0 {
			c.Errorf("%s: nothing ran, and the output is %q, %q", name, r.stdout, r.stderr)
		}
	}
	if got := b.output("echo", "fine"); got != "fine\n" {
		c.Errorf("afterwards the sandbox prints %q", got)
	}
}

func foundInPath(c *C) {
	b := c.create()
	for name, spec := range map[string]execenv.ExecSpec{
		"in the command's PATH":     {Argv: []string{".probe", "echo", "found"}, Env: map[string]string{"PATH": "/nowhere:/workspace"}},
		"relative to the directory": {Argv: []string{"./.probe", "echo", "found"}},
	} {
		if r := b.exec(spec).finish(); r.stdout != "found\n" || !r.Outcome.Success() {
			c.Errorf("%s: %v, prints %q", name, r.Outcome, r.stdout)
		}
	}
	x := b.exec(execenv.ExecSpec{Argv: []string{".probe", "exit", "0"}})
	c.kind("not in PATH", x.wait().Outcome, run.NotStarted)
}

func execTwice(c *C) {
	b := c.create()
	spec := probe("daemon", "/workspace/once")
	spec.ID = "my-exec"
	p := b.exec(spec)
	if p.ID() != spec.ID {
		c.Errorf("Exec with the ID %q gave %q", spec.ID, p.ID())
	}
	p.wait()
	b.output("remove", "/workspace/once")
	again := b.exec(spec)
	r := again.finish()
	if r.stdout != "ready\n" || !sameResult(r.Result, p.wait()) {
		c.Errorf("Exec with the ID of an ended command gave %+v with %q", r.Result, r.stdout)
	}
	if r := b.run("read", "/workspace/once"); r.Outcome.Success() {
		c.Errorf("Exec with the same ID ran the program again")
	}
	running := b.exec(execenv.ExecSpec{ID: "r", Argv: []string{probePath, "hold"}})
	running.await("ready")
	same := b.exec(execenv.ExecSpec{ID: "r", Argv: []string{probePath, "hold"}})
	c.ok("Kill", same.Kill(c.ctx()))
	c.kind("killed by the second handle", running.wait().Outcome, run.Cancelled)
}

func execConcurrently(c *C) {
	b := c.create()
	spec := execenv.ExecSpec{ID: "one", Argv: []string{probePath, "cat"}, Stdin: true}
	procs := make([]*proc, 6)
	together(len(procs), func(i int) {
		x, err := b.Exec(c.ctx(), spec)
		if err != nil {
			c.Errorf("concurrent Exec: %v", err)
			return
		}
		procs[i] = &proc{Exec: x, c: c, name: "cat"}
	})
	if c.Failed() {
		return
	}
	_, err := procs[0].WriteStdin(c.ctx(), []byte("once"))
	c.ok("WriteStdin", err)
	c.ok("CloseStdin", procs[0].CloseStdin(c.ctx()))
	for _, p := range procs {
		if r := p.finish(); r.stdout != "once" {
			c.Errorf("a handle leads to another command: %q", r.stdout)
		}
	}
}

func attachExec(c *C) {
	b := c.create()
	p := b.start("hold")
	p.await("ready")
	if execenv.ValidateID(p.ID()) != nil {
		c.Errorf("the environment chose the ID %q", p.ID())
	}
	x, err := b.AttachExec(c.ctx(), p.ID())
	c.ok("AttachExec to a running command", err)
	again := &proc{Exec: x, c: c, name: "attached"}
	again.await("ready")
	c.ok("Kill", again.Kill(c.ctx()))
	c.kind("killed", p.wait().Outcome, run.Cancelled)
	x, err = b.AttachExec(c.ctx(), p.ID())
	c.ok("AttachExec to an ended command", err)
	again = &proc{Exec: x, c: c, name: "attached"}
	if r := again.finish(); r.stdout != "ready\n" || r.Outcome.Kind != run.Cancelled {
		c.Errorf("the attached command: %v, %q", r.Outcome, r.stdout)
	}
	_, err = b.AttachExec(c.ctx(), "no-such-exec")
	c.code("AttachExec to an unknown ID", err, fault.NotFound)
	ns := b.exec(execenv.ExecSpec{ID: "missing", Argv: []string{"/no-such-program"}})
	ns.wait()
	_, err = b.AttachExec(c.ctx(), "missing")
	c.ok("AttachExec to what did not start", err)
}

func execIDsPerSandbox(c *C) {
	one, two := c.create(), c.create()
	for i, b := range []*box{one, two} {
		spec := probe("echo", strconv.Itoa(i))
		spec.ID = "same"
		if r := b.exec(spec).finish(); strings.TrimSpace(r.stdout) != strconv.Itoa(i) {
			c.Errorf("sandbox %d prints %q", i, r.stdout)
		}
	}
}
