package execenvtest

import (
	"time"

	"github.com/agentdock/agentdock/internal/execenv"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/run"
)

var pauseCases = []testCase{
	{clause: "P10", name: "paused_and_resumed_goes_on_where_it_was", needs: needsPause, run: pausedAndResumed},
	{clause: "P10", name: "paused_again_and_again", needs: needsPause, run: pausedAgain},
	{clause: "P10", name: "paused_terminal_goes_on", needs: needsPauseAndTTY, run: pausedTerminal},
	{clause: "P10", name: "what_was_started_by_a_command_is_killed_after_a_pause", needs: needsPause, run: treeOverPause},
	{clause: "P10", name: "passed_on_file_of_an_ended_command", needs: needsPause, run: passedOn},
	{clause: "P10", name: "command_that_starts_while_it_is_paused", needs: needsPause, run: startRaced},
	{clause: "P10", name: "pause_is_there_or_refused_as_declared", run: pauseAsDeclared},
	{clause: "P11", name: "paused_sandbox_refuses_work", needs: needsPause, run: pausedRefuses},
	{clause: "P11", name: "paused_sandbox_can_be_destroyed", needs: needsPause, run: destroyedPaused},
	{clause: "P12", name: "clock_of_a_command_stands_still", needs: needsPauseAndClock, run: clockStandsStill},
	{clause: "P12", name: "paused_sandbox_is_not_kept_for_ever", needs: needsPauseAndClock, run: notKeptForEver},
	{clause: "P13", name: "spoiled_state_is_not_resumed", needs: needsSpoil, run: spoiled},
}

func needsPause(caps execenv.Capabilities, _ Harness) string {
	return unless(caps.Pause, "pause and resume")
}

func needsPauseAndTTY(caps execenv.Capabilities, _ Harness) string {
	return unless(caps.Pause && caps.TTY, "pause and resume")
}

func needsPauseAndClock(caps execenv.Capabilities, _ Harness) string {
	return unless(caps.Pause && caps.Enforces.WallClock, "pause and resume")
}

func needsSpoil(caps execenv.Capabilities, h Harness) string {
	return unless(caps.Pause && h.SpoilPaused != nil, "spoiling the state of a paused sandbox")
}

// ample is a time that does not pass in a case.
const ample = time.Hour

func (b *box) pause() {
	b.c.Helper()
	b.c.ok("Pause", b.Pause(b.c.ctx(), ample))
	info, err := b.Info(b.c.ctx())
	b.c.ok("Info of a paused sandbox", err)
	if info.State != execenv.StatePaused {
		b.c.Fatalf("after Pause the sandbox is %s", info.State)
	}
}

func (b *box) resume() {
	b.c.Helper()
	b.c.ok("Resume", b.Resume(b.c.ctx(), ample))
	info, err := b.Info(b.c.ctx())
	b.c.ok("Info of a resumed sandbox", err)
	if info.State != execenv.StateRunning {
		b.c.Fatalf("after Resume the sandbox is %s", info.State)
	}
}

// typist starts a program that repeats what it is told.
func (b *box) typist(id string) *proc {
	spec := probe("cat")
	spec.ID, spec.Stdin = id, true
	return b.exec(spec)
}

func (p *proc) tell(text string) {
	p.c.Helper()
	_, err := p.WriteStdin(p.c.ctx(), []byte(text))
	p.c.ok("WriteStdin", err)
}

func pausedAndResumed(c *C) {
	b := c.create()
	dirs := []string{"/workspace", "/tmp", "/dev/shm"}
	for _, dir := range dirs {
		b.output("write", dir+"/kept", "in "+dir)
	}
	before := b.start("exit", "7")
	before.wait()
	p := b.typist("typist")
	p.tell("before\n")
	p.await("before\n")
	silent := b.start("hold") // has no input
	silent.await("ready")

	b.pause()
	p.tell("meanwhile\n") // waits for the program, as it would if that did not read
	b.resume()

	for _, dir := range dirs {
		if got := b.output("read", dir+"/kept"); got != "in "+dir {
			c.Errorf("after the pause %s/kept holds %q", dir, got)
		}
	}
	p.tell("after\n")
	p.await("after\n")
	c.ok("CloseStdin", p.CloseStdin(c.ctx()))
	r := p.finish()
	c.exited("command over a pause", r.Outcome, 0)
	if want := "before\nmeanwhile\nafter\n"; r.stdout != want {
		c.Errorf("its log holds %q, want %q", r.stdout, want)
	}
	found, err := b.AttachExec(c.ctx(), "typist")
	c.ok("AttachExec", err)
	if again, err := found.Wait(c.ctx()); err != nil || !sameResult(again, r.Result) {
		c.Errorf("found by its ID it ended as %+v, %v", again, err)
	}
	c.exited("command that ended before the pause", before.wait().Outcome, 7)
	c.ok("Kill", silent.Kill(c.ctx()))
	c.kind("command that was killed after the pause", silent.wait().Outcome, run.Cancelled)
}

func pausedAgain(c *C) {
	b := c.create()
	p := b.typist("")
	want := ""
	for _, word := range []string{"one\n", "two\n", "three\n"} {
		p.tell(word)
		p.await(word)
		want += word
		b.pause()
		c.ok("Pause of a paused sandbox", b.Pause(c.ctx(), ample))
		b.resume()
		c.ok("Resume of a running sandbox", b.Resume(c.ctx(), ample))
	}
	c.ok("CloseStdin", p.CloseStdin(c.ctx()))
	if r := p.finish(); r.stdout != want {
		c.Errorf("after three pauses its log holds %q, want %q", r.stdout, want)
	}
}

func pausedTerminal(c *C) {
	b := c.create()
	p, typed := b.terminal(80, 24, "winch", "1"), b.terminal(80, 24, "trap", "2")
	p.await("size 80x24")
	typed.await("ready")
	b.pause()
	c.code("Resize", p.Resize(c.ctx(), execenv.WindowSize{Cols: 90, Rows: 30}), fault.Conflict)
	b.resume()
	c.ok("Resize", p.Resize(c.ctx(), execenv.WindowSize{Cols: 100, Rows: 30}))
	p.await("size 100x30")
	c.exited("command with a terminal over a pause", p.wait().Outcome, 0)
	_, err := typed.WriteStdin(c.ctx(), []byte{3}) // ^C
	c.ok("WriteStdin", err)
	typed.await("got 2")
	c.ok("Kill", typed.Kill(c.ctx()))
}

func treeOverPause(c *C) {
	b := c.create()
	family := b.start("family", "/workspace/family")
	family.await("ready")
	b.sees("daemon-child /workspace/family")
	b.pause()
	b.resume()
	b.sees("daemon-child /workspace/family")
	c.ok("Kill", family.Kill(c.ctx()))
	c.kind("command with children", family.wait().Outcome, run.Cancelled)
	b.gone("/workspace/family")
}

// passedOn has two commands give their stdout to a third and end. The third has
// taken one, and the other is still on its way.
func passedOn(c *C) {
	const socket = "/tmp/s"
	b := c.create()
	keeper := b.start("take", socket)
	keeper.await("ready")
	give := func(id string) *proc {
		spec := probe("give", socket)
		spec.ID, spec.Stdin = id, true
		p := b.exec(spec)
		p.await("given")
		return p
	}
	givers := []*proc{give("first")}
	keeper.await("taken")
	givers = append(givers, give("second"))
	b.pause()
	b.resume()
	for _, p := range givers {
		c.ok("CloseStdin", p.CloseStdin(c.ctx()))
		c.exited("a command that passed its stdout on", p.finish().Outcome, 0)
	}
	for range 2 {
		b.pause()
		b.resume()
	}
	c.ok("Kill", keeper.Kill(c.ctx()))
	c.kind("who it was passed to", keeper.wait().Outcome, run.Cancelled)
}

// startRaced: a command either has started, and goes on, or has not.
func startRaced(c *C) {
	b := c.create()
	for range 5 {
		started := make(chan struct{})
		var x execenv.Exec
		var err error
		go func() {
			defer close(started)
			spec := probe("cat")
			spec.Stdin = true
			x, err = b.Exec(c.ctx(), spec)
		}()
		b.pause()
		<-started
		b.resume()
		if err != nil {
			c.code("Exec beside a Pause", err, fault.Conflict)
			continue
		}
		p := &proc{Exec: x, c: c, name: "cat"}
		p.tell("after\n")
		p.await("after\n")
		c.ok("CloseStdin", p.CloseStdin(c.ctx()))
		c.exited("a command that had started", p.finish().Outcome, 0)
	}
}

func pauseAsDeclared(c *C) {
	b := c.create()
	if c.caps.Pause {
		b.pause()
		b.resume()
	} else {
		c.code("Pause", b.Pause(c.ctx(), ample), fault.Unsupported)
		c.code("Resume", b.Resume(c.ctx(), ample), fault.Unsupported)
	}
	if got := b.output("echo", "alive"); got != "alive\n" {
		c.Errorf("after that the sandbox prints %q", got)
	}
}

func pausedRefuses(c *C) {
	b := c.create()
	p := b.typist("typist")
	p.tell("kept\n")
	p.await("kept\n")
	b.pause()
	_, err := b.Exec(c.ctx(), probe("exit", "0"))
	c.code("Exec in a paused sandbox", err, fault.Conflict)
	c.code("PutArchive", b.PutArchive(c.ctx(), "", bytesReader(tarOf(c.T, file("a", 0o644, "")))), fault.Conflict)
	c.code("GetArchive", b.GetArchive(c.ctx(), execenv.ArchiveRequest{}, discard{}), fault.Conflict)
	_, err = b.Usage(c.ctx())
	c.code("Usage", err, fault.Conflict)
	c.code("Extend", b.Extend(c.ctx(), ample), fault.Conflict)
	c.code("Kill", p.Kill(c.ctx()), fault.Conflict)
	c.code("Signal", p.Signal(c.ctx(), 15), fault.Conflict)
	for _, d := range []time.Duration{0, -time.Second} {
		c.code("Pause for nothing", b.Pause(c.ctx(), d), fault.Invalid)
		c.code("Resume for nothing", b.Resume(c.ctx(), d), fault.Invalid)
	}
	infos, err := b.Execs(c.ctx())
	c.ok("Execs", err)
	if len(infos) != 1 || infos[0].ID != "typist" || infos[0].Result != nil {
		c.Errorf("its commands are %+v", infos)
	}
	_, err = b.AttachExec(c.ctx(), "typist")
	c.ok("AttachExec", err)
	p.await("kept\n")
	b.resume()
	c.ok("Kill", p.Kill(c.ctx()))
	c.kind("command", p.wait().Outcome, run.Cancelled)
}

func destroyedPaused(c *C) {
	b := c.create()
	p := b.start("hold")
	p.await("ready")
	b.pause()
	ended := make(chan error, 1)
	go func() {
		// Not to its end: who waits holds on to nothing.
		r, err := p.Wait(c.ctx())
		if err == nil && r.Outcome.Kind != run.Cancelled {
			c.Errorf("command in it: outcome %v (%s), want cancelled", r.Outcome, r.Outcome.Evidence)
		}
		ended <- err
	}()
	c.ok("Destroy", c.env.Destroy(c.ctx(), b.ID()))
	if err := <-ended; err != nil {
		c.code("Wait for a command in it", err, fault.NotFound, fault.Gone) // it was asked too late
	}
	if info, ok := c.listed(b.ID()); ok {
		c.Errorf("after Destroy List has %+v", info)
	}
	c.code("Resume of a destroyed sandbox", b.Resume(c.ctx(), ample), fault.Gone, fault.NotFound)
}

// clockStandsStill takes the end of a younger command as the sign that the limit
// of the older one would have passed.
func clockStandsStill(c *C) {
	const limit = 2 * time.Second
	start := func(b *box) *proc {
		spec := probe("hold")
		spec.Timeout = limit
		p := b.exec(spec)
		p.await("ready")
		return p
	}
	b, other := c.create(), c.create()
	p := start(b)
	b.pause()
	c.kind("a command that is not paused", start(other).wait().Outcome, run.WallClock)
	b.resume()
	infos, err := b.Execs(c.ctx())
	c.ok("Execs", err)
	if infos[len(infos)-1].Result != nil {
		c.Errorf("its time passed while it was paused: %+v", infos[len(infos)-1].Result)
	}
	c.kind("the command that was", p.wait().Outcome, run.WallClock)
}

func notKeptForEver(c *C) {
	b := c.create()
	p := b.start("hold")
	p.await("ready")
	before := time.Now()
	c.ok("Pause", b.Pause(c.ctx(), time.Second))
	c.kind("command at the end of the keeping", p.wait().Outcome, run.WallClock)
	if d := time.Since(before); d < time.Second {
		c.Errorf("it was kept for %s", d)
	}
	c.code("Resume after that", b.Resume(c.ctx(), ample), fault.Gone)
	endsUp(c, b, run.WallClock)
}

func spoiled(c *C) {
	b := c.create()
	p := b.start("hold")
	p.await("ready")
	b.pause()
	c.h.SpoilPaused(c.T, c.env, b.ID())
	c.code("Resume of a spoiled state", b.Resume(c.ctx(), ample), fault.Gone)
	c.kind("command in it", p.wait().Outcome, run.InfrastructureLost)
	endsUp(c, b, run.InfrastructureLost)
}
